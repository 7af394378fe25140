"""Which serving stack answers more at how many users, and from how many on vLLM serves more than llama.cpp.

The break-even is the number of users at which the output tokens a second of the two cross, on a line between two
measured levels (over the logarithm of the users), when vLLM stays ahead from there on.  Its interval is a bootstrap's:
each level is cut into slices of time, and as many of them are drawn again and again.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from corral.bench import figures
from corral.bench.comparison import CONFIDENCE, DRAWS
from corral.bench.exchange import Sample
from corral.bench.figures import Figures
from corral.bench.load import Run
from corral.bench.measuring import Measured

LLAMA_CPP: Final = "llama.cpp"
VLLM: Final = "vllm"
KNOWN: Final = (LLAMA_CPP, VLLM, "sglang", "tgi", "ollama")
"""The stacks of which the table has a row, whether they were measured or not."""
SLICES: Final = 20
MOST_FAILED: Final = 0.01
"""Of the requests of a level: with more, its tokens a second are those of a smaller load."""

COLUMNS: Final = ("stack", "users", "n", "failed", "TTFT p50", "TPOT p50", "E2E p50", "output tokens/s", "note")


@dataclass(frozen=True)
class Stack:
    """One serving stack: what was measured of it, or why nothing was.

    Attributes:
        name: llama.cpp, vllm, or another one.
        measured: the levels; None: it could not be measured.
        reason: why it was not; empty: it was.
    """

    name: str
    measured: Measured | None
    reason: str = ""


@dataclass(frozen=True)
class BreakEven:
    """Users from which on vLLM serves more than llama.cpp.

    Attributes:
        users: None: it never does up to *most*.
        low, high: of the interval; None: above *most*.
        most: the largest level that counts of both.
    """

    users: float | None
    low: float | None
    high: float | None
    most: int

    def __str__(self) -> str:
        if self.users is None:
            return f"above {self.most} users, the largest level that both answered"
        ends = " to ".join(f"above {self.most}" if one is None else f"{one:.1f}" for one in (self.low, self.high))
        return f"{self.users:.1f} users ({CONFIDENCE:.0%} interval: {ends})"


def break_even(first: Measured, second: Measured, *, seed: int = 0) -> BreakEven | None:
    """From how many users on *second* serves more than *first*; None: they have no two valid levels in common."""
    rates = [{users: _slices(run) for users, run in _valid(one)} for one in (first, second)]
    common = sorted(rates[0].keys() & rates[1].keys())
    if len(common) < 2:
        return None
    means = [[sum(one[users]) / len(one[users]) for users in common] for one in rates]
    source = random.Random(seed)  # noqa: S311 - no secret
    drawn = sorted(
        _or_infinite(
            _crossing(common, *([_mean(source.choices(one[users], k=SLICES)) for users in common] for one in rates))
        )
        for _ in range(DRAWS)
    )
    tail = (1 - CONFIDENCE) / 2
    ends = (drawn[math.floor(tail * (DRAWS - 1))], drawn[math.ceil((1 - tail) * (DRAWS - 1))])
    low, high = (None if math.isinf(one) else one for one in ends)
    return BreakEven(_crossing(common, *means), low, high, common[-1])


def rows(stacks: Sequence[Stack]) -> Iterator[tuple[str, ...]]:
    """A row for each level of each stack, and one for each known stack that was not measured, under ``COLUMNS``."""
    for one in stacks:
        if one.measured is None:
            yield (one.name, *["-"] * (len(COLUMNS) - 2), one.reason)
            continue
        for run in one.measured.runs:
            found = figures.of(run)
            yield (
                one.name,
                str(found.users),
                str(found.ok),
                str(found.requests - found.ok),
                *(_milliseconds(spread.p50) for spread in (found.ttft, found.tpot, found.e2e)),
                f"{found.output_tokens_per_s:.1f}",
                "; ".join(_notes(found)),
            )
    named = {one.name for one in stacks}
    for name in KNOWN:
        if name not in named:
            yield (name, *["-"] * (len(COLUMNS) - 2), f"not measured: no --endpoint {name}=URL was given")


def as_json(stacks: Sequence[Stack], found: BreakEven | None) -> dict[str, Any]:
    """The same for programs."""
    return {
        "break_even": None if found is None else vars(found),
        "stacks": {
            one.name: {"not_measured": one.reason}
            if one.measured is None
            else {"model": one.measured.model, "levels": [figures.of(run).as_json() for run in one.measured.runs]}
            for one in stacks
        },
    }


def of(stacks: Sequence[Stack]) -> BreakEven | None:
    """The break-even of llama.cpp and vLLM among *stacks*; None: one was not measured, or at too few levels."""
    found: Mapping[str, Measured | None] = {one.name: one.measured for one in stacks}
    first, second = found.get(LLAMA_CPP), found.get(VLLM)
    return break_even(first, second) if first and second else None


def _valid(one: Measured) -> Iterator[tuple[int, Run]]:
    for run in one.runs:
        found = figures.of(run)
        if found.users and found.ok and not found.invalid and found.requests - found.ok <= MOST_FAILED * found.requests:
            yield found.users, run


def _slices(run: Run) -> list[float]:
    """Output tokens a second in each of so many slices of the level; an answer's are spread from first to last."""
    whole = [one for one in run.samples if one.is_ok and one.output_tokens]
    began = min(one.sent for one in whole)
    width = (max(one.ended for one in whole) - began) / SLICES
    found = [0.0] * SLICES
    for one in whole:
        for at, tokens in _spread(one, began, width):
            found[at] += tokens / width
    return found


def _spread(one: Sample, began: float, width: float) -> Iterator[tuple[int, float]]:
    first = one.ended if one.first is None else one.first
    begin, end = (first - began) / width, (max(one.ended, first + width / 1000) - began) / width
    for at in range(min(SLICES - 1, int(begin)), min(SLICES - 1, int(end)) + 1):
        upper = end if at == SLICES - 1 else min(end, at + 1)
        if (share := (upper - max(begin, at)) / (end - begin)) > 0:
            yield at, (one.output_tokens or 0) * share


def _crossing(users: Sequence[int], first: Sequence[float], second: Sequence[float]) -> float | None:
    """Where *second* overtakes *first* for good."""
    ahead = [b - a for a, b in zip(first, second, strict=True)]
    behind = [at for at, value in enumerate(ahead) if value <= 0]
    if not behind:
        return float(users[0])
    at = behind[-1]
    if at == len(users) - 1:
        return None
    share = -ahead[at] / (ahead[at + 1] - ahead[at])
    low, high = math.log(users[at]), math.log(users[at + 1])
    return math.exp(low + share * (high - low))


def _or_infinite(value: float | None) -> float:
    return math.inf if value is None else value


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _milliseconds(value: float | None) -> str:
    return "n too small" if value is None else f"{1000 * value:.0f} ms"


def _notes(found: Figures) -> Iterator[str]:
    yield from (f"{times} {outcome}" for outcome, times in found.failures.items())
    yield from (f"invalid: {reason}" for reason in found.invalid)
