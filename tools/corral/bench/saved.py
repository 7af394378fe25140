"""A benchmark as a file: what was measured, under which conditions, and every sample; compressed JSON."""

from __future__ import annotations

import gzip
import json
import math
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from corral.bench import figures, loads
from corral.bench.figures import FORMULAS
from corral.bench.load import Run
from corral.bench.measuring import Measured
from corral.errors import Refused

VERSION = 1
MOST_BYTES = 256 << 20
SERIES = ("ttft", "tpot", "e2e")
"""The figures of a whole answer that a file has of each sample, in seconds."""


@dataclass(frozen=True)
class Benchmark:
    """A file.

    Attributes:
        conditions: when, where, of what, by which options; for people, and to compare like with like.
        levels: of each model and level: each of ``SERIES`` by name, ``requests``, ``failed``, why it is ``invalid``.
    """

    conditions: dict[str, Any]
    levels: dict[tuple[str, str], dict[str, Any]]


def document(conditions: dict[str, Any], measured: Sequence[Measured], *, with_samples: bool) -> dict[str, Any]:
    """What a benchmark showed, under which *conditions*; times in seconds."""
    return {
        "version": VERSION,
        "conditions": conditions,
        "formulas": dict(FORMULAS),
        "first_answer_s": {one.model: one.first_answer_s for one in measured},
        "loads": {one.model: list(loads.summary(one.loads)) for one in measured if one.loads},
        "levels": [
            {"model": one.model, "figures": figures.of(run).as_json()}
            | ({"samples": _samples(run)} if with_samples else {})
            for one in measured
            for run in one.runs
        ],
    }


def pack(found: dict[str, Any]) -> bytes:
    """*found* as the content of a file; the same for the same content."""
    return gzip.compress(json.dumps(found, separators=(",", ":")).encode(), mtime=0)


def read(path: Path) -> Benchmark:
    """The benchmark in the file *path*.

    Raises:
        Refused: it cannot be read, or is none.
    """
    try:
        with gzip.open(path) as stream:
            content = stream.read(MOST_BYTES + 1)
        return _benchmark(content)
    except OSError as error:
        raise Refused(
            f"{path} cannot be read: {error.strerror or error}.", next_step="corral bench MODEL --save FILE"
        ) from None
    except (ValueError, KeyError, TypeError, EOFError, RecursionError, OverflowError, zlib.error) as error:
        raise Refused(
            f"{path} is no benchmark that corral saved: {error}.", next_step="corral bench MODEL --save FILE"
        ) from None


def _benchmark(content: bytes) -> Benchmark:
    if len(content) > MOST_BYTES:
        raise ValueError(f"it has more than {MOST_BYTES} bytes")
    found = json.loads(content)
    if found["version"] != VERSION:
        raise ValueError(f"it has version {found['version']!r}, and this corral reads version {VERSION}")
    levels = {(str(one["model"]), str(one["figures"]["level"])): _level(one) for one in found["levels"]}
    return Benchmark(dict(found["conditions"]), levels)


def _level(one: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {name: _seconds(one["samples"][name]) for name in SERIES}
    outcomes = one["samples"]["outcome"]
    if not isinstance(outcomes, list) or len(found["e2e"]) > len(outcomes):
        raise ValueError("it has more answers than requests")
    failed = len(outcomes) - len(found["e2e"])
    return found | {
        "requests": len(outcomes),
        "failed": failed,
        "invalid": [str(reason) for reason in one["figures"]["invalid"]],
    }


def _seconds(values: Any) -> list[float]:
    if not isinstance(values, list) or not all(
        isinstance(one, (int, float)) and math.isfinite(one) and one >= 0 for one in values
    ):
        raise ValueError("a series of it is no list of seconds")
    return [float(one) for one in values]


def _samples(run: Run) -> dict[str, list[Any]]:
    """Each figure as a list with a place for each sample, by the time at which it was to be sent; rounded to 10 µs."""
    ordered = sorted(run.samples, key=lambda one: one.scheduled)
    whole = [one for one in ordered if one.is_ok]
    began = ordered[0].scheduled if ordered else 0.0
    return {
        "outcome": [one.outcome for one in ordered],
        "scheduled": _rounded(one.scheduled - began for one in ordered),
        "sent": _rounded(one.sent - began for one in ordered),
        "prompt_tokens": [one.prompt_tokens for one in whole],
        "output_tokens": [one.output_tokens for one in whole],
        "ttft": _rounded(map(figures.ttft, whole)),
        "tpot": _rounded(map(figures.tpot, whole)),
        "e2e": _rounded(map(figures.e2e, whole)),
        "server_prompt": _rounded(one.server_prompt_s or 0.0 for one in whole),
        "server_output": _rounded(one.server_output_s or 0.0 for one in whole),
        "gaps": [_rounded(one.gaps) for one in whole],
    }


def _rounded(values: Iterable[float | None]) -> list[float]:
    return [round(value, 5) for value in values if value is not None]
