"""A spike: the seats and budgets of a lock as claims of Dynamic Resource Allocation, and the driver for them.

docs/architecture/decisions has the reason why this is no product.  The driver is ``dra/main.go``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

from kubernetes import client

from corral import output
from corral.lock.lock import Lock
from tests.support.cluster import parts, pods, second_node
from tests.support.cluster.cluster import Cluster
from tests.support.cluster.place import Place
from tests.support.cluster.programs import DRA

FEATURE = "DRAConsumableCapacity"
DRIVER = "card.corral.example"
_API = ("resource.k8s.io", "v1")


def of_lock(lock: Lock, card: str) -> dict[str, int]:
    """The claims of *card* by name, each with its MiB: every group's largest seat, and every tenant's budget."""
    claims = {f"tenant-{name}": tenant.budget_mib for name, tenant in lock.cards[card].tenants.items()}
    for entry in lock.models.values():
        if entry.intent.card == card:
            name = f"group-{entry.intent.group}"
            claims[name] = max(claims.get(name, 0), entry.seat.mib)
    return claims


def offered(lock: Lock, card: str) -> int:
    """MiB of *card* that there are for claims: all but its reserve."""
    return lock.cards[card].vram_mib - lock.cards[card].reserve_mib


def claim(name: str, mib: int | None) -> dict[str, Any]:
    """The ResourceClaim *name* of *mib* MiB of a card; None: it names no number."""
    capacity = {} if mib is None else {"capacity": {"requests": {"memory": f"{mib}Mi"}}}
    devices = {"requests": [{"name": "card", "exactly": {"deviceClassName": DRIVER, **capacity}}]}
    return {"metadata": {"name": name}, "spec": {"devices": devices}}


@contextlib.contextmanager
def offering(cluster: Cluster, mib: int) -> Iterator[None]:
    """The driver on the node of *cluster*, a throwaway one with the feature, until the block ends."""
    assert cluster.folder
    place = Place(int(cluster.folder.name))
    program = DRA.build(output.info) / "dra"
    custom = client.CustomObjectsApi(cluster.api)
    selector = {"cel": {"expression": f'device.driver == "{DRIVER}"'}}
    made = {"metadata": {"name": DRIVER}, "spec": {"selectors": [selector]}}
    custom.create_cluster_custom_object(*_API, "deviceclasses", made)
    words = ["--kubeconfig", str(place.kubeconfig), "--node", cluster.node]
    words += ["--kubelet", str(parts.kubelet_folder(place)), "--mib", str(mib)]
    with contextlib.ExitStack() as running:
        second_node.start(running, place, "dra", [str(program), *words], {})
        pods.eventually(lambda: custom.list_cluster_custom_object(*_API, "resourceslices")["items"], bool)
        yield


def place_claim(cluster: Cluster, namespace: str, name: str, mib: int | None) -> str:
    """Make the claim *name*, and a pod of that name that waits with it; the name."""
    client.CustomObjectsApi(cluster.api).create_namespaced_custom_object(
        *_API, namespace, "resourceclaims", claim(name, mib)
    )
    pod = pods.pod(name, cluster.images["fetch"], "sleep", "infinity")
    pod["spec"]["resourceClaims"] = [{"name": "card", "resourceClaimName": name}]
    pod["spec"]["containers"][0]["resources"] = {"claims": [{"name": "card"}]}
    client.CoreV1Api(cluster.api).create_namespaced_pod(namespace, pod)
    return name


def consumed(cluster: Cluster, namespace: str) -> Mapping[str, str]:
    """What each claim of *namespace* has of the card, by the scheduler, e.g. ``303Mi``; only those that have any."""
    items = client.CustomObjectsApi(cluster.api).list_namespaced_custom_object(*_API, namespace, "resourceclaims")[
        "items"
    ]
    return {
        one["metadata"]["name"]: result["consumedCapacity"]["memory"]
        for one in items
        for result in one.get("status", {}).get("allocation", {}).get("devices", {}).get("results", ())
    }
