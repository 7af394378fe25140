"""Rules for a model that is not ready: what its next load would meet, and what ended the last one."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from corral.door.preflight_line import Record, described
from corral.engine.log_lines import End, EngineCode
from corral.why import card_rules
from corral.why.case import Case
from corral.why.verdict import Reason, Verdict

# -- what the next load would meet --------------------------------------------------------------------------


def engine_missing(case: Case) -> Verdict | None:
    """A program of its command is missing."""
    program = case.facts.missing_program
    if not program or case.facts.engine:
        return None
    lines = [f"{program} is missing or not executable."]
    return _no_program(case, program, _with_last_failure(case, Reason.ENGINE_MISSING, lines))


def file_missing(case: Case) -> Verdict | None:
    """A file is missing."""
    if case.facts.resident and (case.is_ready or not case.facts.history.failures):
        return None  # a server that is at work has it open
    return _bad_file(case, Reason.FILE_MISSING)


def file_damaged(case: Case) -> Verdict | None:
    """A file differs from the lock."""
    return _bad_file(case, Reason.FILE_DAMAGED)


def _bad_file(case: Case, reason: Reason) -> Verdict | None:
    state = "missing" if reason is Reason.FILE_MISSING else "damaged"
    if not (bad := [file for file in case.facts.files if file.state == state]):
        return None
    return _files(case, reason, str(bad[0].path), _with_last_failure(case, reason, case.file_details()))


def port_taken(case: Case) -> Verdict | None:
    """Another process listens on its port."""
    holder, command = case.facts.port_holder, case.facts.command
    if case.is_ready or not holder or not command:
        return None
    lines = [f"{case.model} must listen on port {command.port}, but {holder} does."]
    return _port(case, holder, command.port, _with_last_failure(case, Reason.PORT_IN_USE, lines))


def _with_last_failure(case: Case, reason: Reason, lines: list[str]) -> list[str]:
    """*lines*, which are true now, with the evidence of the last failure: before them when its reason is the same."""
    if not case.has_failed:
        return lines
    before = case.failure_evidence()
    return [*before, *lines] if case.failure_reason is reason else [*lines, *before]


# -- a model whose last load, or run, failed ----------------------------------------------------------------


def failed(case: Case) -> Verdict | None:
    """The last load, or the run after it, failed, and nothing shows that the next would not."""
    if not case.has_failed or case.is_resolved:
        return None
    end, evidence = case.facts.history.failure, case.failure_evidence()
    if end in (End.NO_PROGRAM, End.NOT_STARTED):
        return _no_program(case, case.facts.command.engine if case.facts.command else "llama-server", evidence)
    if by_reason := _FAILURES.get(case.failure_reason):
        return by_reason(case, evidence)
    if end is End.TIMED_OUT:
        return _timed_out(case, evidence)
    if case.facts.error is None:
        evidence.append("The log of its engine could not be read in time.")
    if end is End.DIED:
        culprit = f"llama-server of {case.model}, which died while it was ready"
        steps = case.steps("inspect", "smoke", "verify")
        return case.verdict(Reason.CRASHED, culprit, [*evidence, *case.file_details()], steps)
    if case.error.code is EngineCode.NO_ERROR:
        return _killed(case, evidence)
    return case.verdict(Reason.UNKNOWN, "", evidence, case.steps("inspect", "smoke"))


def _out_of_memory(case: Case, evidence: list[str]) -> Verdict:
    if case.error.on_host:
        steps = case.steps("memory", "inspect", "smoke")
        return case.verdict(Reason.OUT_OF_MEMORY, "this machine's memory, not a card's", evidence, steps)
    if case.error.refusal and not _is_larger_than_the_card(case.error.refusal[0]):
        if by_account := card_rules.no_room(case, evidence):
            return by_account
        evidence = [*evidence, *card_rules.held_too_much(case), case.stack.no_account]
    if case.error.refusal:
        return _no_room(case, evidence)
    line = "The engine took more than its seat: the preflight found room, or could not read the card's memory."
    steps = [*_card(case), *case.steps("measure", "up", "seat")]  # a measured seat counts once it is applied
    return case.verdict(Reason.OUT_OF_MEMORY, "the card", [*evidence, line], steps)


def _no_room(case: Case, evidence: list[str]) -> Verdict:
    """The preflight refused the load."""
    culprit, blamed = _blame(case.error.refusal)
    # A model of another stack may have the same name.
    ours = {one.model or one.name for one in blamed if one.pid in case.facts.stack_pids}
    others = [(model, requests) for model, requests in case.facts.other_models if model in ours]
    busy = [f"Unloading {model} ends its {requests} requests in flight." for model, requests in others if requests]
    unload = [step for model, _ in others for step in case.steps("unload", model=model)]
    steps = [*unload, *_card(case), *case.steps("seat", "status")]
    return case.verdict(Reason.OUT_OF_MEMORY, culprit, [*evidence, *busy], steps)


def _blame(refusal: Sequence[Record]) -> tuple[str, list[Record]]:
    """The culprit of a *refusal* for want of room, and the processes that hold most of the card, the largest first.

    A process's name is no proof: of an engine the preflight knows the seat, which is what it was promised, and inside a
    container the driver names no process.  So processes are blamed only when they hold at least half of what is held.
    """
    decision, *others = refusal
    need, free, total = (mib or 0 for mib in (decision.need_mib, decision.free_mib, decision.total_mib))
    if _is_larger_than_the_card(decision):
        return f"its seat of {need} MiB, on a card of {total} MiB", []
    processes = [one for one in others if one.pid is not None]
    held = [one.held_mib if one.code == "holder" else one.seat_mib if one.on_card else 0 for one in processes]
    hidden = 0 if None in held else max(0, total - free - sum(mib or 0 for mib in held))
    ranked = sorted(zip(held, processes, strict=True), key=lambda one: -(one[0] or 0))
    blamed = [one for mib, one in ranked if mib != 0]
    if blamed and hidden * 2 <= total - free:
        return ", ".join(described(one) for one in blamed), blamed
    if not others:  # a preflight without ``holders.sh`` does not search for them
        return f"processes on the card ({hidden} MiB), for which no search was made", []
    return f"processes that are not visible from here ({hidden} MiB)", []


def _is_larger_than_the_card(decision: Record) -> bool:
    return (decision.need_mib or 0) > (decision.total_mib or 0)


def _card(case: Case) -> list[str]:
    return case.steps("card") if case.stack.has_nvidia_smi else []


def _bad_argument(case: Case, evidence: list[str]) -> Verdict:
    origin = f"The arguments are from models/{case.model}.yaml, by way of lock.json."
    steps = case.steps("validate", "lock", "up")
    return case.verdict(Reason.BAD_ARGUMENT, case.error.subject, [*evidence, origin], steps)


def _unreadable_file(case: Case, evidence: list[str]) -> Verdict:
    culprit = case.error.subject or (str(case.facts.files[0].path) if case.facts.files else f"a file of {case.model}")
    return _files(case, case.failure_reason, culprit, [*evidence, *case.file_details()])


def _files(case: Case, reason: Reason, culprit: str, evidence: list[str]) -> Verdict:
    if reason is Reason.FILE_MISSING:
        return case.verdict(reason, culprit, evidence, case.steps("fetch", "smoke"))
    compared = ["Sizes and dates were compared, the content was not read."] if case.facts.files else []
    return case.verdict(reason, culprit, [*evidence, *compared], case.steps("verify", "repair", "smoke"))


def _timed_out(case: Case, evidence: list[str]) -> Verdict:
    limit = case.facts.command.load_limit_s if case.facts.command else 0
    evidence = [*evidence, f"A load may take {limit} s here.", *case.file_details()]
    culprit = f"the load of {case.model}, not ready in {limit} s"
    return case.verdict(Reason.LOAD_TIMEOUT, culprit, evidence, case.steps("warm", "inspect", "smoke"))


def _killed(case: Case, evidence: list[str]) -> Verdict:
    """It ended before it was ready, and its log states no error: that is how a process ends that gets a signal."""
    cause = (
        "Its log ends without an error of its own: a signal ended it, most likely SIGKILL (9), which the kernel sends "
        "when this machine, or the control group of the engine, is out of memory."
    )
    check = "If so, dmesg names the process, and oom_kill in memory.events counts it."
    is_silent = not case.error.line and case.facts.command is not None
    program = case.facts.command.engine if case.facts.command else ""
    other = f"It printed nothing at all: {program} ends so, too, if it is no llama-server." if is_silent else ""
    culprit = f"llama-server of {case.model}, which was killed while it was loading"
    steps = [*(case.steps("engine") if is_silent else []), *case.steps("kills", "inspect", "smoke", "verify")]
    return case.verdict(Reason.CRASHED, culprit, [*evidence, cause, check, other, *case.file_details()], steps)


def _no_program(case: Case, program: str, evidence: list[str]) -> Verdict:
    return case.verdict(Reason.ENGINE_MISSING, program, evidence, case.steps("engine", "restart"))


def _port(case: Case, culprit: str, port: int, evidence: list[str]) -> Verdict:
    steps = case.steps("listeners", "restart", engine_port=port)
    return case.verdict(Reason.PORT_IN_USE, culprit, evidence, steps)


_FAILURES: dict[Reason, Callable[[Case, list[str]], Verdict]] = {
    Reason.OUT_OF_MEMORY: _out_of_memory,
    Reason.ENGINE_MISSING: lambda case, evidence: _no_program(case, case.error.subject, evidence),
    Reason.PORT_IN_USE: lambda case, evidence: _port(case, f"port {case.error.port}", case.error.port, evidence),
    Reason.BAD_ARGUMENT: _bad_argument,
    Reason.FILE_MISSING: _unreadable_file,
    Reason.FILE_DAMAGED: _unreadable_file,
}
