"""Objects of the cluster that a plan would make although they are there: the state was lost, or is behind.

Terraform takes them into its state by ``import`` blocks, and the same apply changes what differs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from corral.cluster.client import Cluster, NotFound
from corral.cluster.contents import kind_of
from corral.errors import Refused

OURS: Final = ("app.kubernetes.io/part-of", "corral")
"""The label of every object of the stack, and its value."""

PATHS: Final[Mapping[str, tuple[str, str]]] = {
    # type: (the API's prefix, the plural)
    "kubernetes_cluster_role_binding_v1": ("/apis/rbac.authorization.k8s.io/v1", "clusterrolebindings"),
    "kubernetes_cluster_role_v1": ("/apis/rbac.authorization.k8s.io/v1", "clusterroles"),
    "kubernetes_config_map_v1": ("/api/v1", "configmaps"),
    "kubernetes_daemon_set_v1": ("/apis/apps/v1", "daemonsets"),
    "kubernetes_deployment_v1": ("/apis/apps/v1", "deployments"),
    "kubernetes_ingress_v1": ("/apis/networking.k8s.io/v1", "ingresses"),
    "kubernetes_job_v1": ("/apis/batch/v1", "jobs"),
    "kubernetes_namespace_v1": ("/api/v1", "namespaces"),
    "kubernetes_network_policy_v1": ("/apis/networking.k8s.io/v1", "networkpolicies"),
    "kubernetes_persistent_volume_claim_v1": ("/api/v1", "persistentvolumeclaims"),
    "kubernetes_persistent_volume_v1": ("/api/v1", "persistentvolumes"),
    "kubernetes_pod_disruption_budget_v1": ("/apis/policy/v1", "poddisruptionbudgets"),
    "kubernetes_service_account_v1": ("/api/v1", "serviceaccounts"),
    "kubernetes_service_v1": ("/api/v1", "services"),
}
"""Every type of object that the stack makes, but for labels of an object that it does not own."""


@dataclass(frozen=True)
class Planned:
    """An object that a plan makes or removes.

    Attributes:
        address: of its resource.
        type: of its resource.
        namespace: empty for an object of the whole cluster.
        name: its name.
    """

    address: str
    type: str
    namespace: str
    name: str

    @property
    def id(self) -> str:
        """As an ``import`` block names it."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name

    @property
    def kind(self) -> str:
        """As a ``Member`` of its namespace."""
        return kind_of(*PATHS[self.type])

    @property
    def path(self) -> str:
        """Of the object at the API server."""
        prefix, plural = PATHS[self.type]
        return f"{prefix}{f'/namespaces/{self.namespace}' if self.namespace else ''}/{plural}/{self.name}"

    def __str__(self) -> str:
        kind = self.type.removeprefix("kubernetes_").removesuffix("_v1").replace("_", " ")
        return f"{kind} {self.id}"


def to_make(document: Mapping[str, Any]) -> Iterator[Planned]:
    """The objects that the plan *document* (``terraform show -json``) makes, whose names it knows."""
    return _with(document, "create", "after")


def to_remove(document: Mapping[str, Any]) -> Iterator[Planned]:
    """The objects that the plan *document* (``terraform show -json``) removes for good."""
    return _with(document, "delete", "before")


def _with(document: Mapping[str, Any], action: str, side: str) -> Iterator[Planned]:
    for one in document.get("resource_changes", ()):
        if one["type"] not in PATHS or one["change"]["actions"] != [action]:
            continue
        metadata = (one["change"].get(side) or {}).get("metadata") or [{}]
        if name := metadata[0].get("name"):
            yield Planned(one["address"], one["type"], metadata[0].get("namespace") or "", name)


def existing(cluster: Cluster, planned: Sequence[Planned]) -> list[Planned]:
    """Those of *planned* that *cluster* has, all of them corral's.

    Raises:
        Refused: one is not: without corral's label it has another owner.
        Forbidden, CannotRun: the cluster does not answer, or its user may not read one.
    """
    found: list[Planned] = []
    foreign: list[Planned] = []
    for one in planned:
        try:
            labels = cluster.get(one.path)["metadata"].get("labels") or {}
        except NotFound:
            continue
        (found if labels.get(OURS[0]) == OURS[1] else foreign).append(one)
    if foreign:
        names = ", ".join(map(str, foreign))
        raise Refused(
            f"Without the label {'='.join(OURS)}, so not corral's: {names}. Nothing was adopted.",
            next_step="Give the stack another namespace, or remove or rename them",
        )
    return found


def blocks(adopted: Sequence[Planned]) -> str:
    """Terraform's ``import`` blocks for *adopted*."""
    return "\n".join(f'import {{\n  to = {one.address}\n  id = "{one.id}"\n}}\n' for one in adopted)
