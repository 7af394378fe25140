"""From what was seen to what is wrong: pure rules, each over one kind of object.  Nothing is looked at here.

Reasons are stable names of Kubernetes; messages are not, and are only read where the reason leaves a question open.
Where no rule knows the message, it is shown as it is, and the finding says that the rest is not known.

What is seen, where Kubernetes (v1.34) says it, and whether it is stuck, so that no waiting heals it:

- a claim that is ``Pending`` (``FailedBinding``, ``ProvisioningFailed``, ``VolumeMismatch``) or ``Lost``:
  pkg/controller/volume/persistentvolume/pv_controller.go.  Stuck.
- ``PodScheduled`` is False: pkg/scheduler/framework/plugins/: noderesources/fit.go (``Insufficient …``), nodeaffinity,
  tainttoleration, volumebinding.  Stuck; but not for a node that is cordoned or not ready (nodeunschedulable;
  pkg/controller/nodelifecycle).
- ``FailedMount``, ``FailedAttachVolume``: pkg/kubelet/events/event.go.  Stuck, unless it is a timeout or a refusal of
  the network.
- a Secret or ConfigMap, or a key of it, not found: pkg/volume/{secret,configmap}, pkg/kubelet/kubelet_pods.go.  Stuck.
- ``ErrImagePull``, ``ImagePullBackOff``, ``InvalidImageName``, …: pkg/kubelet/images/types.go.  Stuck, unless it is the
  network, a rate limit or a full disk.
- ``CreateContainerConfigError``, ``RunContainerError``, …: pkg/kubelet/kuberuntime/kuberuntime_container.go.  Settings
  and missing programs are stuck.
- ``FailedCreatePodSandBox`` for want of the runtime's handler: containerd, CRI-O.  Stuck.
- ``CrashLoopBackOff``, ``OOMKilled``: pkg/kubelet/container/sync_result.go.  Stuck from the third restart on.
- a pod that is ``Failed`` (``Evicted``, ``UnexpectedAdmissionError``, …): pkg/kubelet/{eviction,lifecycle}.  Not stuck:
  another is made.
- ``ReplicaFailure``, ``FailedCreate`` (Pod Security, RuntimeClass, quota): pkg/controller/{deployment,job},
  plugin/pkg/admission.  Stuck; but a ServiceAccount may still come.
- a Job that is ``Failed`` (``BackoffLimitExceeded``, ``DeadlineExceeded``, ``PodFailurePolicy``): k8s.io/api,
  batch/v1/types.go.  Stuck.  While it tries again: stuck when the agent said (exit code 2) that trying does not help.
- ``Unhealthy``: pkg/kubelet/prober.  A node that is not ``Ready``, or under pressure: pkg/kubelet/nodestatus.
  Not stuck.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from corral.agent.progress import count, duration
from corral.cluster import claim_rules, container_rules, job_rules, scheduling_rules
from corral.cluster.client import Object
from corral.cluster.finding import Cause, Finding
from corral.cluster.snapshot import Snapshot, condition, containers, is_ready, is_true, message

_PATIENCE_S = 60.0  # for which a pod may be starting without a word about it
_RECENT_S = 3600.0
_GRACE_S = 30.0  # beyond its own that a pod may take to stop
_PRESSURE = ("MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable")


def findings(seen: Snapshot) -> tuple[Finding, ...]:
    """What is wrong, those first that no waiting heals; empty when nothing is known to be wrong.

    That nothing is wrong does not say that something runs: it may be starting.
    """
    found = tuple(dict.fromkeys(_all(seen)))
    # A pod that waits for a claim says nothing that the claim does not say better.
    if any(one.subject.startswith("persistentvolumeclaim/") for one in found):
        found = tuple(one for one in found if not (one.subject.startswith("pod/") and one.cause is Cause.CLAIM))
    return tuple(sorted(found, key=lambda one: not one.is_stuck))


def _all(seen: Snapshot) -> Iterator[Finding]:
    yield from _unseen(seen)
    if "the namespace" not in seen.unseen and (found := _no_namespace(seen)):
        yield found
        return
    for claim in seen.our_claims:
        yield from _some(claim_rules.unbound(seen, claim))
    yield from _job(seen)
    yield from _server(seen)
    for node in seen.our_nodes:
        yield from _some(_node(seen, node))


def _unseen(seen: Snapshot) -> Iterator[Finding]:
    for source, problem in seen.unseen.items():
        step = seen.kubectl("auth", "can-i", "--list")
        what = f"could not be looked at in {source}: what is wrong there is not known."
        yield Finding(f"namespace/{seen.namespace}", what, problem, step, is_stuck=False, cause=Cause.UNSEEN)


def _no_namespace(seen: Snapshot) -> Finding | None:
    subject = f"namespace/{seen.namespace}"
    if seen.space is None:
        what = "does not exist: nothing was applied to this cluster, or under another name."
        return Finding(subject, what, "", "corral apply", is_stuck=False, cause=Cause.ABSENT)
    if seen.space["metadata"].get("deletionTimestamp"):
        what = "is being deleted, with all that is in it."
        return Finding(
            subject, what, "", seen.kubectl("describe", subject, is_namespaced=False), is_stuck=True, cause=Cause.ABSENT
        )
    return None


# -- the download ---------------------------------------------------------------------------------------------


def _job(seen: Snapshot) -> Iterator[Finding]:
    job = seen.job
    if job is None or is_true(job, "Complete"):
        return
    if found := job_rules.failed(seen, job) or job_rules.uncreated(seen, job):
        yield found
        return
    yield from _some(_removed(seen, seen.job_pods))
    pods = [found for pod in seen.job_pods if (found := _pod(seen, pod, is_of_job=True))]
    # Of several attempts the last one counts; what it waits for now is worth more than how the one before ended.
    yield from pods[:1] or _some(job_rules.retrying(seen, job))


# -- the server -----------------------------------------------------------------------------------------------


def _server(seen: Snapshot) -> Iterator[Finding]:
    if any(source in seen.unseen for source in ("the Deployments", "the pods")):
        return
    deployment = seen.deployment
    if deployment is None:
        what = f"has no Deployment llama-swap{'' if seen.job else ', and no Job download-models'}: nothing serves."
        stuck = False  # while it is being applied it is still to come
        yield Finding(f"namespace/{seen.namespace}", what, "", "corral apply", is_stuck=stuck, cause=Cause.ABSENT)
        return
    subject = f"deployment/{deployment['metadata']['name']}"
    if deployment["spec"].get("replicas", 1) == 0:
        step = seen.kubectl("scale", subject, "--replicas=1")
        yield Finding(subject, "is scaled to 0: nothing serves.", "", step, is_stuck=True, cause=Cause.ABSENT)
        return
    if seen.service is None and "the Services" not in seen.unseen:
        what = "has no Service llama-swap: clients find nobody."
        yield Finding(f"namespace/{seen.namespace}", what, "", "corral apply", is_stuck=False, cause=Cause.ABSENT)
    pods = seen.server_pods
    ready = [pod for pod in pods if is_ready(pod)]
    yield from _some(_removed(seen, pods))
    if ready:
        yield from (found for pod in ready if (found := container_rules.ended_lately(seen, pod)))
        return
    failure = condition(deployment, "ReplicaFailure")
    if failure.get("status") == "True":
        yield job_rules.refused(seen, subject, message(failure))
        return
    yield from (found for pod in pods if (found := _pod(seen, pod)))
    if not pods:
        yield from _no_pod(seen, deployment, subject)


def _no_pod(seen: Snapshot, deployment: Object, subject: str) -> Iterator[Finding]:
    age = seen.age(deployment["metadata"].get("creationTimestamp"))
    if age > _PATIENCE_S:
        what = f"has no pod, {duration(age)} after it was made, and nothing that was seen says why."
        progress = message(condition(deployment, "Progressing"))
        yield Finding(subject, what, progress, seen.kubectl("describe", subject), is_stuck=False, cause=Cause.UNKNOWN)


# -- any pod --------------------------------------------------------------------------------------------------


def _pod(seen: Snapshot, pod: Object, *, is_of_job: bool = False) -> Finding | None:
    phase = pod.get("status", {}).get("phase")
    if phase == "Succeeded":
        return None
    if pod["metadata"].get("deletionTimestamp"):
        return _stopping(seen, pod)
    if phase == "Failed":
        # How a container of the Job ended is told of the Job.
        return None if is_of_job or _is_removed(pod) else container_rules.failed_now(seen, pod)
    rules = (scheduling_rules.unscheduled, container_rules.waiting, _sandbox, _mounting)
    for rule in rules if is_of_job else (*rules, container_rules.failed_now):
        if found := rule(seen, pod):
            return found
    if is_ready(pod) or (is_of_job and phase == "Running"):
        return None
    if found := container_rules.unwell(seen, pod) or _on_dead_node(seen, pod):
        return found
    return _unexplained(seen, pod)


def _mounting(seen: Snapshot, pod: Object) -> Finding | None:
    """Events outlive what they tell of: only a pod none of whose containers has started still waits for a volume."""
    return None if _has_started(pod) else claim_rules.unmounted(seen, pod)


def _has_started(pod: Object) -> bool:
    return any((one.get("state") or {}).keys() & {"running", "terminated"} for one in containers(pod))


def _sandbox(seen: Snapshot, pod: Object) -> Finding | None:
    if _has_started(pod):
        return None
    said = seen.said(pod, "Pod", "FailedCreatePodSandBox", "NetworkNotReady", "FailedPrepareDynamicResources")
    if not said:
        return None
    subject = f"pod/{pod['metadata']['name']}"
    if found := re.search(r'no runtime for "(?P<name>[^"]+)"|failed to find runtime handler (?P<crio>\S+)', said):
        node, name = pod["spec"].get("nodeName"), found["name"] or found["crio"]
        what = (
            f"cannot start: the container runtime of node {node} has no handler {name}, which its RuntimeClass names."
        )
        step = seen.kubectl("describe", "runtimeclasses", is_namespaced=False)
        return Finding(subject, what, said, step, is_stuck=True, cause=Cause.RUNTIME)
    what = "cannot start: its sandbox, or its network, cannot be made."
    return Finding(subject, what, said, seen.kubectl("describe", subject), is_stuck=False, cause=Cause.RUNTIME)


def _removed(seen: Snapshot, pods: Sequence[Object]) -> Finding | None:
    """The kubelet ended some of *pods* within the last hour, or did not take them; told of the last one."""
    gone = [one for one in pods if _is_removed(one) and seen.age(one["metadata"].get("creationTimestamp")) < _RECENT_S]
    if not gone:
        return None
    pod, status = gone[0], gone[0]["status"]
    subject = f"pod/{pod['metadata']['name']}"
    node, reason = pod["spec"].get("nodeName"), status["reason"]
    said = message(status)
    how = "was evicted from" if reason == "Evicted" else f"was not kept ({reason}) by"
    before = f", as {count(len(gone) - 1, 'other pod')} within the hour" if len(gone) > 1 else ""
    what = f"{how} node {node}{before}: {said or 'no reason was given.'}"
    step = seen.kubectl("describe", f"node/{node}", is_namespaced=False) if node else seen.kubectl("describe", subject)
    return Finding(subject, what, said, step, is_stuck=False, cause=Cause.EVICTED)


def _is_removed(pod: Object) -> bool:
    status = pod.get("status", {})
    return bool(status.get("phase") == "Failed" and status.get("reason"))


def _stopping(seen: Snapshot, pod: Object) -> Finding | None:
    metadata = pod["metadata"]
    over = seen.age(metadata["deletionTimestamp"])  # the time by which it should be gone
    if over <= _GRACE_S:
        return None
    subject = f"pod/{metadata['name']}"
    what = f"should have been gone {duration(over)} ago: its node {pod['spec'].get('nodeName')} does not stop it."
    step = seen.kubectl("delete", subject, "--force", "--grace-period=0")
    return Finding(subject, what, "", step, is_stuck=False, cause=Cause.NODE)


def _on_dead_node(seen: Snapshot, pod: Object) -> Finding | None:
    node = next((one for one in seen.nodes if one["metadata"]["name"] == pod["spec"].get("nodeName")), None)
    return _node(seen, node) if node and not is_true(node, "Ready") else None


def _unexplained(seen: Snapshot, pod: Object) -> Finding | None:
    age = seen.age(pod["metadata"].get("creationTimestamp"))
    phase = pod.get("status", {}).get("phase", "unknown")
    if age <= _PATIENCE_S and phase in ("Pending", "Running"):
        return None
    subject = f"pod/{pod['metadata']['name']}"
    warnings = [one for one in seen.events_of(pod, "Pod") if one.get("type") == "Warning"]
    said = message(warnings[-1]) if warnings else ""
    what = f"is not ready after {duration(age)} (phase {phase}), and nothing that was seen says why."
    return Finding(subject, what, said, seen.kubectl("describe", subject), is_stuck=False, cause=Cause.UNKNOWN)


# -- nodes ----------------------------------------------------------------------------------------------------


def _node(seen: Snapshot, node: Object) -> Finding | None:
    subject = f"node/{node['metadata']['name']}"
    step = seen.kubectl("describe", subject, is_namespaced=False)
    ready = condition(node, "Ready")
    said = message(ready)
    if ready.get("status") != "True":
        silent = ready.get("status") in (None, "Unknown")
        what = "is not ready: its kubelet says nothing any more." if silent else "is not ready."
        return Finding(subject, what, said, step, is_stuck=False, cause=Cause.NODE)
    for kind in _PRESSURE:
        if is_true(node, kind):
            said = message(condition(node, kind))
            return Finding(subject, f"has {kind}: it may end pods.", said, step, is_stuck=False, cause=Cause.NODE)
    return None


def _some(finding: Finding | None) -> Iterator[Finding]:
    if finding:
        yield finding
