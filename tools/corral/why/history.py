"""What became of each model's last load, by the common log of the stack.

llama-swap dates its lines; those of the preflight, like an engine's, carry no date and stand between them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal

from corral.engine import preflight_line

State = Literal["never", "loading", "ready", "failed"]
Failure = Literal["", "exited", "died", "timed out", "not started"]

_EVENT = re.compile(
    r"^(?:(?P<at>\d{4}-\d\d-\d\dT[\d:.]+\S+) \[[A-Z]+\] "
    r"(?:<(?P<ready>[^>]+)> Health check passed.*|\w+: running (?P<ended>\S+) exited: (?P<reason>.*)|.*)"
    r"|(?P<preflight>preflight: .*))$",
    re.MULTILINE,
)
# Ends that were asked for: a swap or an unload during the load, the end of llama-swap.
_ASKED_FOR = re.compile(r"aborted$|shutdown$|shutting down$|model unloaded$")
_FAILURES: tuple[tuple[str, Failure], ...] = (
    ("exited prematurely", "exited"),
    ("exited unexpectedly", "died"),
    ("health check timed out", "timed out"),
    ("failed to start command", "not started"),
)


@dataclass(frozen=True)
class History:
    """How far a model's last load has come.

    Attributes:
        state: ``never``: the log knows of no load; ``failed``: nothing has been loaded since.
        at: when, in seconds since 1970; 0 when the log does not say.
        failure: how it ended: ``exited`` before it was ready, ``died`` afterwards.
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
    failure: Failure = ""
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
    now = 0.0
    for event in _EVENT.finditer(log):
        if event["at"]:
            now = datetime.fromisoformat(event["at"]).timestamp()
        if event["preflight"]:
            record = preflight_line.parse(event["preflight"])
            if record is None or not record.is_decision or not (model := record.model):
                continue
            before = found.get(model, History())
            others = [name for name, one in found.items() if one.state == "loading" and name != model]
            for other in others:
                found[other] = replace(found[other], alone=False)
            at = before.at if before.failures else now
            found[model] = replace(before, state="loading", at=at, begun=event.start(), alone=not others)
        elif model := event["ready"]:
            found[model] = _ready(found.get(model, History()), now)
        elif model := event["ended"]:
            found[model] = _ended(found.get(model, History()), event["reason"], now, event.start())
    return found


def words_of(log: str, model: str, history: History) -> str:
    """What was said during the last load of *model* that ended badly, as far as it is certain who said it."""
    start, end = history.failed
    lines = _undated(log[start:end])
    return "\n".join(line for line in lines if history.alone or _is_of(line, model))


def _ready(before: History, now: float) -> History:
    mishap = (before.reason, before.at) if before.failures else (before.mishap, before.mishap_at)
    return History("ready", now, begun=before.begun, mishap=mishap[0], mishap_at=mishap[1])


def _ended(before: History, reason: str, now: float, end: int) -> History:
    kept = History(mishap=before.mishap, mishap_at=before.mishap_at)
    if _ASKED_FOR.search(reason):
        return replace(before, state="failed") if before.failures else kept
    return replace(
        kept,
        state="failed",
        at=now,
        failure=next((name for words, name in _FAILURES if words in reason), "exited"),
        reason=reason,
        failures=before.failures + 1,
        begun=before.begun,
        failed=(before.begun, end),
        alone=before.alone,
    )


def _is_of(line: str, model: str) -> bool:
    if record := preflight_line.parse(line):
        return record.concerns(model)
    return re.search(rf"\b{re.escape(model)}\b", line) is not None


def _undated(text: str) -> Iterable[str]:
    return (line for line in text.splitlines() if not re.match(r"\d{4}[-/]\d\d[-/]\d\d[T ]", line))
