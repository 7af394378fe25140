"""Box 9: monitoring alive.  The exporter of this lock reads llama-swap, and counts a request that the gate makes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from prometheus_client.parser import text_string_to_metric_families

from corral.agent.hub_policy import printable
from corral.bench.exchange import described
from corral.bench.prompts import Prompts, body
from corral.cluster import exporters, port_forward
from corral.cluster.client import Cluster
from corral.cluster.snapshot import at
from corral.cluster.target import ClusterTarget
from corral.errors import CannotRun
from corral.exporter.metric_table import METRICS
from corral.gate import box
from corral.gate.box import Line, State
from corral.gate.site import Site
from corral.smoke.endpoint import Endpoint, TransportError

UP, SEAL, REQUESTS = (METRICS[name].series for name in ("corral_llama_swap_up", "corral_lock_info", "corral_requests"))
Series = Mapping[tuple[str, ...], float]
"""The value of each series: its name and the values of its labels, in the order of the labels' names."""
_LIMIT_S = 10.0
_COUNTED_LIMIT_S = 60.0
_POLL_S = 0.5
_READINGS = 10
_TOKENS = 8


def monitoring(site: Site) -> tuple[Line, ...]:
    """Whether the exporter is alive now, and has the gate's own request in its figures.

    Raises:
        CannotRun: no exporter answers; the next step starts one.
        Refused: the cluster's may not be read.
    """
    with site.exporter() as root:
        return asyncio.run(_measured(site, root))


async def _measured(site: Site, root: str) -> tuple[Line, ...]:
    async with Endpoint(root) as exporter, site.client() as client:
        before = await _series(exporter)
        if wrong := judge(before, seal=site.lock.seal):
            return wrong
        before = await _settled(exporter, before, site.model)
        site.report(f"{root}: a request of the gate must be counted …")
        sample = await client.send(body(site.model, Prompts(_TOKENS).next(), _TOKENS, may_end=True))
        if not sample.is_ok:
            return box.line(State.FAILED, f"the gate's request failed: {described(sample.outcome)}", site.why)
        counted, ends = _counted(before, site.model), time.monotonic() + _COUNTED_LIMIT_S
        while (now := _counted(await _series(exporter), site.model)) <= counted:
            if time.monotonic() > ends:
                text = f"{REQUESTS} of {site.model} is {now:g}, as {_COUNTED_LIMIT_S:g} s ago: a request is not counted"
                return box.line(State.FAILED, text, "corral exporter --once, and the exporter's own log")
            await asyncio.sleep(_POLL_S)
    return box.line(State.PASSED, f"{UP} is 1, of this lock; {REQUESTS} of {site.model}: {counted:g} → {now:g}")


async def _settled(exporter: Endpoint, found: Series, model: str) -> Series:
    """The series once no earlier request is counted any more: llama-swap lists one a moment after its answer.

    With other clients that may never be; then the last of some readings.
    """
    for _ in range(_READINGS):
        await asyncio.sleep(_POLL_S)
        before, found = found, await _series(exporter)
        if _counted(before, model) == _counted(found, model):
            break
    return found


def judge(found: Series, *, seal: str) -> tuple[Line, ...]:
    """What is wrong with an exporter by its series; nothing: no line."""
    if (has := next((name[1] for name in found if name[0] == SEAL and len(name) > 1), None)) != seal:
        of = f"is of another lock ({printable(has, 12)})" if has else f"has no {SEAL}: it is none of corral's"
        return box.line(State.FAILED, f"the exporter {of}", "Start it again: corral exporter, or corral apply")
    if (up := found.get((UP,))) != 1:
        what = "missing" if up is None else f"{up:g}"
        return box.line(State.FAILED, f"{UP} is {what}: it does not read llama-swap", "corral status")
    return ()


def _counted(found: Series, model: str) -> float:
    """Requests of *model* with status 200 that were counted; its labels are code and model."""
    return sum(value for name, value in found.items() if name == (REQUESTS, "200", model))


async def _series(exporter: Endpoint) -> Series:
    """The series of *exporter* now.

    Raises:
        CannotRun: it gives none.
    """
    try:
        async with asyncio.timeout(_LIMIT_S):
            reply = await exporter.request("/metrics")
    except (TransportError, TimeoutError) as error:
        why = printable(str(error)) or f"nothing within {_LIMIT_S:g} s"
        raise CannotRun(f"No exporter answers at {exporter.root}: {why}.", next_step="corral exporter") from None
    if reply.status != 200:
        message = f"{exporter.root}/metrics answers with HTTP {reply.status}."
        raise CannotRun(message, next_step="corral exporter, then: --exporter URL")
    try:
        return {
            (one.name, *(one.labels[name] for name in sorted(one.labels))): one.value
            for family in text_string_to_metric_families(reply.body.decode())
            for one in family.samples
        }
    except (ValueError, KeyError, IndexError, UnicodeDecodeError):
        message = f"{exporter.root}/metrics has no metrics of Prometheus."
        raise CannotRun(message, next_step="corral exporter, then: --exporter URL") from None


@contextmanager
def in_cluster(cluster: Cluster, target: ClusterTarget) -> Iterator[str]:
    """The address of the exporter on the node of the pod of *target*, through a forwarded port.

    Raises:
        CannotRun: there is none, or it or the pod is not ready.
        Refused: the user may not list namespaces, or not forward a port.
    """
    places = exporters.find(cluster, of=target.namespace)
    if not places:
        message = f"No exporter of the cluster knows the engines in {target.namespace}."
        raise CannotRun(message, next_step="Write card_exporter = {} into terraform.tfvars, then run: corral apply")
    pod = port_forward.ready_pod(cluster, target.namespace, target.service)
    node = str(at(pod, "spec", "nodeName") or "")
    with port_forward.forwarded(cluster, places[0], exporters.SERVICE, port="metrics", node=node) as root:
        yield root
