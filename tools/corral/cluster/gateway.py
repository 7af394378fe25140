"""The keys of the stack's gateway, LiteLLM: a Secret that its pod alone reads, at its start."""

from __future__ import annotations

from corral import keys
from corral.cluster import secrets
from corral.cluster.client import Cluster, NotFound
from corral.cluster.keys import ClusterKeys

DEPLOYMENT = "gateway"
SECRET = "corral-gateway"  # noqa: S105 - its name
MASTER, DOOR, SALT = "master", "door", "salt"
"""The entries: LiteLLM's master key; its key for the door; what it encrypts its database with, which must stay."""


def give_keys(cluster: Cluster, namespace: str) -> None:
    """Make what the gateway in *namespace* lacks of its keys; without a gateway there, nothing.

    Raises:
        Refused: the user may not read the Deployment, or not read or change a Secret.
        CannotRun: the API server does not respond, or another command changed a Secret at the same time.
    """
    try:
        cluster.get(f"/apis/apps/v1/namespaces/{namespace}/deployments/{DEPLOYMENT}")
    except NotFound:
        return
    store = ClusterKeys(cluster, namespace)
    with store.exclusive_lock():
        before = secrets.read(cluster, namespace, SECRET)
        entries = {name: secrets.entry(before, name) for name in (MASTER, DOOR, SALT)}
        found = store.read()
        if not found.has(keys.GATEWAY, entries[DOOR]):
            entries[DOOR] = keys.generate()
            store.write(found.replaced(keys.GATEWAY, [entries[DOOR]]))
    # LiteLLM takes only a master key that begins so.
    entries[MASTER] = entries[MASTER] or f"sk-{keys.generate()}"
    entries[SALT] = entries[SALT] or f"sk-{keys.generate()}"
    secrets.write(cluster, namespace, SECRET, entries, before=before)
