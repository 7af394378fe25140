"""Rules for containers: images, settings, starts that fail, ends, and probes."""

from __future__ import annotations

import re
from collections.abc import Iterable

from corral.agent.progress import count, duration
from corral.cluster import claim_rules
from corral.cluster.client import Object
from corral.cluster.finding import Cause, Finding
from corral.cluster.snapshot import SERVER, Snapshot, annotation, containers, last_end, message, seconds

_IMAGE = {
    "ErrImagePull",
    "ImagePullBackOff",
    "InvalidImageName",
    "ErrImageNeverPull",
    "ImageInspectError",
    "RegistryUnavailable",
    "SignatureValidationFailed",
}
_MISSING_FILE = re.compile(r"\bstartup: file-missing path=(?P<path>.+?): ")  # started.sh
_FROM = "corral/image-from"  # annotation of a Deployment whose image is not the lock's
_NEVER_RAN = {"StartError", "ContainerCannotRun"}
_COMING = {"ContainerCreating", "PodInitializing"}
_OFTEN = 3  # starts that fail one after the other
_RECENT_S = 3600.0

# What a registry or a runtime says of an image: a sentence, and whether waiting may heal it.
_IMAGE_TROUBLE: tuple[tuple[str, str, bool], ...] = (
    (r"toomanyrequests|429 Too Many", "the registry gives no more images to this address for now (rate limit)", True),
    (
        r"x509|tls: |HTTP response to HTTPS client",
        "the node and the registry do not agree on how to speak (TLS)",
        False,
    ),
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
)


def waiting(seen: Snapshot, pod: Object) -> Finding | None:
    """A container that cannot start, or ended and waits to be started again."""
    for container in containers(pod):
        state = (container.get("state") or {}).get("waiting")
        if not state or state.get("reason") in _COMING or not state.get("reason"):
            continue
        reason = str(state["reason"])
        if reason in _IMAGE:
            return _image(seen, pod, container, state)
        if reason == "CrashLoopBackOff":
            return crashed(seen, pod, container)
        return _start(seen, pod, container, state)
    return None


def _image(seen: Snapshot, pod: Object, container: Object, state: Object) -> Finding:
    said = _told(state)
    if said.endswith('"'):  # a back-off alone: the event of the attempt says why
        attempts = [message(one) for one in seen.events_of(pod, "Pod", "Failed", "InspectFailed", "ErrImageNeverPull")]
        said = next((one for one in reversed(attempts) if not one.startswith("Error: ")), said)
    cause, heals = next(
        ((words, heals) for text, words, heals in _IMAGE_TROUBLE if re.search(text, said)),
        ("why, only the runtime's words say", True),
    )
    what = f"cannot get the image {_image_of(pod, container)}: {cause}."
    if heals:
        step = seen.kubectl("describe", _subject(pod))
        return Finding(_subject(pod), what, said, step, is_stuck=False, cause=Cause.IMAGE)
    # Without --upgrade a digest that is locked stays, whether the registry still has it or not.
    name = container["name"] if container["name"] == SERVER else "fetch"
    where, step = _other_image(seen, container, f"corral lock --upgrade {name}")
    return Finding(_subject(pod), f"{what}{where}", said, step, is_stuck=True, cause=Cause.IMAGE)


def _other_image(seen: Snapshot, container: Object, relock: str) -> tuple[str, str]:
    """Where the image of *container* is corrected when it is not the lock's, and the command to type then."""
    if container["name"] != SERVER or seen.deployment is None or annotation(seen.deployment, _FROM) is None:
        return "", relock
    return " It is not the lock's: correct image in terraform.tfvars.", "corral apply"


def _start(seen: Snapshot, pod: Object, container: Object, state: Object) -> Finding:
    said, subject = _told(state), _subject(pod)
    if found := claim_rules.missing_object(seen, subject, said):
        return found
    step = seen.kubectl("describe", subject)
    if "runAsNonRoot" in said:
        what = f"may not run as root, and the image of its container {container['name']} would."
        where, step = _other_image(seen, container, "corral lock")
        return Finding(subject, f"{what}{where}", said, step, is_stuck=True, cause=Cause.IMAGE)
    if state["reason"] == "CreateContainerConfigError":
        what = f"has a setting for its container {container['name']} that cannot be met."
        return Finding(subject, what, said, step, is_stuck=True, cause=Cause.CONFIGURATION)
    lasting = re.search(r"executable file not found|no such file or directory|permission denied|not a directory", said)
    what = f"cannot start its container {container['name']} ({state['reason']})."
    return Finding(subject, what, said, step, is_stuck=bool(lasting), cause=Cause.RUNTIME)


