"""The Job of a stand-down: scales the workloads of a tenant to 0, and restores them when the time is over.

A stock Python runs this file in the cluster.  It alone scales, so that nothing is scaled down after it was restored;
whatever fails on the way is tried again.  Its environment names the Lease (NAMESPACE, LEASE, UID), whose annotations
are the protocol:

    corral/workloads   [{"path": "/apis/apps/v1/namespaces/…/scale", "replicas": 2}, …]: what is scaled
    corral/until       seconds since 1970 by the clock of the Job's node; set before anything is scaled
    corral/scaled      [PATH, …]: set before the first attempt to scale one down; only these are restored
    corral/state       "down" when all have 0 replicas; else why not, and they are restored
    corral/end         set by another: restore now
    corral/restored    {PATH: "" or why it keeps what it has, …}; a moment later the Lease is gone

A workload is restored only if it still has the 0 replicas of the stand-down: another number was set by another client.
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import ssl
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, Protocol

WORKLOADS, UNTIL, SCALED, STATE, END, RESTORED = (
    f"corral/{name}" for name in ("workloads", "until", "scaled", "state", "end", "restored")
)
DOWN = "down"
ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_ROUND_S = 1.0
_LIMIT_S = 10.0
_READ_S = 5.0  # for the corral that waits for the result
_FRESH_S = 900.0


class NotFoundError(Exception):
    """There is no such object."""


class ConflictError(Exception):
    """The object was changed since it was read."""


class EndedError(Exception):
    """The Lease is gone: the stand-down was ended."""


class Api(Protocol):
    """A Kubernetes API server; each raises NotFoundError, and another exception where there is no answer."""

    def get(self, path: str) -> dict[str, Any]:
        """The object at *path*."""

    def replace(self, path: str, one: Mapping[str, Any]) -> dict[str, Any]:
        """Put *one* in the place of the object at *path*; raises ConflictError where that was changed."""


def restore(api: Api, path: str, replicas: int, *, may_have_written: bool = False) -> str:
    """Give the workload whose scale is at *path* its *replicas* again; empty, or why it keeps what it has.

    Args:
        api: of the cluster.
        path: as ``workloads_in`` has it.
        replicas: those that it had.
        may_have_written: an earlier attempt got no answer.
    """
    try:
        scale = api.get(path)
        present = int((scale.get("spec") or {}).get("replicas") or 0)
        if not present:
            api.replace(path, scale | {"spec": {"replicas": replicas}})
            return ""
    except NotFoundError:
        return "it was deleted meanwhile"
    if present != replicas:
        return f"it was scaled to {present} meanwhile, and keeps that"
    return "" if may_have_written else f"it was scaled to {replicas} again before the end"


def workloads_in(lease: Mapping[str, Any]) -> dict[str, int]:
    """The replicas of each workload that *lease* names, by the path of its scale."""
    return {str(one["path"]): int(one["replicas"]) for one in json.loads(notes_of(lease)[WORKLOADS])}


def until_in(lease: Mapping[str, Any]) -> float | None:
    """When the time of *lease* is over, in seconds since 1970; None before its Job is ready."""
    until = notes_of(lease).get(UNTIL)
    return float(until) if until else None


def notes_of(lease: Mapping[str, Any]) -> dict[str, str]:
    """The annotations of *lease*."""
    return (lease.get("metadata") or {}).get("annotations") or {}


# -- the Job's program ----------------------------------------------------------------------------------------


class Lease:
    """The Lease of this Job; another one of that name is none."""

    def __init__(self, api: InCluster) -> None:
        namespace, name = os.environ["NAMESPACE"], os.environ["LEASE"]
        self._api, self._uid = api, os.environ["UID"]
        self._path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{name}"

    def read(self) -> dict[str, Any]:
        """The object; raises EndedError when the stand-down was ended."""
        try:
            found = self._api.get(self._path)
        except NotFoundError:
            raise EndedError from None
        if found["metadata"]["uid"] != self._uid:
            raise EndedError
        return found

    def note(self, **values: object) -> dict[str, Any]:
        """Set the annotations ``corral/NAME`` of *values*; the object.  Raises as ``read``."""
        found = self.read()
        found["metadata"].setdefault("annotations", {})
        for name, value in values.items():
            found["metadata"]["annotations"][f"corral/{name}"] = value if isinstance(value, str) else json.dumps(value)
        try:
            return self._api.replace(self._path, found)
        except NotFoundError:
            raise EndedError from None

    def delete(self, found: Mapping[str, Any]) -> None:
        """Delete it, and with it all that it owns; raises ConflictError when it was changed since it was *found*."""
        try:
            self._api.delete(self._path, found)
        except NotFoundError:
            raise EndedError from None


class InCluster:
    """The API server of this pod's cluster, at the address that Kubernetes gives every container."""

    def get(self, path: str) -> dict[str, Any]:
        """As ``Api.get``."""
        return self._call("GET", path)

    def replace(self, path: str, one: Mapping[str, Any]) -> dict[str, Any]:
        """As ``Api.replace``."""
        return self._call("PUT", path, one)

    def delete(self, path: str, one: Mapping[str, Any]) -> None:
        """Delete *one*, which was read at *path*; raises ConflictError when it was changed since."""
        same = {key: one["metadata"][key] for key in ("uid", "resourceVersion")}
        self._call("DELETE", path, {"preconditions": same})

    def _call(self, method: str, path: str, one: Mapping[str, Any] | None = None) -> dict[str, Any]:
        host, port = os.environ["KUBERNETES_SERVICE_HOST"], int(os.environ["KUBERNETES_SERVICE_PORT"])
        trusted = ssl.create_default_context(cafile=str(ACCOUNT / "ca.crt"))
        # As in corral.exporter.pods: Python 3.13 is stricter than the certificates of many clusters.
        trusted.verify_flags &= ~ssl.VERIFY_X509_STRICT
        token = (ACCOUNT / "token").read_text().strip()  # read each time: Kubernetes replaces it
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        connection = http.client.HTTPSConnection(host, port, timeout=_LIMIT_S, context=trusted)
        try:
            connection.request(method, path, None if one is None else json.dumps(one), headers)
            answer = connection.getresponse()
            body = answer.read()
        except http.client.HTTPException as error:
            raise OSError(f"{method} {path}: {error!r}") from None
        finally:
            connection.close()
        if answer.status == http.HTTPStatus.NOT_FOUND:
            raise NotFoundError(path)
        if answer.status == http.HTTPStatus.CONFLICT:
            raise ConflictError(path)
        if answer.status not in (200, 201, 202):
            raise OSError(f"{method} {path}: {answer.status} {body[:200]!r}")
        return dict(json.loads(body))


