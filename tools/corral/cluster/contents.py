"""What a namespace contains, of all kinds that the cluster knows: what goes with it when it is removed."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from typing import NamedTuple

from corral.cluster.client import Cluster, NotFound
from corral.cluster.snapshot import at, is_stopping, labels, listed, name_of
from corral.errors import CorralError
from corral.parallel import read_all, value_of

_LIMIT_S = 20.0
_CORE = "/api/v1"
_ABOUT_OTHERS = {"endpoints", "events", "events.events.k8s.io", "pods.metrics.k8s.io"}
_OF_KUBERNETES = {("configmaps", "kube-root-ca.crt"), ("serviceaccounts", "default")}
_OF_CORRAL = ("app.kubernetes.io/managed-by", "corral")


class Member(NamedTuple):
    """An object in a namespace: the plural of its kind, with the group where that is not the core, and its name."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}/{self.name}"


class Contents(NamedTuple):
    """The objects of a namespace that no other object owns, and the kinds that could not be read, with the reason."""

    members: tuple[Member, ...]
    unread: tuple[str, ...]


def foreign(cluster: Cluster, namespace: str, ours: Collection[Member]) -> Contents:
    """What is in *namespace* beside *ours*, what Kubernetes makes in each, and what the command corral has made.

    What another object owns, such as the pods of a Deployment, is not listed.

    Raises:
        Refused: the user may not read which kinds there are.
        CannotRun: the API server does not respond.
    """
    groups = [str(at(one, "preferredVersion", "groupVersion")) for one in cluster.get("/apis").get("groups") or ()]
    prefixes = (_CORE, *(f"/apis/{group}" for group in groups))
    known = read_all({prefix: partial(cluster.get, prefix) for prefix in prefixes}, limit_s=_LIMIT_S)
    unread = {prefix: one.problem for prefix, one in known.items() if one.problem}
    kinds = {
        kind: f"{prefix}/namespaces/{namespace}/{one['name']}"
        for prefix in prefixes
        for one in listed(value_of(known, prefix, {}), "resources")
        if one.get("namespaced") and "list" in one.get("verbs", ())
        if (kind := kind_of(prefix, one["name"])) not in _ABOUT_OTHERS
    }
    found = read_all({kind: partial(cluster.items, path) for kind, path in kinds.items()}, limit_s=_LIMIT_S)
    unread |= {kind: one.problem for kind, one in found.items() if one.problem}
    members = {
        Member(kind, name_of(one))
        for kind in kinds
        for one in value_of(found, kind, ())
        if not (listed(one, "metadata", "ownerReferences") or is_stopping(one))
        if labels(one).get(_OF_CORRAL[0]) != _OF_CORRAL[1]
    }
    return Contents(
        members=tuple(sorted(members - set(ours) - _OF_KUBERNETES)),
        unread=tuple(f"{name}: {problem}" for name, problem in sorted(unread.items())),
    )


def kind_of(prefix: str, plural: str) -> str:
    """The kind of a ``Member`` whose paths begin with *prefix*, such as ``/apis/apps/v1``."""
    group = "" if prefix == _CORE else prefix.removeprefix("/apis/").partition("/")[0]
    return f"{plural}.{group}" if group else plural


def may_exist(cluster: Cluster, path: str) -> bool:
    """Whether there is an object at *path*; True also where that cannot be read."""
    try:
        cluster.get(path)
    except NotFound:
        return False
    except CorralError:
        return True
    return True
