"""The nine boxes, their states, and what a measurement of one found."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Annotated

from pydantic import BaseModel, ConfigDict, StringConstraints

BOXES = {
    "stack": "stack decided by rule",
    "latency": "latency budget",
    "single": "single request",
    "users": "users at a time",
    "sdk": "SDK contract",
    "health": "deep health",
    "shutdown": "graceful shutdown",
    "adapters": "adapters",
    "monitoring": "monitoring alive",
}
"""Each box by its name on the command line, with its title, in order."""

NOT_USABLE = frozenset({"adapters"})
"""Boxes that a model may have no use for; every other one must be measured."""

_Text = Annotated[str, StringConstraints(max_length=2000)]


class State(StrEnum):
    """Of a box, or of a line of it."""

    PASSED = "passed"
    FAILED = "failed"
    UNKNOWN = "unknown"
    NOT_USED = "not used"

    @property
    def is_tick(self) -> bool:
        """Whether it ticks the box; *unknown* does not."""
        return self in (State.PASSED, State.NOT_USED)


_FROM_WORST = (State.FAILED, State.UNKNOWN, State.PASSED, State.NOT_USED)


class Line(BaseModel):
    """One finding within a box: its state, the figures, and what would help; a box has one, or one for each load."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    state: State
    text: Annotated[str, StringConstraints(max_length=2000, pattern=r"\S")]
    next_step: _Text = ""


def worst(lines: Iterable[Line]) -> State:
    """The state of a box with *lines*; unknown without any."""
    found = {one.state for one in lines}
    return next((state for state in _FROM_WORST if state in found), State.UNKNOWN)


def line(state: State, text: str, next_step: str = "") -> tuple[Line, ...]:
    """The lines of a box with one finding; a text from outside may be cut."""
    return (Line(state=state, text=_cut(text), next_step=_cut(next_step)),)


def _cut(text: str) -> str:
    return text if len(text) <= 2000 else f"{text[:1999]}…"
