"""From a snapshot to what is wrong: pure rules, each over one kind of object; nothing is read here.

Reasons are stable names of Kubernetes; messages are not, and are only read where the reason leaves a question open.
Where no rule knows the message, it is shown as it is, and the finding states that the rest is not known.

What is found, where Kubernetes (v1.34) reports it, and whether it is stuck, so that no waiting heals it:

- A claim that is ``Pending`` (``FailedBinding``, ``ProvisioningFailed``, ``VolumeMismatch``) or ``Lost``; stuck.
  pkg/controller/volume/persistentvolume/pv_controller.go.
- ``PodScheduled`` is False; stuck, unless the node is cordoned or not ready (nodeunschedulable; pkg/controller/
  nodelifecycle).  pkg/scheduler/framework/plugins/: noderesources, nodeaffinity, tainttoleration, volumebinding.
- ``FailedMount``, ``FailedAttachVolume``; stuck, unless it is a timeout or the network.  pkg/kubelet/events/event.go.
- A Secret or ConfigMap, or a key of it, not found; stuck.  pkg/volume/{secret,configmap}, pkg/kubelet/kubelet_pods.go.
- ``ErrImagePull``, ``ImagePullBackOff``, ``InvalidImageName``, …; stuck, unless it is the network, a rate limit or a
  full disk.  pkg/kubelet/images/types.go.
- ``CreateContainerConfigError``, ``RunContainerError``, …; stuck if it is a setting or a missing program.
  pkg/kubelet/kuberuntime/kuberuntime_container.go.
- ``FailedCreatePodSandBox`` for want of the runtime's handler; stuck.  containerd, CRI-O.
- ``CrashLoopBackOff``, ``OOMKilled``; stuck from the third restart on.  pkg/kubelet/container/sync_result.go.
- A pod that is ``Failed`` (``Evicted``, …); not stuck: another is made.  pkg/kubelet/{eviction,lifecycle}.
- ``ReplicaFailure``, ``FailedCreate`` (Pod Security, RuntimeClass, quota); stuck, but a ServiceAccount may still be
  made.  pkg/controller/{deployment,job}, plugin/pkg/admission.
- A Job that is ``Failed`` (``BackoffLimitExceeded``, ``DeadlineExceeded``, ``PodFailurePolicy``); stuck.  While it
  tries again: stuck when the agent ended with exit code 2, for which that is no use.  k8s.io/api, batch/v1/types.go.
- ``Unhealthy``; a node that is not ``Ready``, or under pressure: not stuck.  pkg/kubelet/{prober,nodestatus}.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from corral.agent.progress import count, duration
from corral.cluster import claim_rules, container_rules, job_rules, scheduling_rules
from corral.cluster.client import Object
from corral.cluster.finding import Cause, Finding
from corral.cluster.snapshot import SERVER, Snapshot, at, condition, has_started, is_ready, is_true, message_of, name_of

_START_LIMIT_S = 60.0  # for which a pod may be starting without an event
_RECENT_S = 3600.0
_STOP_LIMIT_S = 30.0  # beyond its own that a pod may take to stop
POLICIES = ("default-deny", SERVER)
_PRESSURE = ("MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable")
_NO_HANDLER = re.compile(r'no runtime for "(?P<name>[^"]+)"|failed to find runtime handler (?P<crio>\S+)')


def findings(snapshot: Snapshot) -> tuple[Finding, ...]:
    """What is wrong, those first that no waiting heals; empty when nothing is known to be wrong.

    An empty result does not mean that something runs: it may be starting.
    """
    found = tuple(dict.fromkeys(one for one in _all(snapshot) if one))
    # A pod that waits for a claim reports nothing beyond the finding about the claim.
    if any(one.subject.startswith("persistentvolumeclaim/") for one in found):
        found = tuple(one for one in found if not (one.subject.startswith("pod/") and one.cause is Cause.CLAIM))
    return tuple(sorted(found, key=lambda one: not one.is_stuck))


def _all(snapshot: Snapshot) -> Iterator[Finding | None]:
    subject = f"namespace/{snapshot.namespace}"
    for source, problem in snapshot.unread.items():
        step = snapshot.kubectl("auth", "can-i", "--list")
        what = f"is only partly known: {source} could not be read, and what is wrong there is not known."
        yield Finding(subject, what, problem, step, is_stuck=False, cause=Cause.UNSEEN)
    if "the namespace" not in snapshot.unread:
        if snapshot.namespace_object is None:
            what = "does not exist: nothing was applied to this cluster, or under another name."
            yield Finding(subject, what, "", "corral apply", is_stuck=False, cause=Cause.ABSENT)
            return
        if at(snapshot.namespace_object, "metadata", "deletionTimestamp"):
            what, step = "is being deleted, with all that is in it.", snapshot.kubectl("describe", subject)
            yield Finding(subject, what, "", step, is_stuck=True, cause=Cause.ABSENT)
            return
    yield from (claim_rules.unbound(snapshot, claim) for claim in snapshot.our_claims)
    yield from _job(snapshot)
    for card in snapshot.cards:
        yield from _server(snapshot.of_card(card))
    yield from _beside(snapshot)
    yield from (_node(snapshot, node) for node in snapshot.our_nodes)


# -- the download ---------------------------------------------------------------------------------------------


def _job(snapshot: Snapshot) -> Iterator[Finding | None]:
    job = snapshot.job
    if job is None or is_true(job, "Complete"):
        return
    if found := job_rules.failed(snapshot, job) or job_rules.uncreated(snapshot, job):
        yield found
        return
    yield _removed(snapshot, snapshot.job_pods)
    # Of several attempts the last one counts; what it waits for now is worth more than how the one before ended.
    found = next(filter(None, (_pod(snapshot, pod, is_of_job=True) for pod in snapshot.job_pods)), None)
    yield found or job_rules.retrying(snapshot, job)


# -- the server -----------------------------------------------------------------------------------------------


def _server(snapshot: Snapshot) -> Iterator[Finding | None]:
    if any(source in snapshot.unread for source in ("the Deployments", "the pods")):
        return
    namespace, deployment = f"namespace/{snapshot.namespace}", snapshot.deployment
    if deployment is None:  # not stuck: while it is being applied it does not exist yet
        what = f"has no Deployment llama-swap{'' if snapshot.job else ', and no Job download-models'}: nothing serves."
        yield Finding(namespace, what, "", "corral apply", is_stuck=False, cause=Cause.ABSENT)
        return
    subject = f"deployment/{name_of(deployment)}"
    if deployment["spec"].get("replicas", 1) == 0:
        step = snapshot.kubectl("scale", subject, "--replicas=1")
        yield Finding(subject, "is scaled to 0: nothing serves.", "", step, is_stuck=True, cause=Cause.ABSENT)
        return
    if snapshot.service is None and "the Services" not in snapshot.unread:
        what = "has no Service llama-swap: clients reach no server."
        yield Finding(namespace, what, "", "corral apply", is_stuck=False, cause=Cause.ABSENT)
    pods = snapshot.server_pods
    ready, failure = [pod for pod in pods if is_ready(pod)], condition(deployment, "ReplicaFailure")
    yield _removed(snapshot, pods)
    if ready:
        yield _unguarded(snapshot)
        yield from (container_rules.ended(snapshot, pod, runs_again=True) for pod in ready)
    elif failure.get("status") == "True":
        yield job_rules.refused(snapshot, subject, message_of(failure))
    elif pods:
        yield from (_pod(snapshot, pod) for pod in pods)
    elif (age := snapshot.age(deployment)) > _START_LIMIT_S:
        what = f"has no pod, {duration(age)} after it was made, and no object or event shows why."
        event, step = message_of(condition(deployment, "Progressing")), snapshot.kubectl("describe", subject)
        yield Finding(subject, what, event, step, is_stuck=False, cause=Cause.UNKNOWN)


def _beside(snapshot: Snapshot) -> Iterator[Finding | None]:
    """About the models with a pod of their own, which llama-swap passes requests on to."""
    for model, one in snapshot.model_deployments.items():
        subject, failure = f"deployment/{name_of(one)}", condition(one, "ReplicaFailure")
        if one["spec"].get("replicas", 1) == 0:
            step = snapshot.kubectl("scale", subject, "--replicas=1")
            what = f"is scaled to 0: {model} is not served."
            yield Finding(subject, what, "", step, is_stuck=True, cause=Cause.ABSENT)
        elif pod := snapshot.model_pods.get(model):
            yield container_rules.ended(snapshot, pod, runs_again=True) if is_ready(pod) else _pod(snapshot, pod)
        elif failure.get("status") == "True":
            yield job_rules.refused(snapshot, subject, message_of(failure))


def _unguarded(snapshot: Snapshot) -> Finding | None:
    """A missing policy of those without which other pods reach the server, or it reaches them."""
    if snapshot.policies is None:
        return None
    wanted = dict.fromkeys((*POLICIES, name_of(snapshot.deployment) if snapshot.deployment else SERVER))
    missing = [name for name in wanted if name not in map(name_of, snapshot.policies)]
    if not missing:
        return None
    what = f"has no NetworkPolicy {' and no '.join(missing)}: connections are open that the stack closes."
    subject = f"namespace/{snapshot.namespace}"
    return Finding(subject, what, "", "corral apply", is_stuck=False, cause=Cause.ABSENT)


# -- any pod --------------------------------------------------------------------------------------------------


def _pod(snapshot: Snapshot, pod: Object, *, is_of_job: bool = False) -> Finding | None:
    phase = at(pod, "status", "phase")
    if phase == "Succeeded":
        return None
    if at(pod, "metadata", "deletionTimestamp"):
        return _stopping(snapshot, pod)
    if phase == "Failed":
        # How a container of the Job ended is a finding about the Job.
        return None if is_of_job or _is_removed(pod) else container_rules.ended(snapshot, pod)
    rules = (scheduling_rules.unscheduled, container_rules.waiting, _sandbox, claim_rules.unmounted)
    for rule in rules if is_of_job else (*rules, container_rules.ended):
        if found := rule(snapshot, pod):
            return found
    if is_ready(pod) or (is_of_job and phase == "Running"):
        return None
    node = next((one for one in snapshot.nodes if name_of(one) == at(pod, "spec", "nodeName")), None)
    dead = _node(snapshot, node) if node and not is_true(node, "Ready") else None
    return container_rules.unwell(snapshot, pod) or dead or _unexplained(snapshot, pod)


def _sandbox(snapshot: Snapshot, pod: Object) -> Finding | None:
    reasons = ("FailedCreatePodSandBox", "NetworkNotReady", "FailedPrepareDynamicResources")
    message, subject = snapshot.last_message(pod, "Pod", *reasons), f"pod/{name_of(pod)}"
    if not message or has_started(pod):
        return None
    what, step = "cannot start: its sandbox, or its network, cannot be made.", snapshot.kubectl("describe", subject)
    if found := _NO_HANDLER.search(message):
        node, name = at(pod, "spec", "nodeName"), found["name"] or found["crio"]
        what = (
            f"cannot start: the container runtime of node {node} has no handler {name}, which its RuntimeClass names."
        )
        step = snapshot.kubectl("describe", "runtimeclasses")
    return Finding(subject, what, message, step, is_stuck=bool(found), cause=Cause.RUNTIME)


def _removed(snapshot: Snapshot, pods: Sequence[Object]) -> Finding | None:
    """The kubelet ended some of *pods* within the last hour, or did not take them; about the last one."""
    gone = [one for one in pods if _is_removed(one) and snapshot.age(one) < _RECENT_S]
    if not gone:
        return None
    pod, reason, message = gone[0], at(gone[0], "status", "reason"), message_of(gone[0]["status"])
    subject, node = f"pod/{name_of(pod)}", at(pod, "spec", "nodeName")
    how = "was evicted from" if reason == "Evicted" else f"was not kept ({reason}) by"
    before = f", as {count(len(gone) - 1, 'other pod')} within the hour" if len(gone) > 1 else ""
    what = f"{how} node {node}{before}: {message or 'no reason was given.'}"
    step = snapshot.kubectl("describe", f"node/{node}" if node else subject)
    return Finding(subject, what, message, step, is_stuck=False, cause=Cause.EVICTED)


def _is_removed(pod: Object) -> bool:
    return bool(at(pod, "status", "phase") == "Failed" and at(pod, "status", "reason"))


def _stopping(snapshot: Snapshot, pod: Object) -> Finding | None:
    over = snapshot.seconds_since(pod["metadata"]["deletionTimestamp"])  # the time by which it should be gone
    if over <= _STOP_LIMIT_S:
        return None
    subject, node = f"pod/{name_of(pod)}", at(pod, "spec", "nodeName")
    what = f"should have been gone {duration(over)} ago: its node {node} does not stop it."
    step = snapshot.kubectl("delete", subject, "--force", "--grace-period=0")
    return Finding(subject, what, "", step, is_stuck=False, cause=Cause.NODE)


def _unexplained(snapshot: Snapshot, pod: Object) -> Finding | None:
    age, phase, subject = snapshot.age(pod), at(pod, "status", "phase") or "unknown", f"pod/{name_of(pod)}"
    if age <= _START_LIMIT_S and phase in ("Pending", "Running"):
        return None
    warnings = [message_of(one) for one in snapshot.events_of(pod, "Pod") if one.get("type") == "Warning"]
    what = f"is not ready after {duration(age)} (phase {phase}), and no object or event shows why."
    event, step = warnings[-1] if warnings else "", snapshot.kubectl("describe", subject)
    return Finding(subject, what, event, step, is_stuck=False, cause=Cause.UNKNOWN)


# -- nodes ----------------------------------------------------------------------------------------------------


def _node(snapshot: Snapshot, node: Object) -> Finding | None:
    ready, pressure = condition(node, "Ready"), next((kind for kind in _PRESSURE if is_true(node, kind)), None)
    if ready.get("status") != "True":
        silent = ready.get("status") in (None, "Unknown")
        what, event = f"is not ready{': its kubelet no longer reports' if silent else ''}.", message_of(ready)
    elif pressure:
        what, event = f"has {pressure}: it may end pods.", message_of(condition(node, pressure))
    else:
        return None
    subject = f"node/{name_of(node)}"
    return Finding(subject, what, event, snapshot.kubectl("describe", subject), is_stuck=False, cause=Cause.NODE)
