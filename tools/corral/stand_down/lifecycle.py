"""Begins a stand-down of a tenant, and ends it: writes its Lease, makes its Job, and waits for what the Job does.

Only the Job scales anything, so that what ends here later (this program, this machine, the connection) changes nothing.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass

from corral.cluster import waiting_pod
from corral.cluster.client import Cluster, Conflict, NotFound, Object
from corral.cluster.snapshot import at, name_of
from corral.errors import CannotRun, CorralError, Refused
from corral.stand_down import manifests, restorer, workloads
from corral.stand_down.workloads import ScaleApi, Tenant, Workload

READY_LIMIT_S = 180.0
"""Seconds that the Job may take until it is ready; its image may have to be pulled."""
END_LIMIT_S = 60.0
"""Seconds that the end of a stand-down may take: for the API server to respond, and for the Job to restore."""
LEAST_S = 20
"""Seconds that a stand-down takes at least, beyond what its pods may take to end."""
_ROUND_S = 0.5
_PREFIX = "/apis/apps/v1/namespaces/"


@dataclass(frozen=True)
class StandDown:
    """A tenant that is stood down.

    Attributes:
        tenant: its name.
        uid: of the Lease; another stand-down of the tenant has another.
        holder: who began it, user@host.
        until: seconds since 1970; None before the Job that restores is ready.
        workloads: with the replicas that they get again.
    """

    tenant: str
    uid: str
    holder: str
    until: float | None
    workloads: tuple[Workload, ...]


Restored = tuple[tuple[Workload, str], ...]
"""Each workload with why it keeps what it has; empty where it has its replicas again."""


def read(cluster: Cluster, tenant: Tenant) -> StandDown | None:
    """The stand-down of *tenant*; None when it has none.

    Raises:
        Refused: the user may not read Leases, or the Lease is not one of `corral stand-down`.
        CannotRun: the API server does not respond.
    """
    lease = _lease(cluster, tenant)
    if lease is None:
        return None
    found = tuple(_workload(path, count) for path, count in _scales(cluster, tenant, lease).items())
    holder = str(at(lease, "spec", "holderIdentity"))
    return StandDown(tenant.name, lease["metadata"]["uid"], holder, restorer.until_in(lease), found)


def begin(cluster: Cluster, tenant: Tenant, seconds: int, image: str, report: Callable[[str], None]) -> StandDown:
    """Have the workloads of *tenant* scaled to 0 for *seconds*; returns when its pods have ended.

    Args:
        cluster: where it runs.
        tenant: it and its namespace get the objects of the stand-down.
        seconds: from the moment when the Job is ready.
        image: a stock Python, which the Job runs in.
        report: takes a sentence for each step.

    Raises:
        Refused: it is stood down already, has no workload or no replicas, its pods may take longer to end than
            *seconds*, or the user may not make the objects.
        CannotRun: the Job is not ready in time, a pod does not end, or the API server does not respond.
            Whatever was begun is undone; where that fails, too, *report* gets a sentence that states so.
    """
    if present := read(cluster, tenant):
        when = f" until {time.strftime('%H:%M', time.localtime(present.until))}" if present.until else ""
        message = f"{tenant.name} is stood down already{when}, by {present.holder}."
        raise Refused(message, next_step=f"To end that: corral stand-down {tenant.name} --end")
    found = tuple(one for one in workloads.of(cluster, tenant) if one.replicas)
    if not found:
        step = _kubectl(cluster, tenant, "get", "deployments,statefulsets")
        raise Refused(f"{tenant.name} has no replicas; nothing is to be stood down.", next_step=step)
    pods = workloads.pods_of(cluster, tenant)
    grace, tolerations = workloads.grace_s(pods), workloads.tolerations(pods)
    if seconds < grace + LEAST_S:
        message = f"The pods of {tenant.name} may take {grace} s to end: {seconds} s are too short."
        raise Refused(message, next_step=f"corral stand-down {tenant.name} --for {grace + LEAST_S}s")
    host = socket.gethostname()
    wanted = manifests.lease(tenant, found, seconds=seconds, holder=f"{os.environ.get('USER') or os.getuid()}@{host}")
    for place, one in manifests.owned(tenant, found, owner=_with_uid(wanted), image=image, tolerations=tolerations):
        if one["kind"] != "RoleBinding":  # its Role would have to be there
            _create(cluster, f"{place}?dryRun=All", one)  # what the user may not do ends here, before anything is made
    try:
        lease = cluster.create(manifests.path(tenant.namespace, tenant.name).rpartition("/")[0], wanted)
    except Conflict:
        raise CannotRun(f"{tenant.name} was stood down at the same moment.", next_step="corral stand-down") from None
    uid = lease["metadata"]["uid"]
    try:
        for place, one in manifests.owned(tenant, found, owner=lease, image=image, tolerations=tolerations):
            _create(cluster, place, one)
        report(f"{tenant.name}: waiting for the Job that scales it down and restores it")
        until = _wait_until_down(cluster, tenant, uid, seconds)
        for workload in found:
            report(f"{tenant.name}: {workload}: {workload.replicas} → 0 replicas")
        _wait_until_gone(cluster, tenant, uid, until)
    except BaseException:
        try:
            end(cluster, tenant, uid=uid)
        except CorralError as error:
            report(unrestored(tenant, error))
        raise
    return StandDown(tenant.name, uid, str(at(lease, "spec", "holderIdentity")), until, found)


def is_on(cluster: Cluster, tenant: Tenant, uid: str) -> bool:
    """Whether the stand-down *uid* of *tenant* lasts; also where the API server does not respond."""
    try:
        lease = _lease(cluster, tenant)
    except CorralError:
        return True
    ended = {restorer.END, restorer.RESTORED}
    return bool(lease and lease["metadata"]["uid"] == uid and not ended & restorer.notes_of(lease).keys())


def unrestored(tenant: Tenant, error: CorralError) -> str:
    """The message where a stand-down could not be ended for *error*."""
    words = f"{tenant.name} could not be restored now: {error.message} The Job does it when the time is over."
    return f"{words}\n  → {error.next_step}\n  → corral stand-down {tenant.name} --end"


def end(cluster: Cluster, tenant: Tenant, *, uid: str | None = None) -> Restored | None:
    """Have the workloads of *tenant* restored, and wait for that.

    Args:
        cluster: where it runs.
        tenant: the one that is stood down.
        uid: of the stand-down that is meant; None: whatever there is.

    Returns:
        None: the stand-down *uid* has ended before.

    Raises:
        Refused: *tenant* is not stood down, or the user may not change the Lease.
        CannotRun: the API server or the Job does not respond; the Job restores it when the time is over.
    """
    deadline = time.monotonic() + END_LIMIT_S
    result: Restored | None = None
    while True:
        try:
            lease = _lease(cluster, tenant)
            if lease is None or (uid and lease["metadata"]["uid"] != uid):
                if uid is None and result is None:
                    raise Refused(f"{tenant.name} is not stood down.", next_step="corral stand-down")
                return result
            uid = lease["metadata"]["uid"]
            result = _result(cluster, tenant, lease)
            if result is None:
                _ask_for_the_end(cluster, tenant, lease)
            else:
                cluster.delete(lease, manifests.path(tenant.namespace, tenant.name))
        except (Conflict, NotFound, restorer.ConflictError, restorer.NotFoundError):
            pass  # the Job was at the same moment; the next round reads what it did
        except CannotRun:
            if time.monotonic() > deadline:
                raise
        if time.monotonic() > deadline:
            job = f"job/{manifests.name(tenant.name)}"
            step = f"To have --end restore it, delete the Job: {_kubectl(cluster, tenant, 'delete', job)}"
            raise CannotRun(f"The Job that restores {tenant.name} does not respond.", next_step=step)
        time.sleep(_ROUND_S)


def _result(cluster: Cluster, tenant: Tenant, lease: Object) -> Restored | None:
    """The result that *lease* has; None while something that was scaled is not restored."""
    counts, notes = _scales(cluster, tenant, lease), restorer.notes_of(lease)
    restored: dict[str, str] = json.loads(notes.get(restorer.RESTORED, "{}"))
    scaled: list[str] = json.loads(notes.get(restorer.SCALED, "[]"))
    if not set(scaled) <= restored.keys():
        return None
    return tuple((_workload(one, counts[one]), str(restored[one])) for one in scaled if one in counts)


def _ask_for_the_end(cluster: Cluster, tenant: Tenant, lease: Object) -> None:
    """Have the Job restore what *lease* names; restore it here where there is no Job."""
    notes = lease["metadata"]["annotations"]
    if not _has_job(cluster, tenant):
        counts = _scales(cluster, tenant, lease)
        try:  # the tenant's own pods may change the Lease
            ours = {one.scale(tenant.namespace) for one in workloads.of(cluster, tenant)}
        except Refused:
            ours = set()
        restored: dict[str, str] = json.loads(notes.get(restorer.RESTORED, "{}"))
        for one in json.loads(notes[restorer.SCALED]):
            foreign = f"its labels are not the tenant's; it had {counts[one]} replicas"
            unsure = notes.get(restorer.STATE) != restorer.DOWN
            scales = ScaleApi(cluster)
            restored[one] = (
                restorer.restore(scales, one, counts[one], may_have_written=unsure) if one in ours else foreign
            )
        notes[restorer.RESTORED] = json.dumps(restored)
    elif restorer.END not in notes:
        notes[restorer.END] = "now"
    else:
        return
    cluster.replace(manifests.path(tenant.namespace, tenant.name), lease)


def _has_job(cluster: Cluster, tenant: Tenant) -> bool:
    """Whether the Job, or a pod of it, is there to restore."""
    name = manifests.name(tenant.name)
    pods = cluster.items(f"/api/v1/namespaces/{tenant.namespace}/pods", labelSelector=f"job-name={name}")
    if any(at(pod, "status", "phase") not in ("Succeeded", "Failed") for pod in pods):
        return True
    try:
        job = cluster.get(f"/apis/batch/v1/namespaces/{tenant.namespace}/jobs/{name}")
    except NotFound:
        return False
    return not any(one["type"] in ("Complete", "Failed") for one in at(job, "status", "conditions") or ())


def _lease(cluster: Cluster, tenant: Tenant) -> Object | None:
    try:
        return cluster.get(manifests.path(tenant.namespace, tenant.name))
    except NotFound:
        return None


def _scales(cluster: Cluster, tenant: Tenant, lease: Object) -> dict[str, int]:
    """The replicas of each workload that *lease* names; Refused where it is not what corral writes."""
    try:
        return _checked_scales(lease)
    except (KeyError, ValueError, TypeError):
        name = manifests.name(tenant.name)
        raise Refused(
            f"The Lease {name} in {tenant.namespace} is not what `corral stand-down` writes.",
            next_step=f"Give its workloads their replicas, then: {_kubectl(cluster, tenant, 'delete', 'lease', name)}",
        ) from None


def _checked_scales(lease: Object) -> dict[str, int]:
    found, notes = restorer.workloads_in(lease), restorer.notes_of(lease)
    restorer.until_in(lease)
    for path, count in found.items():
        _workload(path, count)
    unknown = set(json.loads(notes.get(restorer.SCALED, "[]"))) - found.keys()
    if unknown or not isinstance(json.loads(notes.get(restorer.RESTORED, "{}")), dict):
        raise ValueError(restorer.SCALED)
    return found


def _workload(path: str, replicas: int) -> Workload:
    _, kind, name, _ = path.removeprefix(_PREFIX).split("/")
    return Workload(kind, name, replicas)


def _with_uid(lease: Object) -> Object:
    """*lease* as the owner of objects that are not kept."""
    return lease | {"metadata": lease["metadata"] | {"uid": "00000000-0000-0000-0000-000000000000"}}


def _create(cluster: Cluster, place: str, one: Object) -> None:
    """Make *one*; what the last stand-down left may be on its way out."""
    deadline = time.monotonic() + READY_LIMIT_S / 6
    while True:
        try:
            cluster.create(place, one)
        except Conflict:
            if time.monotonic() > deadline:
                raise
            time.sleep(_ROUND_S)
        else:
            return


def _wait_until_down(cluster: Cluster, tenant: Tenant, uid: str, seconds: int) -> float:
    """Wait until the Job has scaled all down; until when, by this machine's clock."""
    deadline, until = time.monotonic() + READY_LIMIT_S, 0.0
    while True:
        lease = _lease(cluster, tenant)
        if lease is None or lease["metadata"]["uid"] != uid or restorer.END in restorer.notes_of(lease):
            message = f"The stand-down of {tenant.name} was ended by another command."
            raise CannotRun(message, next_step="corral stand-down")
        if restorer.until_in(lease) and not until:
            until = time.time() + seconds
        state = restorer.notes_of(lease).get(restorer.STATE)
        if state == restorer.DOWN:
            return until
        if state:
            raise CannotRun(f"{tenant.name} is not stood down: {state}.", next_step="Run the same command again")
        if time.monotonic() > deadline:
            why = waiting_pod.reason(cluster, tenant.namespace, manifests.name(tenant.name))
            message = f"The Job that would restore {tenant.name} is not ready after {READY_LIMIT_S:.0f} s{why}."
            message += "" if until else " Nothing was scaled down."
            raise CannotRun(message, next_step=_kubectl(cluster, tenant, "get", "events"))
        time.sleep(_ROUND_S)


