"""Rules for the download: how the agent ended, by its code and fields, and what that asks of the operator."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from corral.agent import termination
from corral.agent.errors import Code
from corral.agent.progress import count, duration
from corral.agent.termination import Termination
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
    message,
    pod_spec,
    secrets_of,
)

_NOT_BY_WAITING = 2  # the agent's exit code for what the lock or the settings have wrong
_AT_THE_STORE = (Code.STORE_FULL, Code.STORE_UNUSABLE)
_OFTEN = 2  # times out of memory: once may have been the neighbours' doing

ENDED_FOR = "corral/ended-for"
"""Annotation of a Job that was ended with the apply that waited for it: the finding that was the reason, as JSON.

Null where there was none: its operator stopped the apply.
"""
_NO_FINDING = "null"


_MEANINGS: dict[Code, str] = {
    Code.STORE_FULL: "the store is full",
    Code.STORE_UNUSABLE: "the store cannot be written",
    Code.NOT_ON_HUB: "the hub does not have a file of the lock",
    Code.NOT_PERMITTED: "the hub does not give a file (a gated repo, or a wrong token)",
    Code.CONTENT_DIFFERS: "what the hub gives is not what was locked",
    Code.HUB_ADDRESS: "the hub's address is not accepted",
    Code.LOCK_UNUSABLE: "the lock is not usable",
}


@dataclass(frozen=True)
class AgentEnd:
    """How the agent ended.

    Attributes:
        container: that it ran in.
        exit_code: of its process.
        reason: what it wrote as its termination message; None where it could not write any more.
        last_line: of its log, for people.
        is_out_of_memory: the kernel ended it for its memory.
        event: how Kubernetes reports it.
    """

    container: str
    exit_code: int
    reason: Termination | None
    last_line: str
    is_out_of_memory: bool
    event: str

    @property
    def code(self) -> Code:
        """Of its reason."""
        return self.reason.code if self.reason else Code.OTHER

    @property
    def quoted(self) -> str:
        """What people may read of it: its sentence, else the last line of its log; may be empty."""
        return self.reason.sentence if self.reason else self.last_line


def failed(seen: Snapshot, job: Object) -> Finding | None:
    """It has given up."""
    if not is_true(job, "Failed"):
        return None
    ended = condition(job, "Failed")
    event = f"{ended.get('reason', '')}: {message(ended)}"
    subject = f"job/{job['metadata']['name']}"
    end = agent_end(seen)
    noted = annotation(job, ENDED_FOR)
    late = ended.get("reason") == "DeadlineExceeded"
    # A pod that failed by itself knows better than the note what is wrong, but not who ended the Job.
    by_operator = noted == _NO_FINDING and late
    if noted is not None and (end is None or end.code is Code.STOPPED or by_operator):
        return _ended(noted, subject, event)
    if end is None:
        limit = job["spec"].get("activeDeadlineSeconds")
        what = f"was not done within {duration(limit)}" if late and limit else "has failed"
        what += "; the reason is gone with its pod."
        step = "corral apply" if late else seen.kubectl("describe", subject)  # a new Job goes on where this one was
        return Finding(subject, what, event, step, is_stuck=True, cause=Cause.DOWNLOAD)
    what, step = _explain(seen, job, end)
    return Finding(subject, f"has failed: {what}", event, step, is_stuck=True, cause=Cause.DOWNLOAD)


def _ended(noted: str, subject: str, event: str) -> Finding:
    """The apply did not wait any longer; its pod is gone, and what was wrong with it stands in the annotation."""
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
    if not attempts or is_true(job, "Complete") or is_true(job, "Failed") or (end := agent_end(seen)) is None:
        return None
    what, step = _explain(seen, job, end)
    limit = job["spec"].get("backoffLimit", 6)
    text = f"has failed {count(attempts, 'time')} (it gives up after {limit + 1}), last with: {what}"
    again = end.is_out_of_memory and attempts >= _OFTEN
    stuck = end.exit_code == _NOT_BY_WAITING or again or end.code in _AT_THE_STORE
    return Finding(f"job/{job['metadata']['name']}", text, end.event, step, is_stuck=stuck, cause=Cause.DOWNLOAD)


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


def agent_end(seen: Snapshot) -> AgentEnd | None:
    """Of the last pod of the Job that failed; None when no such pod is there any more."""
    for pod in seen.job_pods:
        ends = [(one, last_end(one)) for one in containers(pod)]
        bad = [(one, end) for one, end in ends if end.get("exitCode")]
        if not bad:
            continue
        container, end = bad[0]
        return AgentEnd(
            container["name"],
            end["exitCode"],
            termination.read(str(end.get("message") or "")),
            seen.last_line(pod, container["name"]),
            container_rules.is_out_of_memory(end),
            f"pod/{pod['metadata']['name']}: {end.get('reason') or 'Error'}, exit code {end['exitCode']}",
        )
    return None


def _explain(seen: Snapshot, job: Object, end: AgentEnd) -> tuple[str, str]:
    """What went wrong, and what to type."""
    name = f"job/{job['metadata']['name']}"
    logs, describe = seen.kubectl("logs", name, "-c", end.container), seen.kubectl("describe", name)
    if end.is_out_of_memory:
        return f"its container {end.container} took more memory than it may have and was killed.", describe
    if not end.quoted:
        return f"its container {end.container} ended with exit code {end.exit_code} and gave no reason.", describe
    quoted = end.quoted if end.quoted.endswith(".") else f"{end.quoted}."
    match end.code:
        case Code.STORE_FULL:
            step = _at_the_store(seen, job, "df -h", logs)
        case Code.STORE_UNUSABLE:
            step = _at_the_store(seen, job, "ls -ldn", logs)
        case Code.NOT_ON_HUB | Code.CONTENT_DIFFERS:
            step = "corral lock --upgrade"
        case Code.NOT_PERMITTED:
            step = _token(seen, job)
        case Code.LOCK_UNUSABLE:
            step = "corral lock"
        case _:
            step = logs
    meaning = _MEANINGS.get(end.code)
    return f"{meaning}: {quoted}" if meaning else quoted, step


def _at_the_store(seen: Snapshot, job: Object, command: str, otherwise: str) -> str:
    names = claims_of(pod_spec(job))
    volumes = [seen.volume_of(claim) for claim in seen.claims if claim["metadata"]["name"] in names]
    volume = next((one for one in volumes if one), None)
    return claim_rules.look_at_the_store(seen, volume, command) if volume else otherwise


def _token(seen: Snapshot, job: Object) -> str:
    """How the token is put there: into the Secret that the Job mounts, else into one that the stack then names."""
    name = next(iter(secrets_of(pod_spec(job))), "")
    if name:
        return seen.kubectl("describe", f"secret/{name}")
    return seen.kubectl("create", "secret", "generic", "hf-token", "--from-file=token=/dev/stdin")
