"""Rules for containers: images, settings, starts that fail, ends, and probes."""

from __future__ import annotations

import re

from corral.agent.progress import count, duration
from corral.cluster import claim_rules
from corral.cluster.client import Object
from corral.cluster.finding import Cause, Finding
from corral.cluster.snapshot import (
    SERVER,
    Snapshot,
    at,
    containers,
    image_key,
    last_end,
    listed,
    message_of,
    name_of,
    seconds,
)

_IMAGE = re.compile(
    r"ErrImage(Never)?Pull|ImagePullBackOff|InvalidImageName|ImageInspectError|RegistryUnavailable|SignatureValidation"
)
_MISSING_FILE = re.compile(r"\bstartup: file-missing path=(?P<path>.+?): ")  # started.sh
_LASTING = re.compile(r"executable file not found|no such file or directory|permission denied|not a directory")
_FROM = "corral/image-from"  # annotation of a Deployment whose image is not the lock's
_NEVER_RAN = {"StartError", "ContainerCannotRun"}
_STARTING = {"", "ContainerCreating", "PodInitializing"}
_OFTEN = 3  # starts that fail one after the other
_RECENT_S = 3600.0

# What a registry or a runtime reports about an image: a pattern, a sentence, and whether waiting may heal it.
_IMAGE_TROUBLE: tuple[tuple[str, str, bool], ...] = (
    (r"toomanyrequests|429 Too Many", "the registry limits the rate of this address", True),
    (r"x509|tls: |HTTP response to HTTPS client", "the TLS connection between the node and the registry fails", False),
    (
        r"no such host|no route to host|network is unreachable|i/o timeout|connection re(?:fused|set)|EOF| 50\d ",
        "the node does not reach the registry",
        True,
    ),
    (r"no match for platform", "the image is not built for the node's architecture", False),
    (
        r"unauthorized|authorization failed|403 Forbidden|401 Unauthorized|denied",
        "the registry does not give it to this node, or there is no such image",
        False,
    ),
    (r"not found|manifest unknown|name unknown|does not exist", "there is no such image", False),
    (r"no space left", "the node's disk is full", True),
    (r"invalid reference|InvalidImageName|couldn't parse image", "that is no name of an image", False),
    (r"pull policy of Never", "the node does not have it, and may not pull it", False),
    (r"", "the reason is in the runtime's message", True),
)


def waiting(snapshot: Snapshot, pod: Object) -> Finding | None:
    """A container that cannot start, or ended and waits to be started again."""
    for container in containers(pod):
        state = at(container, "state", "waiting") or {}
        reason = str(state.get("reason") or "")
        if reason in _STARTING:
            continue
        if _IMAGE.match(reason):
            return _image(snapshot, pod, container, state)
        if reason == "CrashLoopBackOff":
            return _crashed(snapshot, pod, container)
        return _start(snapshot, pod, container, state)
    return None


def _image(snapshot: Snapshot, pod: Object, container: Object, state: Object) -> Finding:
    subject, message = f"pod/{name_of(pod)}", _reason_and_message(state)
    if message.endswith('"'):  # a back-off alone: the event of the attempt has the reason
        events = snapshot.events_of(pod, "Pod", "Failed", "InspectFailed", "ErrImageNeverPull")
        attempts = [message_of(one) for one in reversed(events)]
        message = next((one for one in attempts if not one.startswith("Error: ")), message)
    _, trouble, heals = next(row for row in _IMAGE_TROUBLE if re.search(row[0], message))
    what = f"cannot get the image {_spec(pod, container).get('image') or container.get('image')}: {trouble}."
    if heals:
        step = snapshot.kubectl("describe", subject)
    else:  # without --upgrade a digest that is locked stays, whether the registry still has it or not
        key = image_key(container["name"], [one["name"] for one in _specs(pod)])
        what, step = _where_corrected(snapshot, container, what, f"corral lock --upgrade {key}")
    return Finding(subject, what, message, step, is_stuck=not heals, cause=Cause.IMAGE)


def _where_corrected(snapshot: Snapshot, container: Object, what: str, relock: str) -> tuple[str, str]:
    """*what* and the command to type: *relock*, unless the image of *container* is not the lock's."""
    if container["name"] != SERVER or at(snapshot.deployment, "metadata", "annotations", _FROM) is None:
        return what, relock
    return f"{what} It is not the lock's: correct image in terraform.tfvars.", "corral apply"


def _start(snapshot: Snapshot, pod: Object, container: Object, state: Object) -> Finding:
    subject, message, name = f"pod/{name_of(pod)}", _reason_and_message(state), container["name"]
    if found := claim_rules.missing_object(snapshot, subject, message):
        return found
    step, stuck = snapshot.kubectl("describe", subject), True
    if "runAsNonRoot" in message:
        what, cause = f"may not run as root, and the image of its container {name} would.", Cause.IMAGE
        what, step = _where_corrected(snapshot, container, what, "corral lock")
    elif state["reason"] == "CreateContainerConfigError":
        what, cause = f"has a setting for its container {name} that cannot be met.", Cause.CONFIGURATION
    else:
        what, cause = f"cannot start its container {name} ({state['reason']}).", Cause.RUNTIME
        stuck = bool(_LASTING.search(message))
    return Finding(subject, what, message, step, is_stuck=stuck, cause=cause)


