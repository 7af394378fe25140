"""Why the pod of a Job that corral has made does not run."""

from __future__ import annotations

from contextlib import suppress

from corral.cluster.client import Cluster
from corral.cluster.snapshot import at, name_of
from corral.errors import CorralError


def reason(cluster: Cluster, namespace: str, job: str) -> str:
    """What the pod of the Job *job* waits for, as the end of a sentence; empty when that is not known."""
    with suppress(CorralError):
        for pod in cluster.items(f"/api/v1/namespaces/{namespace}/pods", labelSelector=f"job-name={job}"):
            for one in at(pod, "status", "containerStatuses") or ():
                waiting = at(one, "state", "waiting") or at(one, "state", "terminated") or {}
                if waiting:
                    return f": {waiting.get('reason')}: {str(waiting.get('message') or '')[:300].strip()}"
            for one in at(pod, "status", "conditions") or ():
                if one.get("status") == "False" and one.get("message"):
                    return f": {one.get('reason')}: {str(one['message'])[:300]}"
            log = cluster.text(f"/api/v1/namespaces/{namespace}/pods/{name_of(pod)}/log", tailLines="1")
            return f": {log.strip()[:300]}" if log.strip() else ""
        about = f"involvedObject.name={job},type=Warning"  # a quota, or an admission, refuses it
        for event in cluster.items(f"/api/v1/namespaces/{namespace}/events", fieldSelector=about):
            return f": {event.get('reason')}: {str(event.get('message'))[:300]}"
    return ""
