"""Rules for a model that is not ready: what its next load would meet, and what ended the last one."""

from __future__ import annotations

from corral.engine.log_lines import End, EngineCode, EngineError
from corral.why import past, shortage
from corral.why.answer import Answer, Reason
from corral.why.case import Case

# -- what the next load would meet --------------------------------------------------------------------------


def engine_missing(case: Case) -> Answer | None:
    """A program of its command is not there."""
    if not case.seen.missing_program or case.seen.engine:
        return None
    lines = [f"{case.seen.missing_program} is missing or not executable."]
    return _no_program(case, case.seen.missing_program, _beside_the_past(case, Reason.ENGINE_MISSING, lines))


def file_missing(case: Case) -> Answer | None:
    """A file is not there."""
    if case.seen.resident and (case.is_ready or not case.seen.history.failures):
        return None  # a server that is at work has it open
    if not (missing := [file for file in case.seen.files if file.state == "missing"]):
        return None
    lines = _beside_the_past(case, Reason.FILE_MISSING, case.file_details())
    return _by_files(case, Reason.FILE_MISSING, lines, str(missing[0].path))


def file_damaged(case: Case) -> Answer | None:
    """A file is not what the lock says."""
    if not (damaged := [file for file in case.seen.files if file.state == "damaged"]):
        return None
    lines = _beside_the_past(case, Reason.FILE_DAMAGED, case.file_details())
    return _by_files(case, Reason.FILE_DAMAGED, lines, str(damaged[0].path))


def port_taken(case: Case) -> Answer | None:
    """Somebody else listens on its port."""
    holder, command = case.seen.port_holder, case.seen.command
    if case.is_ready or not holder or not command:
        return None
    lines = [f"{case.model} must listen on port {command.port}, which {holder} does."]
    return _port(case, holder, command.port, _beside_the_past(case, Reason.PORT_IN_USE, lines))


def _beside_the_past(case: Case, reason: Reason, lines: list[str]) -> list[str]:
    """What is true now, with what ended the last load: before it when it is the same."""
    if not past.has_failed(case):
        return lines
    before = past.evidence(case)
    same = past.reason(case) is reason
    return [*before, *lines] if same else [*lines, *before]


# -- a model whose last load, or run, ended badly -----------------------------------------------------------


def failed(case: Case) -> Answer | None:
    """The last load, or the run after it, ended badly, and nothing says that the next would not."""
    if not past.has_failed(case) or past.is_over(case):
        return None
    seen, error, evidence = case.seen, past.error(case), past.evidence(case)
    if seen.history.failure in (End.NO_PROGRAM, End.NOT_STARTED):
        return _no_program(case, seen.command.engine if seen.command else "llama-server", evidence)
    if past.reason(case) is not Reason.UNKNOWN:
        return _by_code(case, error, evidence)
    if seen.history.failure is End.TIMED_OUT:
        return _timed_out(case, evidence)
    if seen.error is None:
        evidence.append("The log of its engine could not be read in time.")
    if seen.history.failure is End.DIED:
        return _crashed(case, "died while it was ready", evidence)
    if error.code is EngineCode.NO_ERROR:
        return _killed(case, evidence)
    return case.answer(Reason.UNKNOWN, "", evidence, case.steps.look())


def _by_code(case: Case, error: EngineError, evidence: list[str]) -> Answer:
    reason = past.reason(case)
    if reason is Reason.OUT_OF_MEMORY:
        return _out_of_memory(case, error, evidence)
    if reason is Reason.ENGINE_MISSING:
        return _no_program(case, error.subject, evidence)
    if reason is Reason.PORT_IN_USE:
        return _port(case, f"port {error.port}", error.port, evidence)
    if reason is Reason.BAD_ARGUMENT:
        origin = f"The arguments come from models/{case.model}.yaml, by way of lock.json."
        steps = [case.steps.of("validate"), case.steps.of("lock"), *case.steps.restart()]
        return case.answer(reason, error.subject, [*evidence, origin], steps)
    culprit = error.subject or (str(case.seen.files[0].path) if case.seen.files else f"a file of {case.model}")
    return _by_files(case, reason, [*evidence, *case.file_details()], culprit)


