"""The state of a store as metrics, in Prometheus' text format; docs/metrics.md has the table.

Written by hand, as all here runs on a bare Python: the format is one line for each series
(https://prometheus.io/docs/instrumenting/exposition_formats/), all are gauges, and every label value is a name of
Kubernetes, a model's id or a word of ours, which need no escapes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from .store_state import StoreState

NAME = re.compile(r"[a-z0-9][a-z0-9.-]*")
"""Of a store."""

LOCAL = "local"
"""The name of the store of this machine's stack."""

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True)
class Metric:
    """One metric family, a gauge; ``store`` is the first label of each."""

    name: str
    labels: tuple[str, ...]
    help: str


METRICS = (
    Metric("corral_store_lock_info", ("store", "seal"), "1; the seal of the lock that the models are from."),
    Metric("corral_store_up", ("store",), "1 when the store could be read within the last 90 seconds."),
    Metric("corral_store_size_bytes", ("store",), "Size of the store's file system."),
    Metric("corral_store_free_bytes", ("store",), "Room that is left there, for the exporter's user."),
    Metric(
        "corral_store_unlinked_bytes",
        ("store",),
        "Content that no model links to, not even one that left the lock; `corral prune` removes both in time.",
    ),
    Metric("corral_store_downloads", ("store",), "Files that a process downloads now."),
    Metric("corral_store_model_bytes", ("store", "model"), "Size of the model's files, by the lock."),
    Metric(
        "corral_store_model_state",
        ("store", "model", "state"),
        "1 for the model's state: ready; unverified: a file is not as it was verified; "
        "outdated: another version than the lock's is linked; missing.",
    ),
    Metric(
        "corral_store_model_cached_bytes",
        ("store", "model"),
        "What the node's page cache has of the model's files: the next load reads the rest from the store.",
    ),
)


def text(store: str, state: StoreState | None, seal: str) -> str:
    """The metrics of the *state* of the store named *store*, None: it is unknown; *seal* is that of the lock."""
    series = [("corral_store_lock_info", (seal,), 1), *_series(state)]
    lines = []
    for metric in METRICS:
        found = [(labels, value) for name, labels, value in series if name == metric.name]
        if found:
            lines += [f"# HELP {metric.name} {metric.help}", f"# TYPE {metric.name} gauge"]
        for labels, value in found:
            pairs = ",".join(f'{name}="{label}"' for name, label in zip(metric.labels, (store, *labels), strict=True))
            lines.append(f"{metric.name}{{{pairs}}} {value}")
    return "".join(f"{line}\n" for line in lines)


def _series(state: StoreState | None) -> Iterator[tuple[str, tuple[str, ...], int]]:
    yield "corral_store_up", (), 0 if state is None else 1
    if state is None:
        return
    yield "corral_store_size_bytes", (), state.total
    yield "corral_store_free_bytes", (), state.free
    yield "corral_store_unlinked_bytes", (), state.unlinked
    yield "corral_store_downloads", (), state.downloads
    for one in state.models:
        yield "corral_store_model_bytes", (one.model,), one.size
        yield "corral_store_model_state", (one.model, one.state), 1
        if one.cached is not None:
            yield "corral_store_model_cached_bytes", (one.model,), one.cached
