"""The objects of a stand-down: the Lease of the tenant, and the Job that restores, with the rights for just that."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from corral.cluster.client import Object
from corral.stand_down import restorer
from corral.stand_down.workloads import KINDS, Tenant, Workload

LABELS = {"app.kubernetes.io/name": "corral-stand-down", "app.kubernetes.io/managed-by": "corral"}
_ATTEMPTS = 1000  # of the Job's pod, which itself tries again whatever fails
_USER = 65534


def name(tenant: str) -> str:
    """The name of all objects for *tenant*."""
    return f"corral-stand-down-{tenant}"


def path(namespace: str, tenant: str) -> str:
    """The path of the Lease of *tenant*."""
    return f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{name(tenant)}"


def lease(tenant: Tenant, workloads: Sequence[Workload], *, seconds: int, holder: str) -> Object:
    """The Lease, which contains what is restored."""
    scales = [{"path": one.scale(tenant.namespace), "replicas": one.replicas} for one in workloads]
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": _metadata(tenant) | {"annotations": {restorer.WORKLOADS: json.dumps(scales)}},
        "spec": {
            "holderIdentity": holder,
            "acquireTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            "leaseDurationSeconds": seconds,
        },
    }


def owned(
    tenant: Tenant, workloads: Sequence[Workload], *, image: str, owner: Object, tolerations: Sequence[Object]
) -> list[tuple[str, Object]]:
    """What the Lease *owner* owns, each with the path of its list, in the order in which it is made.

    The Job's pod has *tolerations*: the only node may be reserved for GPU work.

    Kubernetes deletes all of it with the Lease.  https://kubernetes.io/docs/concepts/architecture/garbage-collection/
    """
    core, rbac = "/api/v1", "/apis/rbac.authorization.k8s.io/v1"
    reference = {key: owner[key] for key in ("apiVersion", "kind")}
    reference |= {key: owner["metadata"][key] for key in ("name", "uid")}
    metadata = _metadata(tenant) | {"ownerReferences": [reference]}
    account = {"kind": "ServiceAccount", "name": name(tenant.name), "namespace": tenant.namespace}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name(tenant.name)}
    objects: tuple[tuple[str, str, str, Object], ...] = (
        (f"{core}/namespaces/{{}}/serviceaccounts", "v1", "ServiceAccount", {}),
        (f"{rbac}/namespaces/{{}}/roles", "rbac.authorization.k8s.io/v1", "Role", {"rules": _rules(tenant, workloads)}),
        (
            f"{rbac}/namespaces/{{}}/rolebindings",
            "rbac.authorization.k8s.io/v1",
            "RoleBinding",
            {"subjects": [account], "roleRef": role},
        ),
        (
            "/apis/batch/v1/namespaces/{}/jobs",
            "batch/v1",
            "Job",
            {"spec": _job(tenant, image, str(owner["metadata"]["uid"]), tolerations)},
        ),
    )
    return [
        (place.format(tenant.namespace), {"apiVersion": version, "kind": kind, "metadata": metadata} | rest)
        for place, version, kind, rest in objects
    ]


def _metadata(tenant: Tenant) -> Object:
    return {"name": name(tenant.name), "namespace": tenant.namespace, "labels": LABELS}


def _rules(tenant: Tenant, workloads: Sequence[Workload]) -> list[Object]:
    """The rights of the Job: the scale of these workloads, and its own Lease."""
    scales = [
        {
            "apiGroups": ["apps"],
            "resources": [f"{kind}/scale"],
            "resourceNames": names,
            "verbs": ["get", "update"],
        }
        for kind in KINDS
        if (names := [one.name for one in workloads if one.kind == kind])
    ]
    own = {
        "apiGroups": ["coordination.k8s.io"],
        "resources": ["leases"],
        "resourceNames": [name(tenant.name)],
        "verbs": ["get", "update", "delete"],
    }
    return [*scales, own]


def _job(tenant: Tenant, image: str, uid: str, tolerations: Sequence[Object]) -> Object:
    container = {
        "name": "restore",
        "image": image,
        "command": ["python3", "-c", Path(restorer.__file__).read_text(encoding="utf-8")],
        "env": [
            {"name": "NAMESPACE", "value": tenant.namespace},
            {"name": "LEASE", "value": name(tenant.name)},
            {"name": "UID", "value": uid},
        ],
        "resources": {"requests": {"cpu": "5m", "memory": "32Mi"}, "limits": {"cpu": "100m", "memory": "96Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
    pod = {
        "serviceAccountName": name(tenant.name),
        "restartPolicy": "OnFailure",
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 5,
        "tolerations": list(tolerations),
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": _USER,
            "runAsGroup": _USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [container],
    }
    return {
        "backoffLimit": _ATTEMPTS,
        "podReplacementPolicy": "Failed",
        "template": {"metadata": {"labels": LABELS}, "spec": pod},
    }
