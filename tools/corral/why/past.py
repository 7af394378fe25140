"""What ended badly before, and whether its cause still holds: what is true now is judged first."""

from __future__ import annotations

from collections.abc import Callable

from corral.engine.log_lines import End, EngineCode, EngineError
from corral.why.answer import Reason
from corral.why.case import Case

_REMEMBERED_S = 3600.0  # an end that another load has mended is reported for so long


def has_failed(case: Case) -> bool:
    """Whether the last load, or the run after it, ended badly."""
    if case.is_ready:
        return False
    return case.seen.history.failures > 0 or (case.seen.is_abandoned and case.seen.error is not None)


def error(case: Case) -> EngineError:
    """Why the engine ended; ``other`` when that could not be read."""
    return case.seen.error or EngineError(EngineCode.OTHER)


def reason(case: Case) -> Reason:
    """The class of that; ``unknown`` where the code alone does not decide."""
    ended = error(case)
    return Reason(ended.code.value) if ended.decides else Reason.UNKNOWN


def evidence(case: Case) -> list[str]:
    """What is known of the last end, the engine's own line first."""
    history, ended = case.seen.history, error(case)
    lines = [ended.line if ended.refusal else f"The engine's log: {ended.line}"] if ended.line else []
    if history.reason:
        lines.append(f"llama-swap, {case.ago(history.at)}: {history.reason}.")
    if history.failures > 1:
        lines.append(f"It failed {history.failures} times in a row.")
    if case.seen.resident and history.failures:
        lines.append(f"It is {case.seen.resident.state} again now.")
    if case.seen.is_abandoned:
        lines.append("Its process has ended; llama-swap still waits for an answer on its port.")
    return lines


def is_over(case: Case) -> bool:
    """Whether the cause of the last end was one that can be looked at, and is no more."""
    if case.seen.history.failure in (End.NO_PROGRAM, End.NOT_STARTED):
        return case.seen.history.failure is End.NO_PROGRAM and not case.seen.missing_program
    check = _CHECKS.get(reason(case))
    return check is not None and check(case)


def mended(case: Case) -> list[str]:
    """What ended badly and does so no more: requests of that time failed for it."""
    history = case.seen.history
    lines = []
    if has_failed(case) and is_over(case):
        lines = [f"Its last load failed {case.ago(history.at)} for a reason that is gone: ask again.", *evidence(case)]
    if history.mishap and case.seen.now - history.mishap_at < _REMEMBERED_S:
        since = f", and was loaded again {case.ago(history.at)}" if history.state == "ready" else ""
        lines.append(f"{case.model} ended badly {case.ago(history.mishap_at)} ({history.mishap}){since}.")
    return lines


def _files_are_there(case: Case) -> bool:
    return bool(case.seen.files) and not case.bad_files()


def _files_were_replaced(case: Case) -> bool:
    named = [file for file in case.seen.files if str(file.path) == error(case).subject] or case.seen.files
    # llama-swap dates its lines to the second.
    return _files_are_there(case) and any(file.changed_at >= case.seen.history.at + 1 for file in named)


_CHECKS: dict[Reason, Callable[[Case], bool]] = {
    Reason.FILE_MISSING: _files_are_there,
    Reason.FILE_DAMAGED: _files_were_replaced,
    Reason.PORT_IN_USE: lambda case: case.seen.sees_ports and not case.seen.port_holder,
    Reason.ENGINE_MISSING: lambda case: not case.seen.missing_program,
}
