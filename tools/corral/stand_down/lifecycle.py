"""Begins a stand-down of a tenant, and ends it.

Nothing is scaled down before a Job in the cluster is ready to restore it: what ends here later (this program, this
machine, the connection) changes nothing.
"""

from __future__ import annotations

import contextlib
import getpass
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass

from corral.cluster.client import Cluster, Conflict, NotFound, Object
from corral.cluster.snapshot import at, name_of
from corral.errors import CannotRun, CorralError, Refused
from corral.stand_down import manifests, restorer, workloads
from corral.stand_down.workloads import ScaleApi, Tenant, Workload

READY_LIMIT_S = 180.0
"""Seconds that the Job may take until it is ready; its image may have to be pulled."""
_ROUND_S = 0.5
_PREFIX = "/apis/apps/v1/namespaces/"


@dataclass(frozen=True)
class StandDown:
    """A tenant that is stood down.

    Attributes:
        tenant: its name.
        holder: who began it, user@host.
        until: seconds since 1970; None before the Job that restores is ready.
        workloads: with the replicas that they get again.
    """

    tenant: str
    holder: str
    until: float | None
    workloads: tuple[Workload, ...]


def read(cluster: Cluster, tenant: Tenant) -> StandDown | None:
    """The stand-down of *tenant*; None when it has none.

    Raises:
        Refused: the user may not read Leases, or the Lease is not one of `corral stand-down`.
        CannotRun: the API server does not respond.
    """
    try:
        lease = cluster.get(manifests.path(tenant.namespace, tenant.name))
    except NotFound:
        return None
    try:
        found = tuple(_workload(path, replicas) for path, replicas in restorer.workloads_in(lease))
        return StandDown(tenant.name, str(at(lease, "spec", "holderIdentity")), restorer.until_in(lease), found)
    except (KeyError, ValueError, TypeError):
        name = manifests.name(tenant.name)
        raise Refused(
            f"The Lease {name} in {tenant.namespace} is not what `corral stand-down` writes.",
            next_step=f"Give its workloads their replicas, then: {_kubectl(cluster, tenant, 'delete', 'lease', name)}",
        ) from None


def begin(cluster: Cluster, tenant: Tenant, seconds: int, image: str, report: Callable[[str], None]) -> StandDown:
    """Scale the workloads of *tenant* to 0 for *seconds*; returns when its pods have ended.

    Args:
        cluster: where it runs.
        tenant: it and its namespace get the objects of the stand-down.
        seconds: from the moment when the Job is ready.
        image: a stock Python, which the Job runs in.
        report: takes a sentence for each step.

    Raises:
        Refused: it is stood down already, has no workload or no replicas, or the user may not make the objects.
        CannotRun: the Job is not ready in time, a pod does not end, or the API server does not respond.
            Whatever was begun is undone; where that fails too, the message says when the Job does it.
    """
    if present := read(cluster, tenant):
        raise _already(present)
    found = workloads.of(cluster, tenant)
    if not any(one.replicas for one in found):
        message = f"{tenant.name} has no replicas: {', '.join(map(str, found))}."
        raise Refused(message, next_step=_kubectl(cluster, tenant, "get", "deployments,statefulsets"))
    found = tuple(one for one in found if one.replicas)
    wanted = manifests.lease(tenant, found, seconds=seconds, holder=f"{getpass.getuser()}@{socket.gethostname()}")
    try:
        lease = cluster.create(manifests.path(tenant.namespace, tenant.name).rpartition("/")[0], wanted)
    except Conflict:
        raise CannotRun(f"{tenant.name} was stood down at the same moment.", next_step="corral stand-down") from None
    try:
        for place, made in manifests.owned(tenant, found, image=image, owner=lease):
            cluster.create(place, made)
        report(f"{tenant.name}: waiting for the Job that restores it")
        until = _wait_until_ready(cluster, tenant)
        for one in found:
            workloads.scale_down(cluster, tenant.namespace, one)
            report(f"{tenant.name}: {one}: {one.replicas} → 0 replicas")
        _wait_until_gone(cluster, tenant)
    except BaseException:
        with contextlib.suppress(CorralError):
            end(cluster, tenant)
        raise
    return StandDown(tenant.name, str(at(lease, "spec", "holderIdentity")), until, found)


