"""The exporters of a cluster's cards, the keys with which they read llama-swap, and whose key opens their page.

Both are in a Secret of the exporter's namespace, which its pod alone mounts: a key of the monitor, whose hash the guard
has, as of any key, and the hashes of the operator's.  A changed one reaches the pod's files within two minutes.
"""

from __future__ import annotations

from collections.abc import Sequence

from corral import keys
from corral.cluster import secrets
from corral.cluster.client import Cluster, Forbidden
from corral.cluster.keys import ClusterKeys
from corral.cluster.snapshot import NAME, labels, name_of
from corral.errors import CannotRun
from corral.keys import OPERATOR

SERVICE = "card-exporter"
SECRET = "corral-monitor"  # noqa: S105 - its name
_INSTANCE = "app.kubernetes.io/instance"
_KEY, _HASHES = "key", "keys.json"  # the entries


def find(cluster: Cluster, *, of: str | None = None) -> tuple[str, ...]:
    """The namespaces with an exporter, sorted; *of*: only of those that know the engines of that namespace.

    They have a label that only those who make namespaces can set: a tenant cannot pass off a Service of its own.

    Raises:
        Refused: the user may not list namespaces.
        CannotRun: the API server does not respond.
    """
    namespaces = cluster.items("/api/v1/namespaces", labelSelector=f"{NAME}={SERVICE}")
    return tuple(sorted(name_of(one) for one in namespaces if of is None or labels(one).get(_INSTANCE) == of))


def engines_of(cluster: Cluster, place: str) -> str:
    """The namespace whose engines the exporter in the namespace *place* knows, and whose operator may read its page.

    Raises:
        CannotRun: there is no such namespace, it is none of an exporter, or the API server does not respond.
        Refused: the user may not read it.
    """
    found = labels(cluster.get(f"/api/v1/namespaces/{place}"))
    if found.get(NAME) != SERVICE or not found.get(_INSTANCE):
        step = cluster.kubectl("get", "namespaces", "-l", f"{NAME}={SERVICE}")
        raise CannotRun(f"The namespace {place} is none of an exporter: it has not its labels.", next_step=step)
    return found[_INSTANCE]


def give_keys(cluster: Cluster, namespace: str) -> None:
    """Give each exporter for the llama-swap in *namespace* the operator's hashes, and a key, where it has none valid.

    A user who may not list namespaces has no exporter here.

    Raises:
        Refused: the user may not read or change a Secret.
        CannotRun: the API server does not respond, or another command changed a Secret at the same time.
    """
    try:
        places = find(cluster, of=namespace)
    except Forbidden:
        return
    _give(cluster, namespace, places)


def share_operator(cluster: Cluster, namespace: str) -> None:
    """As ``give_keys``, after a change of the operator's keys; for a stack that Kubernetes has by other ways, too.

    Raises:
        Refused: the user may not list namespaces, or not read or change a Secret.
        CannotRun: as ``give_keys``.
    """
    _give(cluster, namespace, find(cluster, of=namespace))


def _give(cluster: Cluster, namespace: str, places: Sequence[str]) -> None:
    if not places:
        return
    store = ClusterKeys(cluster, namespace)
    with store.exclusive_lock():
        found = store.read()
        found_secrets = {place: secrets.read(cluster, place, SECRET) for place in places}
        present = {place: secrets.entry(secret, _KEY) for place, secret in found_secrets.items()}
        valid = {place: key for place, key in present.items() if found.has(keys.MONITOR, key)}
        new = {place: keys.generate() for place in places if place not in valid}
        if new:
            store.write(found.replaced(keys.MONITOR, [*valid.values(), *new.values()]))
    hashes = keys.text_of(found.of_only(OPERATOR))
    for place, key in {**valid, **new}.items():
        secrets.write(cluster, place, SECRET, {_KEY: key, _HASHES: hashes}, before=found_secrets[place])
