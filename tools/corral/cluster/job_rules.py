"""Rules for the download: how the agent ended, by its code and fields, and what the operator has to do."""

from __future__ import annotations

import contextlib
import json
import re
from typing import NamedTuple

from corral.agent import termination
from corral.agent.errors import Code
from corral.agent.progress import count, duration
from corral.cluster import claim_rules
from corral.cluster.client import Object
from corral.cluster.container_rules import is_out_of_memory
from corral.cluster.finding import Cause, Finding
from corral.cluster.snapshot import Snapshot, at, condition, containers, last_end, listed, message_of, name_of, pod_spec

ENDED_FOR = "corral/ended-for"
"""Annotation of a Job that was ended with the apply that waited for it: the finding that was the reason, as JSON.

Null where there was none: its operator stopped the apply.
"""
_NO_FINDING = "null"
_REFUSED_BY_AGENT = 2  # its exit code for an error in the lock or the settings, which waiting does not heal
_AT_THE_STORE = {Code.STORE_FULL: "df -h", Code.STORE_UNUSABLE: "ls -ldn"}
_OFTEN = 2  # times out of memory: a single one may have been caused by other processes

# What a code of the agent means, and the command to type where it is the same for every Job.
_MEANINGS: dict[Code, tuple[str, str]] = {
    Code.STORE_FULL: ("the store is full", ""),
    Code.STORE_UNUSABLE: ("the store cannot be written", ""),
    Code.NOT_ON_HUB: ("the hub does not have a file of the lock", "corral lock --upgrade"),
    Code.NOT_PERMITTED: ("the hub does not give a file (a gated repo, or a wrong token)", ""),
    Code.CONTENT_DIFFERS: ("what the hub gives is not what was locked", "corral lock --upgrade"),
    Code.HUB_ADDRESS: ("the hub's address is not accepted", ""),
    Code.LOCK_UNUSABLE: ("the lock is not usable", "corral lock"),
}


class _AgentEnd(NamedTuple):
    """How the agent ended: its container, how Kubernetes reports it, and its reason in words, which may be empty."""

    container: str
    exit_code: int
    is_out_of_memory: bool
    event: str
    code: Code
    sentence: str


def failed(snapshot: Snapshot, job: Object) -> Finding | None:
    """It has given up."""
    ended = condition(job, "Failed")
    if ended.get("status") != "True":
        return None
    end, note = _agent_end(snapshot), at(job, "metadata", "annotations", ENDED_FOR)
    is_late = ended.get("reason") == "DeadlineExceeded"
    subject, event = f"job/{name_of(job)}", f"{ended.get('reason', '')}: {message_of(ended)}"
    # A pod that failed by itself knows better than the note what is wrong, but not who ended the Job.
    if note is not None and (end is None or end.code is Code.STOPPED or (note == _NO_FINDING and is_late)):
        return _ended(note, subject, event)
    if end is None:
        limit = at(job, "spec", "activeDeadlineSeconds")
        what = f"was not done within {duration(limit)}" if is_late and limit else "has failed"
        what += "; the reason is gone with its pod."
        step = snapshot.kubectl("describe", subject)
        step = "corral apply" if is_late else step  # a new Job goes on where this one was
    else:
        explanation, step = _explain(snapshot, job, end)
        what = f"has failed: {explanation}"
    return Finding(subject, what, event, step, is_stuck=True, cause=Cause.DOWNLOAD)


def _ended(note: str, subject: str, event: str) -> Finding:
    """The apply did not wait any longer; its pod is gone, and the annotation *note* holds what was wrong with it."""
    what = "was ended, because the apply that waited for it was stopped."
    if note == _NO_FINDING:
        what = "was ended, because its operator stopped the apply that waited for it; the next goes on where it was."
    step, cause = "corral apply", Cause.DOWNLOAD
    with contextlib.suppress(TypeError, ValueError):
        why = Finding(**json.loads(note))
        cause = Cause(why.cause)
        fixed = "" if why.next_step == step else f" When that is fixed: {step}"
        what = f"was ended with the apply that waited for it, because {why.subject} {why.what}{fixed}"
        event, step = why.event or event, why.next_step
    return Finding(subject, what, event, step, is_stuck=True, cause=cause)