def crashed(seen: Snapshot, pod: Object, container: Object) -> Finding:
    """It ended, and is started again and again."""
    end, name, restarts = last_end(container), container["name"], int(container.get("restartCount") or 0)
    if end.get("reason") in _NEVER_RAN:
        return _start(seen, pod, container, end)
    stuck = restarts >= _OFTEN
    if is_out_of_memory(end):
        return _out_of_memory(seen, pod, container, is_stuck=stuck)
    last = seen.last_line(pod, name)
    again = f", {count(restarts, 'restart')} so far" if restarts else ""
    what = f"has a container {name} that ends again and again ({_exit(end)}{again})"
    what += f"; its last words: {last}" if last else "; what it said last could not be read."
    step = seen.kubectl("logs", _subject(pod), "-c", name, "--previous")
    return Finding(_subject(pod), what, seen.said(pod, "Pod", "BackOff"), step, is_stuck=stuck, cause=Cause.CRASH)


def is_out_of_memory(end: Object) -> bool:
    """Whether the kernel ended it for its memory."""
    return end.get("reason") == "OOMKilled"


def _out_of_memory(seen: Snapshot, pod: Object, container: Object, *, is_stuck: bool) -> Finding:
    limit = next(
        (
            (one.get("resources") or {}).get("limits", {}).get("memory")
            for one in _specs(pod)
            if one["name"] == container["name"]
        ),
        None,
    )
    restarts = int(container.get("restartCount") or 0)
    ago = _ago(seen, last_end(container))
    what = f"took more memory than its container {container['name']} may have"
    what += f" ({limit})" if limit else ""
    again = f", {count(restarts, 'restart')} so far" if restarts else ""
    what += f" and was killed for it{ago}{again}."
    step = seen.kubectl("logs", _subject(pod), "-c", container["name"], *(["--previous"] if restarts else []))
    return Finding(_subject(pod), what, _words(last_end(container)), step, is_stuck=is_stuck, cause=Cause.MEMORY)


def ended_lately(seen: Snapshot, pod: Object) -> Finding | None:
    """It runs again, but a container of it ended badly within the last hour."""
    for container in containers(pod):
        end = (container.get("lastState") or {}).get("terminated") or {}
        if end.get("exitCode") and seen.now - seconds(end.get("finishedAt")) <= _RECENT_S:
            return _ended(seen, pod, container, end, runs_again=True)
    return None


def failed_now(seen: Snapshot, pod: Object) -> Finding | None:
    """A container has ended badly and nothing was started in its place yet."""
    for container in containers(pod):
        end = (container.get("state") or {}).get("terminated") or {}
        if end.get("exitCode"):
            return _ended(seen, pod, container, end, runs_again=False)
    return None


def _ended(seen: Snapshot, pod: Object, container: Object, end: Object, *, runs_again: bool) -> Finding:
    if is_out_of_memory(end):
        return _out_of_memory(seen, pod, container, is_stuck=False)
    name = container["name"]
    what = f"runs again after its container {name} ended" if runs_again else f"has a container {name} that ended"
    what += f"{_ago(seen, end)} ({_exit(end)})"
    silent = "." if runs_again else "; it said nothing."
    what += f"; its last words: {last}" if (last := seen.last_line(pod, name)) else silent
    step = seen.kubectl("logs", _subject(pod), "-c", name, *(["--previous"] if runs_again else []))
    return Finding(_subject(pod), what, _words(end), step, is_stuck=False, cause=Cause.CRASH)


def unwell(seen: Snapshot, pod: Object) -> Finding | None:
    """It runs, and a probe of it fails."""
    said = seen.said(pod, "Pod", "Unhealthy")
    if not said:
        return None
    probe = said.partition(" probe")[0].lower() if " probe" in said else "a"
    what = f"runs, but its {probe} probe fails."
    step = seen.kubectl("logs", _subject(pod), "--tail=50")
    return Finding(_subject(pod), what, said, step, is_stuck=False, cause=Cause.PROBE)


def missing_file(event: str) -> str:
    """The file that the startup probe did not find, by the *event* of its failure; empty when it is another event."""
    return found["path"] if (found := _MISSING_FILE.search(event)) else ""


def _exit(end: Object) -> str:
    code, signal = end.get("exitCode"), end.get("signal")
    if signal or (isinstance(code, int) and code > 128):
        return f"killed by signal {signal or int(code or 0) - 128}"
    return f"exit code {code}" if code is not None else "nobody knows how"


def _ago(seen: Snapshot, end: Object) -> str:
    at = seconds(end.get("finishedAt"))
    return f" {duration(max(0.0, seen.now - at))} ago" if at else ""


def _words(end: Object) -> str:
    """How the end is told by Kubernetes."""
    return message(end) or str(end.get("reason") or "")


def _told(state: Object) -> str:
    said = message(state)
    return f"{state['reason']}: {said}" if said else str(state["reason"])


def _subject(pod: Object) -> str:
    return f"pod/{pod['metadata']['name']}"


def _specs(pod: Object) -> Iterable[Object]:
    return (*(pod["spec"].get("initContainers") or ()), *pod["spec"]["containers"])


def _image_of(pod: Object, container: Object) -> str:
    return next(
        (str(one.get("image")) for one in _specs(pod) if one["name"] == container["name"]), str(container.get("image"))
    )
