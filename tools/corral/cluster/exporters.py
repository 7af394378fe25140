"""The exporters of a cluster's cards, and the keys with which they read llama-swap.

A key is in a Secret of the exporter's namespace, which its pod alone mounts; the guard has its hash, as of any key.
"""

from __future__ import annotations

import base64
import binascii
from contextlib import suppress

from corral import keys
from corral.cluster.client import Cluster, Forbidden, NotFound, Object
from corral.cluster.keys import LABELS, ClusterKeys
from corral.cluster.snapshot import NAME, at, labels, name_of

SERVICE = "card-exporter"
SECRET = "corral-monitor"  # noqa: S105 - its name
_INSTANCE, _ENTRY = "app.kubernetes.io/instance", "key"


def find(cluster: Cluster, *, of: str | None = None) -> tuple[str, ...]:
    """The namespaces with an exporter, sorted; *of*: only of those that know the engines of that namespace.

    They have a label that only those who make namespaces can set: a tenant cannot pass off a Service of its own.

    Raises:
        Refused: the user may not list namespaces.
        CannotRun: the API server does not respond.
    """
    namespaces = cluster.items("/api/v1/namespaces", labelSelector=f"{NAME}={SERVICE}")
    return tuple(sorted(name_of(one) for one in namespaces if of is None or labels(one).get(_INSTANCE) == of))


def give_keys(cluster: Cluster, namespace: str) -> None:
    """Give each exporter for the llama-swap in *namespace* a key, where it has none that is valid.

    A user who may not list namespaces has no exporter here.

    Raises:
        Refused: the user may not read or change a Secret.
        CannotRun: the API server does not respond, or another command changed a Secret at the same time.
    """
    try:
        places = find(cluster, of=namespace)
    except Forbidden:
        return
    if not places:
        return
    store = ClusterKeys(cluster, namespace)
    with store.exclusive_lock():
        found = store.read()
        secrets = {place: _secret(cluster, place) for place in places}
        present = {place: _key_in(secret) for place, secret in secrets.items()}
        valid = {place: key for place, key in present.items() if found.has(keys.MONITOR, key)}
        new = {place: keys.generate() for place in places if place not in valid}
        if new:
            store.write(found.replaced(keys.MONITOR, [*valid.values(), *new.values()]))
    for place, key in new.items():
        _write(cluster, place, key, before=secrets[place])


def _secret(cluster: Cluster, place: str) -> Object | None:
    with suppress(NotFound):
        return cluster.get(f"/api/v1/namespaces/{place}/secrets/{SECRET}")
    return None


def _key_in(secret: Object | None) -> str:
    """The key in *secret*; empty without one that can be read."""
    try:
        return base64.b64decode(at(secret, "data", _ENTRY) or "", validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return ""


def _write(cluster: Cluster, place: str, key: str, *, before: Object | None) -> None:
    metadata = {"name": SECRET, "namespace": place, "labels": LABELS}
    data = {_ENTRY: base64.b64encode(key.encode()).decode()}
    secret = {"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "metadata": metadata, "data": data}
    path = f"/api/v1/namespaces/{place}/secrets"
    if before is None:
        cluster.create(path, secret)
    else:
        metadata["resourceVersion"] = at(before, "metadata", "resourceVersion")
        cluster.replace(f"{path}/{SECRET}", secret)