def retrying(snapshot: Snapshot, job: Object) -> Finding | None:
    """A pod of it failed and the Job tries again."""
    # A pod that has just ended is counted by the Job a moment later.
    ended = sum(any(last_end(one).get("exitCode") for one in containers(pod)) for pod in snapshot.job_pods)
    attempts = max(int(at(job, "status", "failed") or 0), ended)
    if not attempts or (end := _agent_end(snapshot)) is None:
        return None
    explanation, step = _explain(snapshot, job, end)
    limit = job["spec"].get("backoffLimit", 6)
    what = f"has failed {count(attempts, 'time')} (it gives up after {limit + 1}), last with: {explanation}"
    runs_out_of_memory = end.is_out_of_memory and attempts >= _OFTEN
    is_stuck = end.exit_code == _REFUSED_BY_AGENT or runs_out_of_memory or end.code in _AT_THE_STORE
    return Finding(f"job/{name_of(job)}", what, end.event, step, is_stuck=is_stuck, cause=Cause.DOWNLOAD)


def uncreated(snapshot: Snapshot, job: Object) -> Finding | None:
    """No pod could be made for it."""
    subject = f"job/{name_of(job)}"
    if at(job, "status", "active") or snapshot.job_pods:
        return None
    if job["spec"].get("suspend"):
        step = snapshot.kubectl("patch", subject, "--patch", '{"spec": {"suspend": false}}')
        return Finding(subject, "is suspended.", "", step, is_stuck=True, cause=Cause.DOWNLOAD)
    message = snapshot.last_message(job, "Job", "FailedCreate")
    return refused(snapshot, subject, message) if message else None


# How the API server refuses a pod that is to be made: a pattern, the sentence, the command, and whether it is stuck.
_REFUSALS: tuple[tuple[str, str, str, bool], ...] = (
    (
        r'violates PodSecurity "(?P<level>[^":]+)[^"]*": (?P<rules>.*)',
        ": it breaks Pod Security {level} of the namespace: {rules}",
        "get namespace/{namespace} --show-labels",
        True,
    ),
    (
        r'RuntimeClass "(?P<name>[^"]+)" not found',
        ": there is no RuntimeClass {name} in this cluster.",
        "get runtimeclasses",
        True,
    ),
    (r"exceeded quota", ": a ResourceQuota of the namespace is used up.", "describe resourcequotas", True),
    (
        r'serviceaccount "(?P<name>[^"]+)" not found',
        ": there is no ServiceAccount {name} yet.",
        "describe {subject}",
        False,
    ),
    (r"", ".", "describe {subject}", True),
)


def refused(snapshot: Snapshot, subject: str, message: str) -> Finding:
    """The API server refused the pod that *subject* was to make, with *message*."""
    found, row = next((found, row) for row in _REFUSALS if (found := re.search(row[0], message)))
    _, what, step, is_stuck = row
    names = found.groupdict() | {"subject": subject, "namespace": snapshot.namespace}
    words = [word.format(**names) for word in step.split()]
    what = f"may not make its pod{what.format(**names)}"
    return Finding(subject, what, message, snapshot.kubectl(*words), is_stuck=is_stuck, cause=Cause.REFUSED)


def _agent_end(snapshot: Snapshot) -> _AgentEnd | None:
    """Of the last pod of the Job that failed; None when no such pod exists any more."""
    for pod in snapshot.job_pods:
        for container in containers(pod):
            end, name = last_end(container), container["name"]
            if code := end.get("exitCode"):
                reason = termination.read(str(end.get("message") or ""))  # None where it could not write any more
                known = (reason.code, reason.sentence) if reason else (Code.OTHER, snapshot.last_line(pod, name))
                event = f"pod/{name_of(pod)}: {end.get('reason') or 'Error'}, exit code {code}"
                return _AgentEnd(name, code, is_out_of_memory(end), event, *known)
    return None


def _explain(snapshot: Snapshot, job: Object, end: _AgentEnd) -> tuple[str, str]:
    """What went wrong, and the command to type."""
    subject, spec = f"job/{name_of(job)}", pod_spec(job)
    if end.is_out_of_memory or not end.sentence:
        silent = f"ended with exit code {end.exit_code} and gave no reason."
        how = "took more memory than it may have and was killed." if end.is_out_of_memory else silent
        return f"its container {end.container} {how}", snapshot.kubectl("describe", subject)
    meaning, step = _MEANINGS.get(end.code, ("", ""))
    if end.code in _AT_THE_STORE and (volumes := claim_rules.volumes_of(snapshot, spec)):
        step = claim_rules.command_at_store(snapshot, volumes[0], _AT_THE_STORE[end.code])
    elif end.code is Code.NOT_PERMITTED:
        secret = next((name for one in listed(spec, "volumes") if (name := at(one, "secret", "secretName"))), None)
        describe = snapshot.kubectl("describe", f"secret/{secret}")
        step = describe if secret else claim_rules.create_token(snapshot, "hf-token")
    sentence = end.sentence if end.sentence.endswith(".") else f"{end.sentence}."
    step = step or snapshot.kubectl("logs", subject, "-c", end.container)
    return f"{meaning}: {sentence}" if meaning else sentence, step
