"""What became of each model's last load, by the common log of the stack.

llama-swap dates its lines; those of the preflight, like an engine's, carry no date and stand between them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Literal

from corral.engine import log_lines, preflight_line
from corral.engine.log_lines import End, EngineError, Event

State = Literal["never", "loading", "ready", "failed"]
_RUN_LINES = 60  # before the death of an engine that had been ready


@dataclass(frozen=True)
class History:
    """How far a model's last load has come.

    Attributes:
        state: ``never``: the log knows of no load; ``failed``: nothing has been loaded since.
        at: when, in seconds since 1970; 0 when the log does not say.
        failure: how it ended: ``exited`` before it was ready, ``died`` afterwards; None when it did not.
        reason: llama-swap's words for that.
        failures: loads that ended badly one after the other; not 0 while it is loaded anew after them.
        begun: where in the log the load begins; an offset into the text.
        failed: where in the log the last load that ended badly begins and ends.
        alone: no other model was being loaded at the time, so that every line in between is this one's.
        mishap: llama-swap's words for what ended badly before this load; empty when nothing did.
        mishap_at: when, in seconds since 1970.
    """

    state: State = "never"
    at: float = 0.0
    failure: End | None = None
    reason: str = ""
    failures: int = 0
    begun: int = 0
    failed: tuple[int, int] = (0, 0)
    alone: bool = True
    mishap: str = ""
    mishap_at: float = 0.0


def read(log: str) -> dict[str, History]:
    """The history of every model that *log* (oldest line first) tells of."""
    found: dict[str, History] = {}
    for event in log_lines.events(log):
        before = found.get(event.model, History())
        if event.kind == "begun":
            others = [name for name, one in found.items() if one.state == "loading" and name != event.model]
            for other in others:
                found[other] = replace(found[other], alone=False)
            at = before.at if before.failures else event.at
            found[event.model] = replace(before, state="loading", at=at, begun=event.start, alone=not others)
        elif event.kind == "ready":
            found[event.model] = _ready(before, event.at)
        else:
            found[event.model] = _ended(before, event)
    return found


def log_of(log: str, model: str, history: History) -> str:
    """The part of *log* of the last load of *model* that ended badly: the lines that are certain to be its own."""
    start, end = history.failed
    lines = log_lines.without_llama_swap(log[start:end])
    return "\n".join(line for line in lines if history.alone or _is_of(line, model))


def engine_error(log: str, history: History) -> EngineError:
    """Why the engine of a model with that *history* ended, by its own *log* from its last start on."""
    if history.failure is End.DIED:
        log = "\n".join(log.splitlines()[-_RUN_LINES:])
    return log_lines.classify_engine_error(log)


def _ready(before: History, now: float) -> History:
    mishap = (before.reason, before.at) if before.failures else (before.mishap, before.mishap_at)
    return History("ready", now, begun=before.begun, mishap=mishap[0], mishap_at=mishap[1])


def _ended(before: History, event: Event) -> History:
    kept = History(mishap=before.mishap, mishap_at=before.mishap_at)
    if event.end is End.REQUESTED:
        return replace(before, state="failed") if before.failures else kept
    return replace(
        kept,
        state="failed",
        at=event.at,
        failure=event.end,
        reason=event.reason,
        failures=before.failures + 1,
        begun=before.begun,
        failed=(before.begun, event.start),
        alone=before.alone,
    )


def _is_of(line: str, model: str) -> bool:
    if record := preflight_line.parse(line):
        return record.concerns(model)
    return re.search(rf"\b{re.escape(model)}\b", line) is not None
