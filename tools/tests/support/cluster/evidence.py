"""What a cluster shows when a test has failed: the pods that do not run, its events, what its parts complained of."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from kubernetes import client
from urllib3.exceptions import HTTPError

from tests.support.cluster.cluster import Cluster

_SINCE = timedelta(seconds=150)
_EVENTS = 40
_LINES = 12
_COMPLAINT = re.compile(r"^[EW]\d{4} |level=(?:error|warning)|\"level\":\"(?:error|warn)")


def evidence(cluster: Cluster) -> str:
    """A few dozen lines; what cannot be read is named with its reason."""
    core = client.CoreV1Api(cluster.api)
    lines: list[str] = []
    for read in (_node, _pods, _events, _server_logs):
        try:
            lines += read(cluster, core)
        except (client.ApiException, HTTPError, OSError) as error:  # the report of a failure is not another failure
            lines.append(f"{read.__name__}: {type(error).__name__}: {error}")
    return "\n".join([*lines, *_complaints(cluster)])


def _node(cluster: Cluster, core: client.CoreV1Api) -> Iterator[str]:
    node = core.read_node(cluster.node)
    conditions = ", ".join(f"{one.type}={one.status}" for one in node.status.conditions or ())
    taints = ", ".join(f"{one.key}:{one.effect}" for one in node.spec.taints or ())
    yield f"node {cluster.node}: {conditions}; taints: {taints or 'none'}"


def _pods(_cluster: Cluster, core: client.CoreV1Api) -> Iterator[str]:
    for pod in core.list_pod_for_all_namespaces().items:
        if pod.status.phase in {"Running", "Succeeded"}:
            continue
        name = f"{pod.metadata.namespace}/{pod.metadata.name}"
        times = f"made {pod.metadata.creation_timestamp:%T}, deleted {pod.metadata.deletion_timestamp or 'never'}"
        why = f"{pod.status.reason} {pod.status.message}" if pod.status.reason else "no reason"
        yield f"pod {name}: {pod.status.phase} ({why}), node {pod.spec.node_name}, {times}"
        for one in pod.status.conditions or ():
            if one.status != "True":
                yield f"  {one.type}={one.status} since {one.last_transition_time:%T}: {one.reason} {one.message}"
        for status in pod.status.container_statuses or ():
            state = status.state.waiting or status.state.terminated
            yield f"  {status.name}: {state.reason} {state.message}" if state else f"  {status.name}: runs"


def _events(_cluster: Cluster, core: client.CoreV1Api) -> Iterator[str]:
    def at(event: Any) -> datetime:
        found = event.last_timestamp or event.event_time or event.metadata.creation_timestamp
        assert isinstance(found, datetime)
        return found

    recent = [one for one in core.list_event_for_all_namespaces().items if datetime.now(UTC) - at(one) < _SINCE]
    for event in sorted(recent, key=at)[-_EVENTS:]:
        about = f"{event.involved_object.kind} {event.involved_object.namespace}/{event.involved_object.name}"
        yield f"{at(event):%T} {about}: {event.reason}: {str(event.message)[:200]}"


def _server_logs(_cluster: Cluster, core: client.CoreV1Api) -> Iterator[str]:
    """The last lines of each container of a server that runs."""
    servers = core.list_pod_for_all_namespaces(label_selector="app.kubernetes.io/name=llama-swap").items
    for pod in servers:
        namespace, name = pod.metadata.namespace, pod.metadata.name
        for status in pod.status.container_statuses or ():
            if status.state.running:
                text = core.read_namespaced_pod_log(name, namespace, container=status.name, tail_lines=_LINES)
                yield from (f"{name} {status.name}: {line[:240]}" for line in text.splitlines())


def _complaints(cluster: Cluster) -> Iterator[str]:
    if cluster.folder is None:
        return
    for log in sorted((cluster.folder / "log").glob("*.log")):
        found = [line for line in log.read_text(errors="replace").splitlines() if _COMPLAINT.search(line)]
        yield from (f"{log.stem}: {line[:240]}" for line in found[-_LINES:])
