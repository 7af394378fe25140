"""The workloads of a tenant, and their scale."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from corral.cluster.client import Cluster, Conflict, NotFound, Object
from corral.cluster.snapshot import at, name_of
from corral.errors import Refused
from corral.exporter.pods import Selector
from corral.stand_down import restorer

KINDS = ("deployments", "statefulsets")
"""The kinds that have a scale; a DaemonSet has none."""
_OWNERS = ("ReplicaSet", "StatefulSet")
_OF_EVERY_POD = "node.kubernetes.io/"


@dataclass(frozen=True)
class Tenant:
    """A tenant whose pods the catalog names.

    Attributes:
        name: in the card's file.
        namespace: of its pods.
        selector: their labels, as ``key=value`` with commas between them.
    """

    name: str
    namespace: str
    selector: str


@dataclass(frozen=True)
class Workload:
    """One workload: its kind in the plural, its name, and its replicas."""

    kind: str
    name: str
    replicas: int

    def scale(self, namespace: str) -> str:
        """The path of its scale in *namespace*."""
        return f"/apis/apps/v1/namespaces/{namespace}/{self.kind}/{self.name}/scale"

    def __str__(self) -> str:
        return f"{self.kind.removesuffix('s')} {self.name}"


class ScaleApi:
    """*cluster* as ``restorer.Api``."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def get(self, path: str) -> dict[str, Any]:
        """As ``restorer.Api.get``; CannotRun and Refused pass."""
        try:
            return self._cluster.get(path)
        except NotFound:
            raise restorer.NotFoundError(path) from None

    def replace(self, path: str, one: Mapping[str, Any]) -> dict[str, Any]:
        """As ``restorer.Api.replace``; CannotRun and Refused pass."""
        try:
            return self._cluster.replace(path, dict(one))
        except NotFound:
            raise restorer.NotFoundError(path) from None
        except Conflict:
            raise restorer.ConflictError(path) from None


def of(cluster: Cluster, tenant: Tenant) -> tuple[Workload, ...]:
    """The workloads whose pods have the labels of *tenant*.

    Raises:
        Refused: there is none, or the user may not list them.
        CannotRun: the API server does not respond.
    """
    found: list[Workload] = []
    wanted = Selector.parse(tenant.namespace, tenant.selector).labels
    for kind in KINDS:
        found += [
            Workload(kind, name_of(one), int(at(one, "spec", "replicas") or 0))
            for one in cluster.items(f"/apis/apps/v1/namespaces/{tenant.namespace}/{kind}")
            if wanted.items() <= (at(one, "spec", "template", "metadata", "labels") or {}).items()
        ]
    if not found:
        message = f"No Deployment or StatefulSet of {tenant.namespace} has pods with {tenant.selector}"
        raise Refused(
            f"{message}, the labels of {tenant.name}; only those can be stood down.",
            next_step=cluster.kubectl("get", "pods", "-l", tenant.selector, namespace=tenant.namespace),
        )
    return tuple(sorted(found, key=str))


def pods_of(cluster: Cluster, tenant: Tenant) -> tuple[Object, ...]:
    """The pods with the labels of *tenant* that still run or may run, and that end when their workload is scaled."""
    pods = cluster.items(f"/api/v1/namespaces/{tenant.namespace}/pods", labelSelector=tenant.selector)
    return tuple(
        one
        for one in pods
        if at(one, "status", "phase") not in ("Succeeded", "Failed")
        and any(owner["kind"] in _OWNERS for owner in at(one, "metadata", "ownerReferences") or ())
    )


def grace_s(pods: Iterable[Object]) -> int:
    """The seconds that the slowest of *pods* may take to end."""
    return max((int(at(pod, "spec", "terminationGracePeriodSeconds") or 0) for pod in pods), default=0)


def tolerations(pods: Iterable[Object]) -> list[Object]:
    """What *pods* tolerate, so that another pod can be where they are; without what Kubernetes gives every pod."""
    found: list[Object] = []
    for pod in pods:
        for one in at(pod, "spec", "tolerations") or ():
            if not str(one.get("key") or "").startswith(_OF_EVERY_POD) and one not in found:
                found.append(one)
    return found
