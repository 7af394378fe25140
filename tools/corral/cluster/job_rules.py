"""Rules for the download: what the agent said when it gave up, and what that asks of the operator."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from corral.agent.progress import count, duration
from corral.cluster import claim_rules, container_rules
from corral.cluster.client import Object
from corral.cluster.finding import Cause, Finding
from corral.cluster.snapshot import (
    Snapshot,
    annotation,
    claims_of,
    condition,
    containers,
    is_true,
    last_end,
    pod_spec,
    secrets_of,
)

_ERROR = re.compile(r"^agent \w+: (?P<message>.+)$")
_NOT_BY_WAITING = 2  # the agent's exit code for what the lock or the settings have wrong
_FULL = re.compile(r"no room left|are to be fetched and .* kept free")
_UNWRITABLE = re.compile(r"cannot be written|does not work as it should")
_STOPPED = "Stopped before the end"  # the agent, when its pod is taken away
_OFTEN = 2  # times out of memory: once may have been the neighbours' doing

ENDED_FOR = "corral/ended-for"
"""Annotation of a Job that was ended with the apply that waited for it: the finding that was the reason, as JSON.

Null where there was none: whoever ran the apply stopped it.
"""
_NO_FINDING = "null"


@dataclass(frozen=True)
class LastWords:
    """How the agent ended: its sentence, its exit code and the container that it ran in; the sentence may be empty."""

    sentence: str
    code: int | None
    container: str
    is_out_of_memory: bool = False
    event: str = ""


def failed(seen: Snapshot, job: Object) -> Finding | None:
    """It has given up."""
    if not is_true(job, "Failed"):
        return None
    told = condition(job, "Failed")
    event = f"{told.get('reason', '')}: {' '.join(str(told.get('message', '')).split())}"
    subject = f"job/{job['metadata']['name']}"
    words = last_words(seen)
    noted = annotation(job, ENDED_FOR)
    late = told.get("reason") == "DeadlineExceeded"
    # A pod that failed by itself knows better than the note what is wrong, but not who ended the Job.
    by_operator = noted == _NO_FINDING and late
    if noted is not None and (words is None or words.sentence.startswith(_STOPPED) or by_operator):
        return _ended(noted, subject, event)
    if words is None:
        limit = job["spec"].get("activeDeadlineSeconds")
        what = f"was not done within {duration(limit)}" if late and limit else "has failed"
        what += "; what its pod said is gone with the pod."
        step = "corral apply" if late else seen.kubectl("describe", subject)  # a new Job goes on where this one was
        return Finding(subject, what, event, step, is_stuck=True, cause=Cause.DOWNLOAD)
    what, step = _explain(seen, job, words)
    return Finding(subject, f"has failed: {what}", event, step, is_stuck=True, cause=Cause.DOWNLOAD)


def _ended(noted: str, subject: str, event: str) -> Finding:
    """Whoever applied did not wait any longer; its pod is gone, and what was wrong with it stands in the annotation."""
    if noted == _NO_FINDING:
        what = "was ended, because its operator stopped the apply that waited for it; the next goes on where it was."
        return Finding(subject, what, event, "corral apply", is_stuck=True, cause=Cause.DOWNLOAD)
    try:
        why = Finding(**json.loads(noted))
        cause = Cause(why.cause)
    except (TypeError, ValueError):
        what = "was ended, because the apply that waited for it was stopped."
        return Finding(subject, what, event, "corral apply", is_stuck=True, cause=Cause.DOWNLOAD)
    what = f"was ended with the apply that waited for it, because {why.subject} {why.what}"
    what += "" if why.next_step == "corral apply" else " When that is mended: corral apply"
    return Finding(subject, what, why.event or event, why.next_step, is_stuck=True, cause=cause)


def retrying(seen: Snapshot, job: Object) -> Finding | None:
    """A pod of it failed and the Job tries again."""
    # A pod that has just ended is counted by the Job a moment later.
    ended = sum(any(last_end(one).get("exitCode") for one in containers(pod)) for pod in seen.job_pods)
    attempts = max(int(job.get("status", {}).get("failed") or 0), ended)
    if not attempts or is_true(job, "Complete") or is_true(job, "Failed") or (words := last_words(seen)) is None:
        return None
    what, step = _explain(seen, job, words)
    limit = job["spec"].get("backoffLimit", 6)
    told = f"has failed {count(attempts, 'time')} (it gives up after {limit + 1}), last with: {what}"
    again = words.is_out_of_memory and attempts >= _OFTEN
    at_the_store = _FULL.search(words.sentence) or _UNWRITABLE.search(words.sentence)
    stuck = words.code == _NOT_BY_WAITING or again or bool(at_the_store)
    return Finding(f"job/{job['metadata']['name']}", told, words.event, step, is_stuck=stuck, cause=Cause.DOWNLOAD)


def uncreated(seen: Snapshot, job: Object) -> Finding | None:
    """No pod could be made for it."""
    active = int(job.get("status", {}).get("active") or 0)
    if active or is_true(job, "Complete") or is_true(job, "Failed") or seen.job_pods:
        return None
    if job["spec"].get("suspend"):
        subject = f"job/{job['metadata']['name']}"
        step = seen.kubectl("patch", subject, "--patch", '{"spec": {"suspend": false}}')
        return Finding(subject, "is suspended.", "", step, is_stuck=True, cause=Cause.DOWNLOAD)
    said = seen.said(job, "Job", "FailedCreate")
    return refused(seen, f"job/{job['metadata']['name']}", said) if said else None


def refused(seen: Snapshot, subject: str, said: str) -> Finding:
    """A pod was refused when it was to be made."""
    step, stuck = seen.kubectl("describe", subject), True
    if "violates PodSecurity" in said:
        rule = re.search(r'violates PodSecurity "(?P<level>[^":]+)[^"]*": (?P<rules>.*)', said)
        level = rule["level"] if rule else "?"
        what = f"may not make its pod: it breaks Pod Security {level} of the namespace: {rule['rules'] if rule else ''}"
        step = seen.kubectl("get", f"namespace/{seen.namespace}", "--show-labels", is_namespaced=False)
    elif found := re.search(r'RuntimeClass "(?P<name>[^"]+)" not found', said):
        what = f"may not make its pod: there is no RuntimeClass {found['name']} in this cluster."
        step = seen.kubectl("get", "runtimeclasses", is_namespaced=False)
    elif "exceeded quota" in said:
        what = "may not make its pod: a ResourceQuota of the namespace is used up."
        step = seen.kubectl("describe", "resourcequotas")
    elif found := re.search(r'serviceaccount "(?P<name>[^"]+)" not found', said):
        what, stuck = f"may not make its pod: there is no ServiceAccount {found['name']} yet.", False
    else:
        what = "may not make its pod."
    return Finding(subject, what, said, step, is_stuck=stuck, cause=Cause.REFUSED)


def last_words(seen: Snapshot) -> LastWords | None:
    """Of the last pod of the Job that failed; None when no such pod is there any more."""
    for pod in seen.job_pods:
        ends = [(one, last_end(one)) for one in containers(pod)]
        bad = [(one, end) for one, end in ends if end.get("exitCode")]
        if not bad:
            continue
        container, end = bad[0]
        lines = seen.logs.get((pod["metadata"]["name"], container["name"]), "").splitlines()
        errors = [found["message"] for line in lines if (found := _ERROR.match(line.strip()))]
        last = errors[-1] if errors else seen.last_line(pod, container["name"])
        event = f"pod/{pod['metadata']['name']}: {end.get('reason') or 'Error'}, exit code {end['exitCode']}"
        return LastWords(last, end["exitCode"], container["name"], container_rules.is_out_of_memory(end), event)
    return None


def _explain(seen: Snapshot, job: Object, words: LastWords) -> tuple[str, str]:
    """What went wrong, and what to type."""
    name = f"job/{job['metadata']['name']}"
    logs = seen.kubectl("logs", name, "-c", words.container)
    said = words.sentence
    if words.is_out_of_memory:
        return f"its container {words.container} took more memory than it may have and was killed.", seen.kubectl(
            "describe", name
        )
    if not said:
        return f"its container {words.container} ended with exit code {words.code} and said nothing.", seen.kubectl(
            "describe", name
        )
    if _FULL.search(said):
        return f"the store is full: {said}", _at_the_store(seen, job, "df -h", logs)
    if _UNWRITABLE.search(said):
        return f"the store cannot be written: {said}", _at_the_store(seen, job, "ls -ldn", logs)
    if "does not exist" in said and "hub answered" in said:
        return f"the hub does not have a file of the lock: {said}", "corral lock --upgrade"
    if "The hub answered 40" in said:
        return f"the hub does not give a file (a gated repo, or a wrong token): {said}", _token(seen, job)
    if re.search(r"sha256|is not the file that was locked", said):
        return f"what the hub gives is not what was locked: {said}", "corral lock --upgrade"
    if re.search(r"certificate|plain HTTP|no address of a hub|not the address of a hub", said):
        return f"the hub's address is not accepted: {said}", logs
    if re.search(r"no lock|lock.*(is not JSON|cannot be read|version)", said):
        return f"the lock is not usable: {said}", "corral lock"
    return said if said.endswith(".") else f"{said}.", logs


def _at_the_store(seen: Snapshot, job: Object, command: str, otherwise: str) -> str:
    names = claims_of(pod_spec(job))
    volumes = [seen.volume_of(claim) for claim in seen.claims if claim["metadata"]["name"] in names]
    volume = next((one for one in volumes if one), None)
    return claim_rules.look_at_the_store(seen, volume, command) if volume else otherwise


def _token(seen: Snapshot, job: Object) -> str:
    """How the token is put there: into the Secret that the Job mounts, else into one that the stack is then told of."""
    name = next(iter(secrets_of(pod_spec(job))), "")
    if name:
        return seen.kubectl("describe", f"secret/{name}")
    return seen.kubectl("create", "secret", "generic", "hf-token", "--from-file=token=/dev/stdin")
