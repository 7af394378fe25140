"""Objects of the cluster that a plan would make although they are there: the state was lost, or is behind.

Terraform takes them into its state by ``import`` blocks, and the same apply changes what differs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from corral.cluster.client import Cluster, NotFound, Object
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
_OF_EVERY_STACK: Final = (
    ("kubernetes_deployment_v1", "llama-swap"),
    ("kubernetes_job_v1", "download-models"),
    ("kubernetes_service_v1", "llama-swap"),
)

PROVIDERS_OWN: Final = frozenset(
    {
        *("id", "timeouts", "wait_for_completion", "wait_for_default_service_account", "wait_for_load_balancer"),
        *("wait_for_rollout", "wait_until_bound", "default_secret_name"),
        "allocate_load_balancer_node_ports",  # sent with a Service of type LoadBalancer alone, and none is made
    }
)
"""Attributes that the provider acts on, and does not send."""


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


def existing(cluster: Cluster, planned: Sequence[Planned]) -> dict[Planned, Object]:
    """Those of *planned* that *cluster* has, all of them corral's, each with its metadata.

    Raises:
        Refused: one is not: without corral's label it has another owner.
        Forbidden, CannotRun: the cluster does not answer, or its user may not read one.
    """
    found: dict[Planned, Object] = {}
    for one in planned:
        with suppress(NotFound):
            found[one] = cluster.get(one.path)["metadata"]
    foreign = [one for one, metadata in found.items() if not _is_ours(metadata)]
    if foreign:
        names = ", ".join(map(str, foreign))
        raise Refused(
            f"Without the label {'='.join(OURS)}, so not corral's: {names}. Nothing was adopted.",
            next_step="Give the stack another namespace, or remove or rename them",
        )
    return found


def left_behind(cluster: Cluster, namespace: str) -> list[Planned]:
    """The objects of a stack in *namespace* that every stack has, where they are corral's.

    Raises:
        Refused, CannotRun: as ``existing``.
    """
    found = []
    for kind, name in _OF_EVERY_STACK:
        one = Planned("", kind, namespace, name)
        with suppress(NotFound):
            if _is_ours(cluster.get(one.path)["metadata"]):
                found.append(one)
    return found


def _is_ours(metadata: Object) -> bool:
    return (metadata.get("labels") or {}).get(OURS[0]) == OURS[1]


def without_artefacts(document: Mapping[str, Any], adopted: Mapping[Planned, Object]) -> dict[str, Any]:
    """The plan *document* that imports *adopted*, with only those changes that the cluster will have.

    The provider reads no labels and annotations of an object that was not in the state (it ignores those of others),
    and none of its own attributes, which no object has.  What is in the state alone is left out.
    """
    read = {one.address: metadata for one, metadata in adopted.items()}
    return {
        **document,
        "resource_changes": [
            _as_read(one, read[one["address"]]) if one["address"] in read else one
            for one in document["resource_changes"]
            if one["type"] != "terraform_data"
        ],
    }


def _as_read(one: Mapping[str, Any], metadata: Object) -> dict[str, Any]:
    change = one["change"]
    before, after = change["before"], change["after"]
    [own], [planned] = before["metadata"], after["metadata"]
    shown = {
        name: {key: value for key, value in (metadata.get(name) or {}).items() if key in wanted} if wanted else wanted
        for name, wanted in ((name, planned.get(name)) for name in ("labels", "annotations"))
    }
    before = before | {"metadata": [own | shown]} | {key: after[key] for key in after if key in PROVIDERS_OWN}
    actions = ["no-op"] if before == after else change["actions"]
    return {**one, "change": {**change, "before": before, "actions": actions}}


def blocks(adopted: Iterable[Planned]) -> str:
    """Terraform's ``import`` blocks for *adopted*."""
    return "\n".join(f'import {{\n  to = {one.address}\n  id = "{one.id}"\n}}\n' for one in adopted)