def end(cluster: Cluster, tenant: Tenant) -> tuple[tuple[Workload, str], ...]:
    """Restore the workloads of *tenant*; each with why it keeps what it has, empty where it was restored.

    Raises:
        Refused: *tenant* is not stood down, or the user may not scale its workloads.
        CannotRun: the API server does not respond; the Job restores them when the time is over.
    """
    found = read(cluster, tenant)
    if found is None:
        raise Refused(f"{tenant.name} is not stood down.", next_step="corral stand-down")
    api = ScaleApi(cluster)
    kept = [(one, restorer.restore(api, one.scale(tenant.namespace), one.replicas)) for one in found.workloads]
    with contextlib.suppress(NotFound):  # the Job was at the same moment
        cluster.delete(manifests.path(tenant.namespace, tenant.name))
    return tuple(kept)


def _workload(path: str, replicas: int) -> Workload:
    _, kind, name, _ = path.removeprefix(_PREFIX).split("/")
    return Workload(kind, name, replicas)


def _already(found: StandDown) -> Refused:
    until = f" until {time.strftime('%H:%M', time.localtime(found.until))}" if found.until else ""
    message = f"{found.tenant} is stood down already{until}, by {found.holder}."
    return Refused(message, next_step=f"To end that: corral stand-down {found.tenant} --end")


def _wait_until_ready(cluster: Cluster, tenant: Tenant) -> float:
    deadline = time.monotonic() + READY_LIMIT_S
    while True:
        lease = cluster.get(manifests.path(tenant.namespace, tenant.name))
        if until := restorer.until_in(lease):
            return until
        if time.monotonic() > deadline:
            why = _why_not_ready(cluster, tenant)
            message = f"The Job that would restore {tenant.name} is not ready after {READY_LIMIT_S:.0f} s{why}."
            step = _kubectl(cluster, tenant, "get", "events")
            raise CannotRun(f"{message} Nothing was scaled down.", next_step=step)
        time.sleep(_ROUND_S)


def _why_not_ready(cluster: Cluster, tenant: Tenant) -> str:
    """What the pod of the Job waits for, as the end of a sentence; empty when that is not known."""
    with contextlib.suppress(CorralError):
        selector = f"job-name={manifests.name(tenant.name)}"
        for pod in cluster.items(f"/api/v1/namespaces/{tenant.namespace}/pods", labelSelector=selector):
            for one in at(pod, "status", "containerStatuses") or ():
                waiting = at(one, "state", "waiting") or at(one, "state", "terminated") or {}
                if waiting:
                    return f": {waiting.get('reason')}: {str(waiting.get('message') or '')[:300].strip()}"
            for one in at(pod, "status", "conditions") or ():
                if one.get("status") == "False" and one.get("message"):
                    return f": {one.get('reason')}: {str(one['message'])[:300]}"
            log = cluster.text(f"/api/v1/namespaces/{tenant.namespace}/pods/{name_of(pod)}/log", tailLines="1")
            return f": {log.strip()[:300]}" if log.strip() else ""
    return ""


def _wait_until_gone(cluster: Cluster, tenant: Tenant) -> None:
    """Wait until no pod of *tenant* is left, as long as Kubernetes gives the slowest of them."""
    begun = time.monotonic()
    left: tuple[Object, ...] = workloads.pods_of(cluster, tenant)
    grace = max((int(at(pod, "spec", "terminationGracePeriodSeconds") or 30) for pod in left), default=0)
    while left:
        if time.monotonic() - begun > grace + 60:
            names = ", ".join(map(name_of, left))
            message = f"The pods {names} of {tenant.namespace} do not end; {tenant.name} was restored."
            raise CannotRun(message, next_step=_kubectl(cluster, tenant, "describe", "pods", "-l", tenant.selector))
        time.sleep(_ROUND_S)
        left = workloads.pods_of(cluster, tenant)


def _kubectl(cluster: Cluster, tenant: Tenant, *words: str) -> str:
    return cluster.kubectl(*words, namespace=tenant.namespace)


def as_json(found: StandDown) -> dict[str, object]:
    """*found* as `--json` prints it."""
    scales = [{"kind": one.kind, "name": one.name, "replicas": one.replicas} for one in found.workloads]
    return {"tenant": found.tenant, "holder": found.holder, "until": found.until, "workloads": scales}
