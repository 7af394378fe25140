"""Small pods for tests, and waiting for what becomes of them."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeVar

from kubernetes import client

from tests.support.cluster.cluster import GPU, Cluster

T = TypeVar("T")
RESTRICTED = {
    "pod": {
        "runAsNonRoot": True,
        "runAsUser": 10001,
        "runAsGroup": 10001,
        "seccompProfile": {"type": "RuntimeDefault"},
    },
    "container": {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    },
}
"""Security contexts that Pod Security *restricted* accepts."""


def leave_failed(cluster: Cluster, running: Any) -> None:
    """Beside the pod *running*, one of the same owner that has failed, as after an eviction: no kubelet touches it."""
    core, namespace = client.CoreV1Api(cluster.api), running.metadata.namespace
    name = f"{running.metadata.name[:50]}-failed"
    made = pod(name, running.spec.containers[0].image, "true")
    made["spec"]["schedulerName"] = "none"
    core.create_namespaced_pod(namespace, made)
    core.patch_namespaced_pod_status(name, namespace, {"status": {"phase": "Failed", "reason": "Evicted"}})
    owners = cluster.api.sanitize_for_serialization(running.metadata.owner_references)
    labels = running.metadata.labels  # last: a ReplicaSet deletes a pod too many that has not failed
    core.patch_namespaced_pod(name, namespace, {"metadata": {"labels": labels, "ownerReferences": owners}})


def pod(
    name: str,
    image: str,
    *command: str,
    claim: str | None = None,
    read_only: bool = False,
    gpus: int = 0,
    runtime_class: str | None = None,
    labels: dict[str, str] | None = None,
) -> dict[str, Any]:
    """A pod under Pod Security *restricted* that runs *command* once; *claim* is mounted at /store."""
    volumes = [{"name": "store", "persistentVolumeClaim": {"claimName": claim}}] if claim else []
    mounts = [{"name": "store", "mountPath": "/store", "readOnly": read_only}] if claim else []
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": labels or {}},
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 0,
            "automountServiceAccountToken": False,
            "securityContext": dict(RESTRICTED["pod"]),
            "volumes": volumes,
            **({"runtimeClassName": runtime_class} if runtime_class else {}),
            "containers": [
                {
                    "name": "main",
                    "image": image,
                    "command": list(command),
                    "volumeMounts": mounts,
                    "securityContext": dict(RESTRICTED["container"]),
                    **({"resources": {"limits": {GPU: str(gpus)}}} if gpus else {}),
                }
            ],
        },
    }


def run(cluster: Cluster, namespace: str, wanted: dict[str, Any]) -> tuple[str, str]:
    """Run a pod to its end: its phase (Succeeded or Failed) and what it printed."""
    core = client.CoreV1Api(cluster.api)
    core.create_namespaced_pod(namespace, wanted)
    name = wanted["metadata"]["name"]
    phase = eventually(
        lambda: core.read_namespaced_pod(name, namespace).status.phase, lambda phase: phase in {"Succeeded", "Failed"}
    )
    return phase, core.read_namespaced_pod_log(name, namespace)


def claim(cluster: Cluster, namespace: str, source: dict[str, Any], mode: str, *, node: str | None = None) -> str:
    """A volume of *source* and a claim bound to it by name; the claim's name, when it is bound.

    A pod that is made before that may stay Pending for five minutes: the event has the scheduler try it again at once,
    and it may still read the claim as it was (its cache is a second handler of the same event).
    """
    core = client.CoreV1Api(cluster.api)
    volume = f"{namespace}-store"
    size, modes = {"storage": "1Gi"}, [mode]
    affinity = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}]}
    core.create_persistent_volume(
        {
            "metadata": {"name": volume},
            "spec": {
                "capacity": size,
                "accessModes": modes,
                "storageClassName": "",
                "persistentVolumeReclaimPolicy": "Retain",
                **({"nodeAffinity": {"required": {"nodeSelectorTerms": [affinity]}}} if node else {}),
                **source,
            },
        }
    )
    core.create_namespaced_persistent_volume_claim(
        namespace,
        {
            "metadata": {"name": "store"},
            "spec": {
                "accessModes": modes,
                "resources": {"requests": size},
                "volumeName": volume,
                "storageClassName": "",
            },
        },
    )
    eventually(
        lambda: core.read_namespaced_persistent_volume_claim("store", namespace).status.phase, {"Bound"}.__contains__
    )
    return "store"


def eventually(read: Callable[[], T], good: Callable[[T], Any], limit_s: float = 60.0) -> T:
    """What *read* returns as soon as it is *good*.

    Raises:
        AssertionError: it was not within *limit_s*; the message holds the last value.
    """
    deadline = time.monotonic() + limit_s
    while True:
        value = read()
        if good(value):
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"after {limit_s:.0f} s still: {value}")
        time.sleep(0.1)


def leave(cluster: Cluster, namespace: str) -> None:
    """Have everything in *namespace* removed, and the volumes that are reserved for it; does not wait for it."""
    core = client.CoreV1Api(cluster.api)
    try:
        core.delete_namespace(namespace)
    except client.ApiException as error:
        if error.status not in (404, 409):  # it is gone; it is on its way out
            raise
        return
    core.delete_collection_namespaced_pod(namespace, grace_period_seconds=0)
    for volume in core.list_persistent_volume().items:
        if volume.spec.claim_ref and volume.spec.claim_ref.namespace == namespace:
            core.delete_persistent_volume(volume.metadata.name)


def wait_until_left(cluster: Cluster, namespace: str) -> None:
    """Return when *namespace* is not on its way out, whether or not it is there."""
    core = client.CoreV1Api(cluster.api)
    eventually(
        lambda: [one.status.phase for one in core.list_namespace().items if one.metadata.name == namespace],
        lambda phases: phases != ["Terminating"],
    )
