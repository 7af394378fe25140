"""The cluster's side of an apply: what is wrong in it, and an end to what cannot come true."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from corral.cluster.target import ClusterTarget
from corral.errors import CannotRun, CorralError

if TYPE_CHECKING:  # importing kubernetes takes half a second
    from kubernetes.client import AppsV1Api

    from corral.cluster.client import Cluster
    from corral.cluster.finding import Finding

_DEPLOYMENT, _JOB = "kubernetes_deployment_v1", "kubernetes_job_v1"
_SUBJECTS = {
    _DEPLOYMENT: ("pod/llama-swap", "deployment/", "replicaset/", "namespace/"),
    _JOB: ("pod/download-models", "job/"),
}
"""The subjects of findings about one workload; any other, such as a claim, concerns both."""
_OURS = "app.kubernetes.io/part-of=corral"
_FAILED = "status.phase=Failed"
_NEVER = 2**31 - 1  # what Kubernetes takes for no deadline
_LATE_LIMIT_S, _EVERY_S = 5.0, 0.05


class ClusterGuard:
    """Inspects the namespace of *target*, and shortens waits in it; it connects at the first use.

    All methods take Terraform's resource types, and raise CorralError when the cluster does not answer or refuses.
    """

    def __init__(self, target: ClusterTarget) -> None:
        self._target = target
        self._cluster: Cluster | None = None
        self._stuck: Finding | None = None
        self._has_keys = False

    def give_keys(self) -> None:
        """Make the keys of the front door where there are none; never those that are there anew."""
        from corral import keys
        from corral.cluster.keys import ClusterKeys

        if not self._has_keys:
            keys.ensure_operator(ClusterKeys(self._connected(), self._target.namespace))
            self._has_keys = True

    def give_monitor_keys(self) -> None:
        """Give each exporter of the stack's cards the operator's hashes, and its key, where it has none valid."""
        from corral.cluster import exporters

        exporters.give_keys(self._connected(), self._target.namespace)

    def give_gateway_keys(self) -> None:
        """Make what the stack's gateway lacks of its keys, where there is a gateway."""
        from corral.cluster import gateway

        gateway.give_keys(self._connected(), self._target.namespace)

    def begin(self, kinds: Collection[str]) -> None:
        """Make Kubernetes forget what was wrong before with a Deployment of *kinds*, which are changed in place now.

        A pod that has failed (it was evicted, or its node refused it) keeps a Deployment that recreates its pod from
        making the new one until the progress deadline: kubernetes/pkg/controller/deployment, ``deletePod`` counts it.

        That it was late before, the provider reads before Kubernetes takes it back, and fails immediately.  Without a
        deadline Kubernetes reports no progress; Terraform then writes the deadline again.
        """
        from kubernetes.client import AppsV1Api

        if _DEPLOYMENT not in kinds:
            return
        apps = AppsV1Api(self._connected().api)
        self._delete_failed_pods(self._deployments(apps))
        until = time.monotonic() + _LATE_LIMIT_S
        while late := [one for one in self._deployments(apps) if _is_late(one)]:
            self._set_deadline(apps, late, _NEVER)
            if time.monotonic() > until:
                return  # Terraform reports what is wrong
            time.sleep(_EVERY_S)

    def inspect(self, kinds: Collection[str]) -> Sequence[Finding]:
        """What is wrong now with resources of *kinds*, and with what they need; called from another thread too.

        Earlier trouble with anything else may be what this apply mends.  The pod waits for its keys, an exporter has no
        page without, and this apply may make their namespaces: they are made here.
        """
        if not kinds:
            return ()
        with suppress(CorralError):  # the pod that waits for them is a finding
            self.give_keys()
            self.give_monitor_keys()
            self.give_gateway_keys()
        from corral.cluster import collect, diagnosis

        others = tuple(prefix for kind, prefixes in _SUBJECTS.items() if kind not in kinds for prefix in prefixes)
        found = diagnosis.findings(collect.collect(self._connected(), self._target.namespace))
        ours = [one for one in found if not one.subject.startswith(others)]
        self._stuck = next((one for one in ours if one.is_stuck), None)
        return ours

    def end(self, kinds: Collection[str]) -> None:
        """Shorten the deadline of unfinished workloads of *kinds*, so that Kubernetes itself calls them failed.

        The next apply restores the deadlines, and makes a new Job that goes on where this one stopped; a Deployment is
        only called late, and keeps trying.  The pod of a Job disappears with its reason: an annotation keeps the reason
        for `corral status`.
        """
        from kubernetes.client import AppsV1Api, BatchV1Api

        from corral.cluster.job_rules import ENDED_FOR

        api, namespace = self._connected().api, self._target.namespace
        if _JOB in kinds:
            batch = BatchV1Api(api)
            jobs = _translated(lambda: batch.list_namespaced_job(namespace, label_selector=_OURS))
            for job in jobs.items:
                if not _is_over(job) and job.spec.active_deadline_seconds != 1:
                    note = json.dumps(self._stuck.as_json() if self._stuck else None)
                    self._patch(batch.patch_namespaced_job, job, "activeDeadlineSeconds", 1, **{ENDED_FOR: note})
        if _DEPLOYMENT in kinds:
            apps = AppsV1Api(api)
            self._set_deadline(apps, self._deployments(apps), 1)

    def _deployments(self, apps: AppsV1Api) -> Sequence[Any]:
        found = _translated(lambda: apps.list_namespaced_deployment(self._target.namespace, label_selector=_OURS))
        return list(found.items)

    def _delete_failed_pods(self, deployments: Sequence[Any]) -> None:
        from kubernetes.client import CoreV1Api

        core, namespace = CoreV1Api(self._connected().api), self._target.namespace
        for one in deployments:
            labels = ",".join(f"{key}={value}" for key, value in sorted(one.spec.selector.match_labels.items()))
            failed = partial(core.list_namespaced_pod, namespace, label_selector=labels, field_selector=_FAILED)
            delete = partial(core.delete_collection_namespaced_pod, namespace, label_selector=labels)
            if _translated(failed).items:
                _translated(partial(delete, field_selector=_FAILED))

    def _set_deadline(self, apps: AppsV1Api, deployments: Sequence[Any], limit: int) -> None:
        for one in deployments:
            if one.spec.progress_deadline_seconds != limit:
                self._patch(apps.patch_namespaced_deployment, one, "progressDeadlineSeconds", limit)

    def _patch(self, patch: Callable[..., Any], one: Any, deadline: str, limit: int, **notes: str) -> None:
        change = {"spec": {deadline: limit}} | ({"metadata": {"annotations": notes}} if notes else {})
        _translated(lambda: patch(one.metadata.name, self._target.namespace, change))

    def _connected(self) -> Cluster:
        from corral.cluster import client

        self._cluster = self._cluster or client.connect(self._target.kubeconfig, self._target.context)
        return self._cluster


def _translated(call: Callable[[], Any]) -> Any:
    from kubernetes.client import ApiException
    from urllib3.exceptions import HTTPError

    try:
        return call()
    except ApiException as error:
        raise CannotRun(f"The cluster does not end what is waited for: {error.reason}.") from None
    except HTTPError as error:
        raise CannotRun(f"The cluster does not answer: {getattr(error, 'reason', error)}.") from None


def _is_late(deployment: Any) -> bool:
    conditions = (deployment.status and deployment.status.conditions) or []
    return any(one.type == "Progressing" and one.reason == "ProgressDeadlineExceeded" for one in conditions)


def _is_over(job: Any) -> bool:
    conditions = job.status.conditions or []
    return any(one.type in ("Complete", "Failed") and one.status == "True" for one in conditions)
