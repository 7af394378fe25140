"""What ended badly before, and whether its cause still holds: what is true now is judged first."""

from __future__ import annotations

from collections.abc import Callable

from corral.why.answer import Reason
from corral.why.case import Case
from corral.why.engine_words import Said

_REMEMBERED_S = 3600.0  # an end that another load has mended is told for so long
_NO_PROGRAM = ("no such file", "permission denied", "not found")


def has_failed(case: Case) -> bool:
    """Whether the last load, or the run after it, ended badly."""
    if case.is_ready:
        return False
    return case.seen.history.failures > 0 or (case.seen.is_abandoned and case.seen.said is not None)


def said(case: Case) -> Said:
    """The telling line of the engine that ended."""
    return case.seen.said or Said(Reason.UNKNOWN)


def evidence(case: Case) -> list[str]:
    """What was said and seen of the last end, the engine's own word first."""
    history, words = case.seen.history, said(case)
    told = [words.line if words.refusal else f"The engine said: {words.line}"] if words.line else []
    if history.reason:
        told.append(f"llama-swap, {case.ago(history.at)}: {history.reason}.")
    if history.failures > 1:
        told.append(f"It failed {history.failures} times in a row.")
    if case.seen.resident and history.failures:
        told.append(f"It is {case.seen.resident.state} again now.")
    if case.seen.is_abandoned:
        told.append("Its process has ended; llama-swap still waits for an answer on its port.")
    return told


def is_over(case: Case) -> bool:
    """Whether the cause of the last end was one that can be looked at, and is no more."""
    if case.seen.history.failure == "not started":
        refused = any(words in case.seen.history.reason.lower() for words in _NO_PROGRAM)
        return refused and not case.seen.missing_program
    look = _LOOKS.get(said(case).reason)
    return look is not None and look(case)


def mended(case: Case) -> list[str]:
    """What ended badly and does so no more: requests of that time failed for it."""
    history = case.seen.history
    told = []
    if has_failed(case) and is_over(case):
        told = [f"Its last load failed {case.ago(history.at)} for a reason that is gone: ask again.", *evidence(case)]
    if history.mishap and case.seen.now - history.mishap_at < _REMEMBERED_S:
        since = f", and was loaded again {case.ago(history.at)}" if history.state == "ready" else ""
        told.append(f"{case.model} ended badly {case.ago(history.mishap_at)} ({history.mishap}){since}.")
    return told


def _files_are_there(case: Case) -> bool:
    return bool(case.seen.files) and not case.bad_files()


def _files_were_replaced(case: Case) -> bool:
    named = [file for file in case.seen.files if str(file.path) == said(case).culprit] or case.seen.files
    # llama-swap dates its lines to the second.
    return _files_are_there(case) and any(file.changed_at >= case.seen.history.at + 1 for file in named)


_LOOKS: dict[Reason, Callable[[Case], bool]] = {
    Reason.FILE_MISSING: _files_are_there,
    Reason.FILE_DAMAGED: _files_were_replaced,
    Reason.PORT_IN_USE: lambda case: case.seen.sees_ports and not case.seen.port_holder,
    Reason.ENGINE_MISSING: lambda case: not case.seen.missing_program,
}
