"""The pods of this node, by the API server: their names, and the labels that tenants of the catalog are found by.

One list for each ``FRESH_S`` at most, with the exporter's own service account (get and list of pods, nothing else).
"""

from __future__ import annotations

import http.client
import json
import os
import ssl
import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from .errors import PodsUnknown

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
LIMIT_S = 2.0
"""Seconds for one page of a list."""
FRESH_S = 15.0
"""Seconds that a list is used for."""
USABLE_S = 120.0
"""Seconds that the last list is used for while the API server does not answer: pods that are older keep their names."""
_PAGE = "200"
_MOST_PAGES = 10
_MOST_BYTES = 16 << 20
_STARTS = {"ContainerCreating", "PodInitializing", "CrashLoopBackOff"}
_STATIC_UID = "kubernetes.io/config.hash"  # a static pod's control group has this in place of the API server's uid


@dataclass(frozen=True)
class Pod:
    """One pod.

    Attributes:
        uid: the one that its control groups have.
        variables: of its containers, those that were asked for, each with its values; None: it comes from elsewhere.
        has_ended: none of its containers runs again.
        ip: its address; empty before it has one.
        waits: it is on its node and does not run yet, or not again, which free memory may change.
    """

    uid: str
    namespace: str
    name: str
    labels: Mapping[str, str]
    variables: Mapping[str, frozenset[str | None]] = field(default_factory=dict)
    has_ended: bool = False
    ip: str = ""
    waits: bool = False


class ApiServer:
    """The API server of this pod's cluster, at the address that Kubernetes gives every container.

    https://kubernetes.io/docs/tasks/run-application/access-api-from-pod/
    """

    def __init__(self, node: str, *, account: Path = ACCOUNT, variables: Collection[str] = ()) -> None:
        self._node, self._account, self._variables = node, account, frozenset(variables)

    def pods(self) -> tuple[Pod, ...]:
        """The pods of the node.

        Raises:
            PodsUnknown: the API server gave no list of them.
        """
        found: list[Pod] = []
        query = {"fieldSelector": f"spec.nodeName={self._node}", "limit": _PAGE}
        try:
            for _ in range(_MOST_PAGES):
                page = self._get(query)
                found += [_pod(one, self._variables) for one in page["items"]]
                following = (page.get("metadata") or {}).get("continue")
                if not following:
                    return tuple(found)
                query["continue"] = str(following)
        except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError, AttributeError) as error:
            raise PodsUnknown(f"The API server gave no list of the pods of {self._node}: {error!r}.") from None
        raise PodsUnknown(f"The node {self._node} has more than {_MOST_PAGES * int(_PAGE)} pods.")

    def _get(self, query: Mapping[str, str]) -> Any:
        host, port = os.environ["KUBERNETES_SERVICE_HOST"], int(os.environ["KUBERNETES_SERVICE_PORT"])
        trust = ssl.create_default_context(cafile=str(self._account / "ca.crt"))
        # Python 3.13 is stricter than the certificates of many clusters: https://github.com/kubernetes-client/python/issues/2394
        trust.verify_flags &= ~ssl.VERIFY_X509_STRICT
        token = (self._account / "token").read_text(encoding="ascii").strip()  # the kubelet replaces it every hour
        connection = http.client.HTTPSConnection(host, port, timeout=LIMIT_S, context=trust)
        try:
            headers = {"Authorization": f"Bearer {token}", "Accept": "application/json"}
            connection.request("GET", f"/api/v1/pods?{urlencode(query)}", headers=headers)
            response = connection.getresponse()
            body = response.read(_MOST_BYTES + 1)
        finally:
            connection.close()
        if response.status != 200 or len(body) > _MOST_BYTES:
            raise ValueError(f"HTTP {response.status}, {len(body)} bytes")
        return json.loads(body)


