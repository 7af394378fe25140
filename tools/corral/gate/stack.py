"""Box 1: which serving stack the rule decides for, by stated inputs, and whether that one serves."""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Annotated, Literal

from pydantic import BaseModel, Field, ValidationError

from corral.agent.lock_file import content_of
from corral.engine.llama_swap import LlamaSwap
from corral.errors import CannotRun, Refused
from corral.gate import box
from corral.gate.box import Line, State
from corral.lock.lock import LockEntry
from corral.measure import engine_report

LLAMA_CPP, VLLM = "llama.cpp", "vLLM"
FEW, MANY = 10, 30
RULE = (
    f"at most {FEW} requests at once: {LLAMA_CPP}; {MANY} or more on a card: {VLLM}; between: by the measured "
    f"break-even; without a card: {LLAMA_CPP}"
)
_SERVERS = {"llama-server": LLAMA_CPP, "vllm": VLLM}
MOST_USERS = 100_000
"""Of a break-even that an operator gives."""


class _Conditions(BaseModel):
    model: str


class _BreakEven(BaseModel):
    users: Annotated[float, Field(gt=0)] | None
    low: Annotated[float, Field(gt=0)] | None
    high: Annotated[float, Field(gt=0)] | None
    most: Annotated[int, Field(gt=0)]


class _Comparison(BaseModel):
    """What `corral compare-stacks` saved, as far as the rule reads it."""

    version: Literal[1]
    conditions: _Conditions
    break_even: _BreakEven | None


@dataclass(frozen=True)
class Inputs:
    """What the rule decides by.

    Attributes:
        at_once: the most requests under way at a time.
        source: where that number is from.
        has_card: whether the engine computes on a card; None: unknown.
        break_even: users from which on vLLM serves more than llama.cpp, as measured; None: not measured.
        low, high: the interval of it, of a comparison by `corral compare-stacks`; within it the rule cannot decide.
    """

    at_once: int
    source: str
    has_card: bool | None
    break_even: float | None = None
    low: float | None = None
    high: float | None = None

    @property
    def interval(self) -> tuple[float, float] | None:
        """The users between which the two stacks cross; None: that was not measured."""
        if self.low is not None and self.high is not None:
            return self.low, self.high
        return None if self.break_even is None else (self.break_even, self.break_even)

    def __str__(self) -> str:
        card = {True: "on a card", False: "without a card", None: "whether on a card is unknown"}[self.has_card]
        even = "not measured" if self.break_even is None else f"{self.break_even:g} users"
        if self.low is not None and self.high is not None:
            even = (
                f"from {self.low:g} to {self.high:g} users" if math.isfinite(self.high) else f"above {self.low:g} users"
            )
        return f"{self.at_once} at once ({self.source}), {card}, break-even {even}"


def decide(given: Inputs) -> str | None:
    """The stack by ``RULE``; None: an input that it needs is unknown."""
    if given.at_once <= FEW or given.has_card is False:
        return LLAMA_CPP
    if given.has_card is None:
        return None
    if given.at_once >= MANY:
        return VLLM
    if given.interval is None:
        return None
    low, high = given.interval
    return LLAMA_CPP if given.at_once < low else VLLM if given.at_once >= high else None


def given_break_even(text: str, model: str) -> dict[str, float]:
    """The fields of ``Inputs`` of a number of users, or of the file that `corral compare-stacks --save` wrote.

    Raises:
        Refused: *text* is neither, or the file is of another model, or has no break-even.
    """
    if text.isdecimal() and 1 <= int(text) <= MOST_USERS:
        return {"break_even": int(text)}
    again = f"corral compare-stacks {model} --save FILE"
    try:
        found = _Comparison.model_validate_json(content_of(Path(text)), strict=True)
    except (OSError, ValidationError):
        message = f"{text} is neither a number of users from 1 to {MOST_USERS:,} nor a comparison that corral saved."
        raise Refused(message, next_step=again) from None
    if found.conditions.model != model:
        raise Refused(f"{text} compares stacks for {found.conditions.model}, not for {model}.", next_step=again)
    if (even := found.break_even) is None:
        raise Refused(f"{text} has no break-even: the stacks have no two levels that count.", next_step=again)
    low = float(even.most) if even.low is None else even.low
    high = math.inf if even.high is None else even.high
    return {"low": low, "high": high} | ({} if even.users is None else {"break_even": even.users})


def most_at_once(entry: LockEntry) -> tuple[int, str]:
    """The most requests at a time that a latency budget of a model has, else its request slots; and the source."""
    if not entry.intent.latency:
        return entry.intent.parallel, "parallel; no latency budget"
    largest = max(entry.intent.latency, key=lambda one: one.requests_at_once)
    return largest.requests_at_once, f"the budget of {largest.consumer}"


def has_card(client: LlamaSwap, model: str, entry: LockEntry) -> bool | None:
    """Whether the loaded engine of *model* computes on a card; None: unknown.

    Its own log has its buffers.  Where it has not, a measurement of the same command line on a card counts.
    """
    with suppress(CannotRun):
        if found := engine_report.parse(client.model_log(model)):
            return bool(found.cards)
    return True if entry.measured else None


def judge(entry: LockEntry, given: Inputs, *, model: str) -> tuple[Line, ...]:
    """Whether what serves *entry* is what the rule decides."""
    decided, serves = decide(given), _SERVERS.get(PurePosixPath(entry.argv[0]).name, entry.argv[0])
    if decided is None:
        if given.has_card is None:
            step = f"Load it anew, so that its log has its buffers: corral measure {model} --reload --dry-run"
        else:
            step = (
                f"corral compare-stacks {model} --save FILE, then: corral gate {model} --only stack --break-even FILE"
            )
        return box.line(State.UNKNOWN, f"{given}: the rule cannot decide ({RULE})", step)
    text = f"{given}: {decided}, and {serves} serves ({RULE})"
    if decided == serves:
        return box.line(State.PASSED, text)
    return box.line(State.FAILED, text, f"Serve it with {decided}, or lower requests_at_once in the model's file")