def main() -> None:
    """Scale down, wait until the time is over or the Lease asks for the end, restore; end where the Lease is gone."""
    signal.signal(
        signal.SIGTERM, lambda *_: sys.exit(1)
    )  # process 1 ignores it otherwise; the Job then has another pod
    api = InCluster()
    lease = Lease(api)
    try:
        deadline = _again(lambda: _ready(api, lease))
        if time.monotonic() < deadline:
            _again(lambda: _scale_down(api, lease, deadline))
        while time.monotonic() < deadline:
            found = notes_of(_again(lease.read))
            if found.keys() & {END, RESTORED} or found.get(STATE, DOWN) != DOWN:
                break
            time.sleep(min(_ROUND_S, max(0.0, deadline - time.monotonic())))
        _restore(api, lease)
    except EndedError:
        _log("the stand-down was ended")


def _ready(api: InCluster, lease: Lease) -> float:
    """When to restore, by the monotonic clock; the Lease has it from now on, and this pod may scale."""
    found = lease.read()
    seconds, until = float(found["spec"]["leaseDurationSeconds"]), until_in(found)
    if until is None:
        begun = datetime.fromisoformat(found["spec"]["acquireTime"]).timestamp()
        if time.time() > begun + _FRESH_S:  # the command that asked for it has given up long ago
            lease.delete(found)
            raise EndedError
        for path in workloads_in(found):
            with suppress(NotFoundError):  # noted when it is scaled
                api.replace(f"{path}?dryRun=All", api.get(path))
        until = time.time() + seconds
        lease.note(until=str(until))
    return time.monotonic() + min(until - time.time(), seconds)  # a clock may have jumped while this pod was replaced


def _scale_down(api: InCluster, lease: Lease, deadline: float) -> None:
    """Give each workload 0 replicas, and note it; where another client has changed one, note that instead."""
    found = lease.read()
    scaled = json.loads(notes_of(found).get(SCALED, "[]"))
    for path, replicas in workloads_in(found).items():
        if notes_of(found).keys() & {STATE, END, RESTORED} or time.monotonic() > deadline:
            return
        try:
            scale = api.get(path)
            present = int((scale.get("spec") or {}).get("replicas") or 0)
            if present != replicas and (present or path not in scaled):
                lease.note(state=f"{path} was scaled to {present} by another client at the same time")
                return
            if path not in scaled:
                scaled.append(path)
                found = lease.note(scaled=scaled)
                if END in notes_of(found):
                    return
            if present:
                api.replace(path, scale | {"spec": {"replicas": 0}})
                _log(f"{path}: 0 replicas")
        except NotFoundError:
            lease.note(state=f"{path} was deleted at the same time")
            return
        try:
            found = _again(lease.read)
        except EndedError:  # while this pod was held up
            _again(partial(restore, api, path, replicas))
            raise
    lease.note(state=DOWN)


def _restore(api: InCluster, lease: Lease) -> None:
    """Restore what was scaled, each as soon as that is possible, and note it; then delete the Lease."""
    tried: set[str] = set()
    is_read = False
    while True:
        found = _again(lease.read)
        notes, wanted = notes_of(found), workloads_in(found)
        restored: dict[str, str] = json.loads(notes.get(RESTORED, "{}"))
        left = [path for path in json.loads(notes.get(SCALED, "[]")) if path not in restored]
        if not left:
            if not is_read and (restored or notes.get(STATE, DOWN) != DOWN):
                is_read = True
                time.sleep(_READ_S)
                continue
            with suppress(ConflictError):
                _again(partial(lease.delete, found), but=(ConflictError,))
                return
        for path in left:
            try:
                unsure = path in tried or notes.get(STATE) != DOWN
                restored[path] = restore(api, path, wanted[path], may_have_written=unsure)
                _log(f"{path}: {restored[path] or f'{wanted[path]} replicas again'}")
            except (OSError, ValueError, ConflictError) as error:
                tried.add(path)
                _log(f"{path}: trying again: {error!r}")
        if left:
            _again(partial(lease.note, restored=restored))
            if not restored.keys() >= set(left):
                time.sleep(_ROUND_S)


def _again(attempt: Callable[[], Any], *, but: tuple[type[Exception], ...] = ()) -> Any:
    """What *attempt* returns, which is repeated while the API server does not answer; exceptions of *but* pass."""
    while True:
        try:
            return attempt()
        except but:
            raise
        except (OSError, ValueError, KeyError, ConflictError) as error:
            _log(f"trying again: {error!r}")
            time.sleep(_ROUND_S)


def _log(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    main()