def _out_of_memory(case: Case, error: EngineError, evidence: list[str]) -> Answer:
    steps = case.steps
    if error.refusal:
        return _no_room(case, error, evidence)
    if error.on_host:
        return case.answer(
            Reason.OUT_OF_MEMORY, "this machine's memory, not a card's", evidence, [steps.memory(), *steps.look()]
        )
    lines = "The engine took more than its seat: the preflight found room, or could not tell."
    todo = [*steps.card(), steps.of("lock"), steps.of("seat")]
    return case.answer(Reason.OUT_OF_MEMORY, "the card", [*evidence, lines], todo)


def _no_room(case: Case, error: EngineError, evidence: list[str]) -> Answer:
    """Before the engine was even started."""
    short = shortage.read(error.refusal)
    # A model of another stack may have the same name.
    blamed = {one.name for one in short.blamed if one.pid in case.seen.members}
    ours = [(model, requests) for model, requests in case.seen.others if model in blamed]
    busy = [f"Unloading {model} ends its {requests} requests in flight." for model, requests in ours if requests]
    steps = [
        *(case.steps.unload(model) for model, _ in ours),
        *case.steps.card(),
        case.steps.of("seat"),
        case.steps.status(),
    ]
    return case.answer(Reason.OUT_OF_MEMORY, short.culprit, [*evidence, *busy], steps)


def _by_files(case: Case, reason: Reason, evidence: list[str], culprit: str) -> Answer:
    if reason is Reason.FILE_MISSING:
        steps = case.steps.fetch()
    else:
        compared = ["Sizes and dates were compared, the content was not read."] if case.seen.files else []
        evidence, steps = [*evidence, *compared], case.steps.verify()
    return case.answer(reason, culprit, evidence, [*steps, case.steps.smoke()])


def _timed_out(case: Case, evidence: list[str]) -> Answer:
    limit = case.seen.command.load_limit_s if case.seen.command else 0
    evidence = [*evidence, f"A load may take {limit} s here.", *case.file_details()]
    steps = [*case.steps.warm(), *case.steps.look()]
    return case.answer(Reason.LOAD_TIMEOUT, f"the load of {case.model}, not ready in {limit} s", evidence, steps)


def _crashed(case: Case, how: str, evidence: list[str]) -> Answer:
    steps = [*case.steps.look(), *case.steps.verify()[:1]]
    culprit = f"llama-server of {case.model}, which {how}"
    return case.answer(Reason.CRASHED, culprit, [*evidence, *case.file_details()], steps)


def _killed(case: Case, evidence: list[str]) -> Answer:
    """It ended before it was ready, and its log has no error: so ends a process that gets a signal."""
    cause = (
        "Its log ends without an error of its own: a signal ended it, most likely SIGKILL (9), which the kernel sends "
        "when this machine, or the control group of the engine, is out of memory."
    )
    check = "If so, dmesg names the process, and oom_kill in memory.events counts it."
    culprit = f"llama-server of {case.model}, which was killed while it was loading"
    steps = [*case.steps.kills(), *case.steps.look(), *case.steps.verify()[:1]]
    return case.answer(Reason.CRASHED, culprit, [*evidence, cause, check, *case.file_details()], steps)


def _no_program(case: Case, program: str, evidence: list[str]) -> Answer:
    return case.answer(Reason.ENGINE_MISSING, program, evidence, [case.steps.engine(), *case.steps.restart()])


def _port(case: Case, culprit: str, port: int, evidence: list[str]) -> Answer:
    return case.answer(Reason.PORT_IN_USE, culprit, evidence, [case.steps.listeners(port), *case.steps.restart()])
