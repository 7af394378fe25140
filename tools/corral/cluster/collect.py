"""Reads the state of a namespace: all lists in parallel, then the logs and foreign pods that the lists call for."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from corral.cluster.client import Cluster, NotFound, Object
from corral.cluster.snapshot import Snapshot, at, condition, containers, last_end, name_of
from corral.errors import CannotRun
from corral.parallel import read_all, value_of

_LIMIT_S = 10.0
_LOG_LINES = "40"
_ON_A_NODE = "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"
_LISTS = {
    "claims": "/api/v1/namespaces/{}/persistentvolumeclaims",
    "volumes": "/api/v1/persistentvolumes",
    "Jobs": "/apis/batch/v1/namespaces/{}/jobs",
    "Deployments": "/apis/apps/v1/namespaces/{}/deployments",
    "pods": "/api/v1/namespaces/{}/pods",
    "Services": "/api/v1/namespaces/{}/services",
    "events": "/api/v1/namespaces/{}/events",
    "policies": "/apis/networking.k8s.io/v1/namespaces/{}/networkpolicies",
    "nodes": "/api/v1/nodes",
}


def collect(cluster: Cluster, namespace: str) -> Snapshot:
    """Everything that `corral status` and the rules need to know about *namespace*.

    What the user may not read, or what the API server did not send, is named in ``unread``.

    Raises:
        CannotRun: nothing at all could be read.
    """
    sources: dict[str, Callable[[], Any]] = {
        "the namespace": partial(_namespace, cluster, namespace),
        **{f"the {kind}": partial(cluster.items, path.format(namespace)) for kind, path in _LISTS.items()},
    }
    found = read_all(sources, limit_s=_LIMIT_S)
    problems = {name: one.problem for name, one in found.items() if one.problem}
    if len(problems) == len(sources):
        raise CannotRun(
            f"Nothing of namespace {namespace} (context {cluster.context}) can be read: {problems['the namespace']}",
            next_step=cluster.kubectl("auth", "can-i", "--list", namespace=namespace),
        )
    snapshot = Snapshot(
        context=cluster.context,
        namespace=namespace,
        now=time.time(),
        kubeconfig=cluster.kubeconfig,
        namespace_object=value_of(found, "the namespace", None),
        unread=problems,
        **{kind.lower(): value_of(found, f"the {kind}", None if kind == "policies" else ()) for kind in _LISTS},
    )
    return _with_logs_and_neighbours(cluster, snapshot)


def _with_logs_and_neighbours(cluster: Cluster, snapshot: Snapshot) -> Snapshot:
    sources: dict[Any, Callable[[], Any]] = {
        (name_of(pod), container["name"]): _log(cluster, snapshot.namespace, pod, container)
        for pod in (*snapshot.server_pods, *snapshot.model_pods.values(), *snapshot.job_pods[:2])
        for container in containers(pod)
        if last_end(container) or (pod in snapshot.job_pods and at(container, "state", "running"))
    }
    logs = set(sources)
    if any("Insufficient" in condition(pod, "PodScheduled").get("message", "") for pod in snapshot.pods):
        sources["the pods of all namespaces"] = partial(cluster.items, "/api/v1/pods", fieldSelector=_ON_A_NODE)
    found = read_all(sources, limit_s=_LIMIT_S)
    # A log that was removed with its container is no gap in the snapshot.
    problems = {name: one.problem for name, one in found.items() if one.problem and name not in logs}
    return replace(
        snapshot,
        running=value_of(found, "the pods of all namespaces", ()),
        logs={name: str(found[name].value) for name in logs if found[name].value is not None},
        unread={**snapshot.unread, **problems},
    )


def _log(cluster: Cluster, namespace: str, pod: Object, container: Object) -> Callable[[], str]:
    query = {"container": str(container["name"]), "tailLines": _LOG_LINES}
    if at(container, "lastState", "terminated") and not at(container, "state", "terminated"):
        query["previous"] = "true"
    return partial(cluster.text, f"/api/v1/namespaces/{namespace}/pods/{name_of(pod)}/log", **query)


def _namespace(cluster: Cluster, namespace: str) -> Object | None:
    try:
        return cluster.get(f"/api/v1/namespaces/{namespace}")
    except NotFound:
        return None