class PodNames:
    """The last list of pods, read again when it is older than ``FRESH_S``."""

    def __init__(self, read: Callable[[], tuple[Pod, ...]], *, clock: Callable[[], float] = time.monotonic) -> None:
        self._read, self._clock = read, clock
        self._lock = threading.Lock()
        self._at: float | None = None
        self._tried_at: float | None = None
        self._pods: Mapping[str, Pod] = {}
        self.problem = ""
        """Why the list is older than it should be, or unknown; empty otherwise."""

    def by_uid(self) -> Mapping[str, Pod] | None:
        """The pods by their uids; None: they are unknown, as the API server has given no list for ``USABLE_S``."""
        with self._lock:
            now = self._clock()
            if self._tried_at is None or now - self._tried_at >= FRESH_S:
                self._tried_at = now
                try:
                    self._pods, self._at, self.problem = {pod.uid: pod for pod in self._read()}, now, ""
                except PodsUnknown as error:
                    self.problem = str(error)
            return self._pods if self._at is not None and now - self._at < USABLE_S else None


@dataclass(frozen=True)
class Selector:
    """The pods of a tenant: a namespace and labels (``app=immich-server,tier=web``), as the catalog names them.

    Without a namespace they are of any, and without labels all of their namespace.
    """

    namespace: str | None
    labels: Mapping[str, str]

    @classmethod
    def parse(cls, namespace: str | None, labels: str | None) -> Selector:
        """From the catalog's text.

        Raises:
            ValueError: it is no list of ``key=value``.
        """
        pairs = [part.partition("=") for part in labels.split(",")] if labels is not None else []
        if not all(key and equals and value for key, equals, value in pairs):
            raise ValueError(f"{labels!r} is no list of labels such as app=name")
        return cls(namespace, {key: value for key, _, value in pairs})

    def selects(self, pod: Pod) -> bool:
        """Whether *pod* is one of the tenant's."""
        return self.namespace in (None, pod.namespace) and self.labels.items() <= pod.labels.items()


def tenants_of(pod: Pod, tenants: Mapping[str, Selector | None]) -> tuple[str, ...]:
    """The names of all *tenants* that select *pod*, sorted: one, none, or by a mistake in the catalog several."""
    return tuple(sorted(name for name, selector in tenants.items() if selector and selector.selects(pod)))


def _pod(listed: Mapping[str, Any], variables: frozenset[str]) -> Pod:
    metadata = listed["metadata"]
    uid = (metadata.get("annotations") or {}).get(_STATIC_UID) or metadata["uid"]
    labels = {str(key): str(value) for key, value in (metadata.get("labels") or {}).items()}
    status = listed.get("status") or {}
    has_ended = status.get("phase") in ("Succeeded", "Failed")
    values = _values(listed, variables) if variables else {}
    return Pod(
        str(uid),
        str(metadata["namespace"]),
        str(metadata["name"]),
        labels,
        values,
        has_ended,
        str(status.get("podIP") or ""),
        not metadata.get("deletionTimestamp") and not has_ended and _waits(status),
    )


def _waits(status: Mapping[str, Any]) -> bool:
    """Whether a pod does not run, for no reason (as an image that cannot be pulled) that memory is not the remedy of.

    The words are the kubelet's: pkg/kubelet/kubelet_pods.go and pkg/kubelet/container/sync_result.go of Kubernetes.
    """
    containers = [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]
    waiting = [(one.get("state") or {}).get("waiting") for one in containers]
    reasons = {str(one.get("reason")) for one in waiting if one}
    return (bool(reasons) or status.get("phase") == "Pending") and reasons <= _STARTS


def _values(listed: Mapping[str, Any], variables: frozenset[str]) -> dict[str, frozenset[str | None]]:
    """The values of *variables* in all containers; one that no container sets may come from a whole ConfigMap."""
    spec = listed.get("spec") or {}
    containers = [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]
    found: dict[str, set[str | None]] = {}
    for container in containers:
        for one in container.get("env") or ():
            if one["name"] in variables:
                value = None if one.get("valueFrom") else str(one.get("value") or "")
                found.setdefault(str(one["name"]), set()).add(value)
    elsewhere = any(container.get("envFrom") for container in containers)  # which the exporter may not read
    unknown = dict.fromkeys(variables - found.keys(), frozenset({None})) if elsewhere else {}
    return {name: frozenset(one) for name, one in found.items()} | unknown
