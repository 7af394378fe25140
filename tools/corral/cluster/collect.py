"""Collects the state of a namespace: all lists at once, then the logs and neighbours that follow from them."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from corral.cluster.client import Cluster, NotThere, Object
from corral.cluster.snapshot import Snapshot, condition, containers, last_end
from corral.errors import CannotRun
from corral.parallel import read_all, value_of

_LIMIT_S = 10.0
_LINES = "40"
_ON_A_NODE = "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"


def collect(cluster: Cluster, namespace: str) -> Snapshot:
    """Everything that `corral status` and the rules need to know about *namespace*.

    What the user may not see, or what did not answer, is named in ``unseen``.

    Raises:
        CannotRun: nothing at all could be seen.
    """
    base, apps, batch = (f"{group}/namespaces/{namespace}" for group in ("/api/v1", "/apis/apps/v1", "/apis/batch/v1"))
    sources: dict[str, Callable[[], Any]] = {
        "the namespace": lambda: _or_nothing(lambda: cluster.get(base)),
        "the claims": lambda: cluster.items(f"{base}/persistentvolumeclaims"),
        "the volumes": lambda: cluster.items("/api/v1/persistentvolumes"),
        "the Jobs": lambda: cluster.items(f"{batch}/jobs"),
        "the Deployments": lambda: cluster.items(f"{apps}/deployments"),
        "the pods": lambda: cluster.items(f"{base}/pods"),
        "the Services": lambda: cluster.items(f"{base}/services"),
        "the events": lambda: cluster.items(f"{base}/events"),
        "the nodes": lambda: cluster.items("/api/v1/nodes"),
    }
    found = read_all(sources, limit_s=_LIMIT_S)
    problems = {name: one.problem for name, one in found.items() if one.problem}
    if len(problems) == len(sources):
        raise CannotRun(
            f"Nothing of the namespace {namespace} (context {cluster.context}) can be seen: "
            f"{next(iter(problems.values()))}",
            next_step=cluster.kubectl("auth", "can-i", "--list", namespace=namespace),
        )
    seen = Snapshot(
        context=cluster.context,
        namespace=namespace,
        now=time.time(),
        kubeconfig=cluster.kubeconfig,
        space=value_of(found, "the namespace", None),
        claims=value_of(found, "the claims", ()),
        volumes=value_of(found, "the volumes", ()),
        jobs=value_of(found, "the Jobs", ()),
        deployments=value_of(found, "the Deployments", ()),
        pods=value_of(found, "the pods", ()),
        services=value_of(found, "the Services", ()),
        events=value_of(found, "the events", ()),
        nodes=value_of(found, "the nodes", ()),
        unseen=problems,
    )
    return _closer(cluster, seen)


def _closer(cluster: Cluster, seen: Snapshot) -> Snapshot:
    """What follows from the lists: who holds what somebody waits for, and the last words of those that ended."""
    sources: dict[Any, Callable[[], Any]] = {
        (pod["metadata"]["name"], container["name"]): _log(cluster, seen.namespace, pod, container)
        for pod in (*seen.server_pods, *seen.job_pods[:2])
        for container in containers(pod)
        if _has_words(seen, pod, container)
    }
    logs = set(sources)
    if any("Insufficient" in condition(pod, "PodScheduled").get("message", "") for pod in seen.pods):
        sources["the pods of all namespaces"] = lambda: cluster.items("/api/v1/pods", fieldSelector=_ON_A_NODE)
    if not sources:
        return seen
    found = read_all(sources, limit_s=_LIMIT_S)
    # A log that has gone with its container is no gap in what was seen.
    problems = {name: one.problem for name, one in found.items() if one.problem and name not in logs}
    return replace(
        seen,
        running=value_of(found, "the pods of all namespaces", ()),
        logs={name: str(found[name].value) for name in logs if found[name].value is not None},
        unseen={**seen.unseen, **problems},
    )


def _has_words(seen: Snapshot, pod: Object, container: Object) -> bool:
    """Whether what *container* has said may matter: it ended, or it is the download."""
    return bool(last_end(container)) or (pod in seen.job_pods and bool((container.get("state") or {}).get("running")))


def _log(cluster: Cluster, namespace: str, pod: Object, container: Object) -> Callable[[], str]:
    ended_before = bool((container.get("lastState") or {}).get("terminated"))
    is_over = bool((container.get("state") or {}).get("terminated"))
    query = {"container": str(container["name"]), "tailLines": _LINES}
    if ended_before and not is_over:
        query["previous"] = "true"
    path = f"/api/v1/namespaces/{namespace}/pods/{pod['metadata']['name']}/log"
    return lambda: cluster.text(path, **query)


def _or_nothing(ask: Callable[[], Object]) -> Object | None:
    try:
        return ask()
    except NotThere:
        return None
