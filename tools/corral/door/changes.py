"""Each load that ended ready and each unload, with its cause, by what llama-swap's stream of events reports.

llama-swap gives a reason for an unload in its log (proxy/process.go, server/log.go: the same lines in the pinned
version and in v250), before or after the state that shows it.  An eviction has no line: it is an unload that none
explains, and the load of another model follows at once.
"""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from . import preflight_line
from .llama_swap import MAKES_ROOM, YIELDS

Cause = Literal["idle", "evicted", "yielded", "requested", "died", "unknown"]

_MOST = 999
# llama-swap needs milliseconds from a model's end to its reason, or to the load of the next one.
_EXPLAINED_S = 5.0
_AT_ONCE_S = 1.0
_AGENTS: Mapping[str | None, Cause] = {f'"{YIELDS}"': "yielded", f'"{MAKES_ROOM}"': "evicted"}
_RESIDENT = ("ready", "stopping")
_LINE = re.compile(
    r"^(?:\S+ )?\[[A-Z]+\] (?:"
    r"<(?P<idle>[^>]+)> Unloading model, TTL of .*"
    r"|<(?P<died>[^>]+)> upstream process exited unexpectedly"
    r"|\w+: running (?P<ended>\S+) exited: .* upstream exited unexpectedly"  # before v242
    r'|Request \S+ "(?P<unload>POST /api/models/unload(?:/(?P<one>[^ "]+))?|GET /unload) HTTP/[0-9.]+" 200 '
    r'\S+ (?P<agent>"[^"]*")?.*)$',
    re.MULTILINE,
)


@dataclass(frozen=True)
class Change:
    """A model that was loaded, with the seconds from its start on, or unloaded, for a cause.

    Attributes:
        number: grows by 1, and begins again with the guard.
        at: seconds since 1970.
        seconds: of a load; None: its beginning was missed.
        cached: the share of the model's files that was in the page cache before the engine began; None: unknown.
        cause: of an unload.
    """

    number: int
    at: float
    model: str
    kind: Literal["loaded", "unloaded"]
    seconds: float | None = None
    cached: float | None = None
    cause: Cause | None = None


@dataclass
class _End:
    """An unload without a cause so far, and whether the load of another model followed at once."""

    model: str
    at: float
    clock: float
    is_followed: bool


class Changes:
    """The last changes; what was loaded before the first reading counts when it is unloaded.

    Args:
        names: the id of each model, and of each alias.
        clock: seconds that no one sets.
        now: seconds since 1970.
    """

    def __init__(
        self,
        names: Mapping[str, str],
        *,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._names, self._clock, self._now = names, clock, now
        self._states: Mapping[str, str] | None = None
        self._begun: dict[str, float] = {}
        self._cached: dict[str, float] = {}
        self._causes: dict[str, Cause] = {}  # of models whose end is about to come
        self._ends: list[_End] = []
        self._listed: deque[Change] = deque(maxlen=_MOST)
        self._number = 0

    def listed(self) -> list[dict[str, Any]]:
        """The last changes, the oldest first.  An unload without a reason waits for one."""
        self._settle(_EXPLAINED_S)
        return [asdict(one) for one in self._listed]

    def resume(self, found: Mapping[str, str]) -> None:
        """The states of all models that have a process, after a time of which nothing is known."""
        before, self._states = self._states, dict(found)
        if before is not None:
            for model in sorted(_residents(before) - _residents(found)):
                self._add(model, "unloaded", cause="unknown")
            for model in sorted(_residents(found) - _residents(before)):
                self._add(model, "loaded")

    def states(self, found: Mapping[str, str]) -> None:
        """The states of all models that have a process, after one of them has changed."""
        self._settle(_EXPLAINED_S)
        before, self._states = self._states or {}, dict(found)
        for model in sorted(_residents(before) - _residents(found)):
            self._end(model)
        for model, state in found.items():
            if state == "starting" and before.get(model) != "starting":
                self._begin(model)
        for model in sorted(_residents(found) - _residents(before)):
            begun = self._begun.get(model) if before.get(model) == "starting" else None
            seconds = None if begun is None else round(self._clock() - begun, 3)
            self._add(model, "loaded", seconds=seconds, cached=self._cached.pop(model, None))

    def log(self, text: str) -> None:
        """New lines of llama-swap's own log."""
        self._settle(_EXPLAINED_S)
        for found in _LINE.finditer(text):
            if model := found["idle"]:
                self._explain(model, "idle")
            elif model := found["died"] or found["ended"]:
                self._explain(model, "died")
            elif found["unload"]:
                for model in {self._names.get(found["one"])} if found["one"] else set(self._names.values()):
                    if model:
                        self._explain(model, _AGENTS.get(found["agent"], "requested"))

    def engine_log(self, text: str) -> None:
        """New lines of the engines, and of the preflights before them."""
        for record in preflight_line.read(text):
            if record.code == "page-cache" and record.size_bytes:
                self._cached[record.model] = min(1.0, (record.cached_bytes or 0) / record.size_bytes)

    def end(self) -> None:
        """llama-swap ends, by a signal or to read its configuration again, with all that it runs."""
        for model in sorted(_residents(self._states or {})):
            self._add(model, "unloaded", cause="requested")
        self._states = {}

    def lose(self) -> None:
        """What happens until ``resume`` is not known."""
        self._settle(-1)
        self._begun, self._cached, self._causes = {}, {}, {}

    def _begin(self, model: str) -> None:
        self._begun[model] = self._clock()
        self._cached.pop(model, None)
        self._causes.pop(model, None)
        for end in self._ends:
            end.is_followed |= end.model != model

    def _end(self, model: str) -> None:
        if cause := self._causes.pop(model, None):
            self._add(model, "unloaded", cause=cause)
            return
        clock = self._clock()
        begun = [one for other, one in self._begun.items() if other != model]
        is_followed = any(clock - one <= _AT_ONCE_S for one in begun)  # the two may be observed in either order
        self._ends.append(_End(model, self._now(), clock, is_followed))

    def _explain(self, model: str, cause: Cause) -> None:
        """The log has the *cause* of the end of *model*, which has just come, or is about to."""
        found = [one for one in self._ends if one.model == model]
        if found and not (found[-1].is_followed and self._clock() - found[-1].clock > _AT_ONCE_S):
            self._ends.remove(found[-1])
            self._add(model, "unloaded", cause=cause, at=found[-1].at)
        elif model in _residents(self._states or {}):
            self._causes[model] = cause

    def _settle(self, seconds: float) -> None:
        """Decide about the ends that nothing has explained for more than *seconds*."""
        for end in [one for one in self._ends if self._clock() - one.clock > seconds]:
            self._ends.remove(end)
            self._add(end.model, "unloaded", cause="evicted" if end.is_followed else "unknown", at=end.at)

    def _add(self, model: str, kind: Literal["loaded", "unloaded"], *, at: float | None = None, **known: Any) -> None:
        self._number += 1
        self._listed.append(Change(self._number, round(self._now() if at is None else at, 3), model, kind, **known))


def _residents(states: Mapping[str, str]) -> set[str]:
    return {model for model, state in states.items() if state in _RESIDENT}