def _crashed(snapshot: Snapshot, pod: Object, container: Object) -> Finding:
    """It ended, and is started again and again."""
    end, restarts = last_end(container), int(container.get("restartCount") or 0)
    if end.get("reason") in _NEVER_RAN:
        return _start(snapshot, pod, container, end)
    stuck = restarts >= _OFTEN
    if is_out_of_memory(end):
        return _out_of_memory(snapshot, pod, container, is_stuck=stuck)
    subject, name, line = f"pod/{name_of(pod)}", container["name"], snapshot.last_line(pod, container["name"])
    what = f"has a container {name} that ends again and again ({_how(end)}{_so_far(restarts)})"
    what += f"; its last log line: {line}" if line else "; its log could not be read."
    step = snapshot.kubectl("logs", subject, "-c", name, "--previous")
    event = snapshot.last_message(pod, "Pod", "BackOff")
    return Finding(subject, what, event, step, is_stuck=stuck, cause=Cause.CRASH)


def is_out_of_memory(end: Object) -> bool:
    """Whether the kernel ended it for its memory."""
    return end.get("reason") == "OOMKilled"


def _out_of_memory(snapshot: Snapshot, pod: Object, container: Object, *, is_stuck: bool) -> Finding:
    subject, name, end = f"pod/{name_of(pod)}", container["name"], last_end(container)
    limit = at(_spec(pod, container), "resources", "limits", "memory")
    restarts = int(container.get("restartCount") or 0)
    what = f"took more memory than its container {name} may have{f' ({limit})' if limit else ''}"
    what += f" and was killed for it{_ago(snapshot, end)}{_so_far(restarts)}."
    step = snapshot.kubectl("logs", subject, "-c", name, *(["--previous"] if restarts else []))
    return Finding(subject, what, _reported(end), step, is_stuck=is_stuck, cause=Cause.MEMORY)


def ended(snapshot: Snapshot, pod: Object, *, runs_again: bool = False) -> Finding | None:
    """A container has ended badly: within the last hour if it *runs_again*, else with nothing in its place yet."""
    for container in containers(pod):
        end = at(container, "lastState" if runs_again else "state", "terminated") or {}
        is_recent = snapshot.now - seconds(end.get("finishedAt")) <= _RECENT_S
        if not end.get("exitCode") or (runs_again and not is_recent):
            continue
        if is_out_of_memory(end):
            return _out_of_memory(snapshot, pod, container, is_stuck=False)
        subject, name, line = f"pod/{name_of(pod)}", container["name"], snapshot.last_line(pod, container["name"])
        what = f"runs again after its container {name} ended" if runs_again else f"has a container {name} that ended"
        what += f"{_ago(snapshot, end)} ({_how(end)})"
        what += f"; its last log line: {line}" if line else "." if runs_again else "; it logged nothing."
        step = snapshot.kubectl("logs", subject, "-c", name, *(["--previous"] if runs_again else []))
        return Finding(subject, what, _reported(end), step, is_stuck=False, cause=Cause.CRASH)
    return None


def unwell(snapshot: Snapshot, pod: Object) -> Finding | None:
    """It runs, and a probe of it fails."""
    message = snapshot.last_message(pod, "Pod", "Unhealthy")
    if not message:
        return None
    probe = message.partition(" probe")[0].lower() if " probe" in message else "a"
    subject, what = f"pod/{name_of(pod)}", f"runs, but its {probe} probe fails."
    step = snapshot.kubectl("logs", subject, "--tail=50")
    return Finding(subject, what, message, step, is_stuck=False, cause=Cause.PROBE)


def missing_file(event: str) -> str:
    """The file that the startup probe did not find, by the *event* of its failure; empty when it is another event."""
    return found["path"] if (found := _MISSING_FILE.search(event)) else ""


def _how(end: Object) -> str:
    code, signal = end.get("exitCode"), end.get("signal")
    if signal or (isinstance(code, int) and code > 128):
        return f"killed by signal {signal or int(code or 0) - 128}"
    return f"exit code {code}" if code is not None else "exit code unknown"


def _ago(snapshot: Snapshot, end: Object) -> str:
    finished = end.get("finishedAt")
    return f" {duration(snapshot.seconds_since(finished))} ago" if finished else ""


def _so_far(restarts: int) -> str:
    return f", {count(restarts, 'restart')} so far" if restarts else ""


def _reported(end: Object) -> str:
    return message_of(end) or str(end.get("reason") or "")


def _reason_and_message(state: Object) -> str:
    return ": ".join(part for part in (str(state["reason"]), message_of(state)) if part)


def _spec(pod: Object, container: Object) -> Object:
    return next((one for one in _specs(pod) if one["name"] == container["name"]), {})


def _specs(pod: Object) -> list[Object]:
    return [*listed(pod, "spec", "initContainers"), *pod["spec"]["containers"]]
