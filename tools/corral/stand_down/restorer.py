"""Restores the workloads that a stand-down has scaled to 0, when its time is over.

This file is also a program, which the Job of a stand-down runs with a stock Python: it waits, and whatever fails on
the way is tried again.  Its environment: NAMESPACE and LEASE name the Lease, whose annotations are the protocol:

    corral/workloads   [{"path": "/apis/apps/v1/namespaces/…/scale", "replicas": 2}, …]: what is restored
    corral/until       seconds since 1970 by the clock of the Job's node; set by the Job when it may restore

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
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Protocol

WORKLOADS, UNTIL = "corral/workloads", "corral/until"
ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_ROUND_S = 2.0
_LIMIT_S = 10.0


class NotFoundError(Exception):
    """There is no such object."""


class ConflictError(Exception):
    """The object was changed since it was read."""


class Api(Protocol):
    """A Kubernetes API server; both raise NotFoundError, and OSError or ValueError where it does not answer."""

    def get(self, path: str) -> dict[str, Any]:
        """The object at *path*."""

    def replace(self, path: str, one: Mapping[str, Any]) -> dict[str, Any]:
        """Put *one* in the place of the object at *path*; raises ConflictError where that was changed."""


def restore(api: Api, path: str, replicas: int) -> str:
    """Give the workload whose scale is at *path* its *replicas* again; empty, or why it keeps what it has.

    Raises:
        OSError, ValueError: the API server did not answer.
    """
    while True:
        try:
            scale = api.get(path)
            present = int((scale.get("spec") or {}).get("replicas") or 0)
            if present == replicas:
                return ""
            if present:
                return f"it was scaled to {present} meanwhile, and keeps that"
            api.replace(path, scale | {"spec": {"replicas": replicas}})
        except ConflictError:
            continue
        except NotFoundError:
            return "it was deleted meanwhile"
        return ""


def workloads_in(lease: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    """The path of the scale, and the replicas, of each workload that *lease* names."""
    for one in json.loads(_annotations(lease)[WORKLOADS]):
        yield str(one["path"]), int(one["replicas"])


def until_in(lease: Mapping[str, Any]) -> float | None:
    """When the time of *lease* is over, in seconds since 1970; None before its Job is ready to restore."""
    until = _annotations(lease).get(UNTIL)
    return float(until) if until else None


def _annotations(lease: Mapping[str, Any]) -> dict[str, str]:
    return (lease.get("metadata") or {}).get("annotations") or {}


# -- the Job's program ----------------------------------------------------------------------------------------


class InCluster:
    """The API server of this pod's cluster, at the address that Kubernetes gives every container."""

    def get(self, path: str) -> dict[str, Any]:
        """As ``Api.get``."""
        return self._call("GET", path)

    def replace(self, path: str, one: Mapping[str, Any]) -> dict[str, Any]:
        """As ``Api.replace``."""
        return self._call("PUT", path, one)

    def delete(self, path: str) -> None:
        """Delete the object at *path*."""
        self._call("DELETE", path)

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
        found = json.loads(body)
        return dict(found)


def main() -> None:
    """Wait until the time of the Lease is over, restore its workloads, delete it; where it is gone, end."""
    signal.signal(
        signal.SIGTERM, lambda *_: sys.exit(1)
    )  # process 1 ignores it otherwise; the Job then has another pod
    api = InCluster()
    path = f"/apis/coordination.k8s.io/v1/namespaces/{os.environ['NAMESPACE']}/leases/{os.environ['LEASE']}"
    try:
        deadline = _again(lambda: _ready(api, path))
        while time.monotonic() < deadline:
            time.sleep(min(_ROUND_S, max(0.0, deadline - time.monotonic())))
            _again(lambda: api.get(path))
        for scale, replicas in workloads_in(_again(lambda: api.get(path))):
            kept = _again(partial(restore, api, scale, replicas))
            _log(f"{scale}: {kept or f'{replicas} replicas again'}")
        _again(lambda: api.delete(path))
    except NotFoundError:
        _log("the stand-down was ended")


def _ready(api: InCluster, path: str) -> float:
    """When to restore, by the monotonic clock; the Lease has it from now on, and this pod may restore."""
    lease = api.get(path)
    seconds = int(lease["spec"]["leaseDurationSeconds"])
    until = until_in(lease)
    if until is None:
        for scale, _ in workloads_in(lease):
            api.replace(f"{scale}?dryRun=All", api.get(scale))
        until = time.time() + seconds
        lease["metadata"]["annotations"][UNTIL] = str(until)
        api.replace(path, lease)
    # A clock that jumped while this pod was replaced does not make the time longer.
    return time.monotonic() + min(until - time.time(), seconds)


def _again(attempt: Callable[[], Any]) -> Any:
    """What *attempt* returns, which is repeated while the API server does not answer."""
    while True:
        try:
            return attempt()
        except (OSError, ValueError, KeyError, ConflictError) as error:
            _log(f"trying again: {error!r}")
            time.sleep(_ROUND_S)


def _log(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    main()