def _wait_until_gone(cluster: Cluster, tenant: Tenant, uid: str, until: float) -> None:
    """Wait until no pod of *tenant* is left, as long as their number falls."""
    count, limit = 0, 0.0
    while left := workloads.pods_of(cluster, tenant):
        if not count or len(left) < count:
            count, limit = len(left), time.time() + workloads.grace_s(left) + LEAST_S
        if not is_on(cluster, tenant, uid):
            raise CannotRun(f"The stand-down of {tenant.name} was ended meanwhile.", next_step="corral stand-down")
        if time.time() > min(limit, until - LEAST_S / 4):
            message = f"The pods {', '.join(map(name_of, left))} of {tenant.namespace} have not ended in time."
            raise CannotRun(message, next_step=_kubectl(cluster, tenant, "describe", "pods", "-l", tenant.selector))
        time.sleep(_ROUND_S)


def _kubectl(cluster: Cluster, tenant: Tenant, *words: str) -> str:
    return cluster.kubectl(*words, namespace=tenant.namespace)


def as_json(found: StandDown) -> dict[str, object]:
    """*found* as `--json` prints it."""
    scales = [{"kind": one.kind, "name": one.name, "replicas": one.replicas} for one in found.workloads]
    return {"tenant": found.tenant, "holder": found.holder, "until": found.until, "workloads": scales}
