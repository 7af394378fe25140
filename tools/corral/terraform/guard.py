"""The cluster's side of an apply: what is wrong in it, and an end to what cannot come true."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any

from corral.errors import CannotRun
from corral.terraform.homelab import Target

if TYPE_CHECKING:  # importing kubernetes takes half a second
    from kubernetes.client import AppsV1Api

    from corral.cluster.client import Cluster
    from corral.cluster.finding import Finding

_SUBJECTS = {
    "kubernetes_deployment_v1": ("pod/llama-swap", "deployment/", "replicaset/", "namespace/"),
    "kubernetes_job_v1": ("pod/download-models", "job/"),
}
"""What findings of one workload are about; all others, such as a claim's, are anybody's who waits."""
_OURS = "app.kubernetes.io/part-of=corral"
_NEVER = 2**31 - 1  # what Kubernetes takes for no deadline
_PATIENCE_S, _EVERY_S = 5.0, 0.05


class ClusterGuard:
    """Watches the namespace of *target*; the cluster is connected to at the first look."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._cluster: Cluster | None = None
        self._stuck: Finding | None = None

    def begin(self, kinds: Collection[str]) -> None:
        """Forget that a Deployment, which is changed now, was late before.

        The provider reads that word before Kubernetes takes it back, and fails at once.  Without a deadline Kubernetes
        says nothing of progress; what Terraform writes next has the deadline again.

        Args:
            kinds: Terraform's resource types.

        Raises:
            CannotRun: the cluster cannot be asked, or does not allow it.
        """
        from kubernetes.client import AppsV1Api

        if "kubernetes_deployment_v1" not in kinds:
            return
        apps = AppsV1Api(self._connected().api)
        until = time.monotonic() + _PATIENCE_S
        while late := [one for one in self._deployments(apps) if _is_late(one)]:
            if time.monotonic() > until:
                return  # Terraform says what is wrong
            for deployment in late:
                if deployment.spec.progress_deadline_seconds != _NEVER:
                    self._patch(apps.patch_namespaced_deployment, deployment, "progressDeadlineSeconds", _NEVER)
            time.sleep(_EVERY_S)

    def look(self, kinds: Collection[str]) -> Sequence[Finding]:
        """What is wrong now with resources of the types *kinds*, and with what they need.

        Raises:
            CorralError: the cluster cannot be asked.
        """
        others = tuple(prefix for kind, prefixes in _SUBJECTS.items() if kind not in kinds for prefix in prefixes)
        if not kinds:
            return ()
        from corral.cluster import collect, diagnosis

        found = diagnosis.findings(collect.collect(self._connected(), self._target.namespace))
        ours = [one for one in found if not one.subject.startswith(others)]
        self._stuck = next((one for one in ours if one.is_stuck), None)
        return ours

    def end(self, kinds: Collection[str]) -> None:
        """Shorten the deadline of unfinished workloads, so that Kubernetes itself calls them failed.

        A Job that is ended so goes on where it stopped when the next apply makes a new one; a Deployment is only called
        late, and keeps trying.  The next apply puts the deadlines back.  A Job that is ended loses its pod, and with it
        what was wrong: an annotation keeps that for `corral status`.

        Args:
            kinds: Terraform's resource types.

        Raises:
            CannotRun: the cluster cannot be asked, or does not allow it.
        """
        from kubernetes.client import AppsV1Api, BatchV1Api

        from corral.cluster.job_rules import ENDED_FOR

        api, namespace = self._connected().api, self._target.namespace
        if "kubernetes_job_v1" in kinds:
            batch = BatchV1Api(api)
            jobs = _asked(lambda: batch.list_namespaced_job(namespace, label_selector=_OURS))
            for job in jobs.items:
                if not _ended(job) and job.spec.active_deadline_seconds != 1:
                    note = json.dumps(self._stuck.as_json() if self._stuck else None)
                    self._patch(batch.patch_namespaced_job, job, "activeDeadlineSeconds", 1, **{ENDED_FOR: note})
        if "kubernetes_deployment_v1" in kinds:
            apps = AppsV1Api(api)
            for deployment in self._deployments(apps):
                if deployment.spec.progress_deadline_seconds != 1:
                    self._patch(apps.patch_namespaced_deployment, deployment, "progressDeadlineSeconds", 1)

    def _deployments(self, apps: AppsV1Api) -> Sequence[Any]:
        found = _asked(lambda: apps.list_namespaced_deployment(self._target.namespace, label_selector=_OURS))
        return list(found.items)

    def _patch(self, patch: Callable[..., Any], one: Any, deadline: str, limit: int, **notes: str) -> None:
        change = {"spec": {deadline: limit}} | ({"metadata": {"annotations": notes}} if notes else {})
        _asked(lambda: patch(one.metadata.name, self._target.namespace, change))

    def _connected(self) -> Cluster:
        from corral.cluster import client

        self._cluster = self._cluster or client.connect(self._target.kubeconfig, self._target.context)
        return self._cluster


def _asked(question: Callable[[], Any]) -> Any:
    from kubernetes.client import ApiException
    from urllib3.exceptions import HTTPError

    try:
        return question()
    except ApiException as error:
        raise CannotRun(f"The cluster does not end what is waited for: {error.reason}.") from None
    except HTTPError as error:
        raise CannotRun(f"The cluster does not answer: {getattr(error, 'reason', error)}.") from None


def _is_late(deployment: Any) -> bool:
    conditions = (deployment.status and deployment.status.conditions) or []
    return any(one.type == "Progressing" and one.reason == "ProgressDeadlineExceeded" for one in conditions)


def _ended(job: Any) -> bool:
    conditions = job.status.conditions or []
    return any(one.type in ("Complete", "Failed") and one.status == "True" for one in conditions)
