"""The history of each model's loads, by the common log of the stack.

llama-swap dates its lines; those of the preflights and the engines carry no date and stand between them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Literal

from corral.door import preflight_line
from corral.engine import log_lines
from corral.engine.log_lines import End, EngineError, Event

_LOADS = 8  # of which the times are kept
_RUN_LINES = 60  # before the death of an engine that had been ready


@dataclass(frozen=True)
class History:
    """The last load of a model, and the failures before it."""

    state: Literal["never", "loading", "ready", "failed"] = "never"  # failed: no load has begun since
    at: float = 0.0  # when that was, in seconds since 1970; 0 when the log does not show it
    failure: End | None = None  # how it failed; None when it did not
    reason: str = ""  # why it failed, as llama-swap reports it
    failures: int = 0  # loads that failed in a row; not 0 while it is loaded again after them
    begun: int = 0  # the offset in the log where the load begins
    failed: tuple[int, int] = (0, 0)  # the offsets where the last failed load begins and ends
    alone: bool = True  # no other model was being loaded meanwhile, so that every line in between is this one's
    earlier_failure: str = ""  # why it failed before this load, as llama-swap reports it
    earlier_failure_at: float = 0.0  # seconds since 1970
    begun_at: float = 0.0  # when the last load began, in seconds since 1970; 0 when the log does not show it
    load_s: float = 0.0  # of the last load that ended ready, by dates in whole seconds; 0 when that is not known
    loads: tuple[float, ...] = ()  # when the last loads ended ready, the newest last
    cached: float | None = None  # the share of the files in the page cache before that load; None: unknown
    size: int = 0  # bytes of these files

    @property
    def has_engine_log(self) -> bool:
        """Whether the last load failed after its process was started; only then is there a log of it."""
        return self.state == "failed" and self.failure not in (End.NO_PROGRAM, End.NOT_STARTED)


def read(log: str) -> dict[str, History]:
    """The history of every model in *log*, oldest line first."""
    found: dict[str, History] = {}
    for event in log_lines.events(log):
        before = found.get(event.model, History())
        if event.kind == "begun":
            others = [name for name, one in found.items() if one.state == "loading" and name != event.model]
            for other in others:
                found[other] = replace(found[other], alone=False)
            at = before.at if before.failures else event.at
            found[event.model] = replace(
                before, state="loading", at=at, begun=event.start, begun_at=event.at, alone=not others
            )
        elif event.kind == "ready":
            found[event.model] = _ready(before, event, log[before.begun : event.start])
        else:
            found[event.model] = _ended(before, event)
    return found


def _ready(before: History, event: Event, load: str) -> History:
    """*before* with the *event* that ends a load, whose part of the log is *load*."""
    now, begun_at = event.at, before.begun_at if before.state == "loading" else 0.0
    sizes = [one for one in preflight_line.read(load) if (one.code, one.model) == ("page-cache", event.model)]
    cached, size = (sizes[-1].cached_bytes or 0, sizes[-1].size_bytes or 0) if sizes else (0, 0)
    failure = (before.reason, before.at) if before.failures else (before.earlier_failure, before.earlier_failure_at)
    return History(
        "ready",
        now,
        begun=before.begun,
        earlier_failure=failure[0],
        earlier_failure_at=failure[1],
        load_s=max(0.0, now - begun_at) if begun_at else 0.0,
        loads=(*before.loads, now)[-_LOADS:],
        cached=min(1.0, cached / size) if size else None,
        size=size,
    )


def _ended(before: History, event: Event) -> History:
    earlier = before.earlier_failure, before.earlier_failure_at
    kept = History(
        earlier_failure=earlier[0],
        earlier_failure_at=earlier[1],
        loads=before.loads,
        load_s=before.load_s,
        cached=before.cached,
        size=before.size,
    )
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


def engine_error(log: str, history: History) -> EngineError:
    """Why the engine of a model with that *history* ended, by its own *log* from its last start on."""
    if history.failure is End.DIED:
        log = "\n".join(log.splitlines()[-_RUN_LINES:])
    return log_lines.classify_engine_error(log)


def error_in_common_log(log: str, model: str, history: History) -> EngineError | None:
    """The same by the common *log*; None when nothing failed, or when the lines of *model* in it do not decide."""
    if not history.failures:
        return None
    error = engine_error(log_of(log, model, history), history)
    return error if error.decides or history.alone else None


def log_of(log: str, model: str, history: History) -> str:
    """The lines of the last failed load of *model* in the common *log*, without those that may be another model's."""
    start, end = history.failed
    lines = log_lines.without_llama_swap(log[start:end])
    return "\n".join(line for line in lines if history.alone or _is_of(line, model))


def _is_of(line: str, model: str) -> bool:
    if record := preflight_line.parse(line):
        return record.concerns(model)
    return re.search(rf"\b{re.escape(model)}\b", line) is not None
