"""Compares models by what they answered to the same set: which is better, by which measure.

Shares and verdicts are compared as they are: they are about these cases.  Seconds are compared case by case, because
cases take different times: a model is faster when the sign test on all cases says so with 99 % (as `corral bench`
does), and when half of them take at least 5 % less.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from corral.bench.comparison import CONFIDENCE, LEAST_CHANGE
from corral.evaluation.judging import BEST, LATENCIES, P50, PARSED, RIGHT, TOP, Judged, share

ALIKE, TOO_FEW = "alike", "n too small"
_MOST_PAIRS = 1000  # of the sign test, which is exact: more take seconds


@dataclass(frozen=True)
class Compared:
    """One measure: what each model has, and which are *better* than all others."""

    measure: str
    cells: tuple[str, ...]
    better: str

    def as_json(self, models: Sequence[Judged]) -> dict[str, Any]:
        """For programs, *models* being those that were compared."""
        cells = {one.model: cell for one, cell in zip(models, self.cells, strict=True)}
        return {"measure": self.measure, "models": cells, "better": self.better}


def compare(models: Sequence[Judged]) -> Iterator[Compared]:
    """Each measure of *models*, two or more, which answered the same cases in as many rounds."""
    yield Compared(
        "verdict", tuple(one.state for one in models), _those(models, [one.state == "passed" for one in models])
    )
    for name, counts in (
        (PARSED, [(one.parsed, one.answers) for one in models]),
        (RIGHT, [(one.right, one.expected) for one in models]),
    ):
        if any(whole for _, whole in counts):
            most = max(part for part, _ in counts)
            cells = tuple(share(*one) for one in counts)
            yield Compared(name, cells, _those(models, [part == most for part, _ in counts]))
    for name in (TOP, BEST):
        states = [next((rule.state for rule in one.rules if rule.name == name), "") for one in models]
        if all(states):
            yield Compared(name, tuple(states), _those(models, [state == "passed" for state in states]))
    for name in LATENCIES:
        yield _latency(name, models)


def _latency(name: str, models: Sequence[Judged]) -> Compared:
    values = [one.spread.p50 if name == P50 else one.spread.p95 for one in models]
    cells = tuple(TOO_FEW if value is None else f"{value:.3f} s" for value in values)
    known = {at: value for at, value in enumerate(values) if value is not None}
    if len(known) < len(models):
        return Compared(name, cells, TOO_FEW)
    fastest = models[min(known, key=lambda at: known[at])]
    others = [one for one in models if one is not fastest]
    return Compared(name, cells, fastest.model if all(_is_faster(fastest, one) for one in others) else ALIKE)


def _is_faster(first: Judged, second: Judged) -> bool:
    """Whether *first* takes less time than *second* for the same cases."""
    before = {(case, number): seconds for case, number, seconds in first.seconds}
    quotients = [seconds / before[case, number] for case, number, seconds in second.seconds if (case, number) in before]
    if not quotients or statistics.median(quotients) < 1 + LEAST_CHANGE:
        return False
    pairs = quotients[:_MOST_PAIRS]
    n, slower = len(pairs), sum(one > 1 for one in pairs)
    by_chance = 2 * sum(math.comb(n, k) for k in range(slower, n + 1)) / (1 << n)
    return by_chance <= 1 - CONFIDENCE


def _those(models: Sequence[Judged], are_best: Sequence[bool]) -> str:
    """The names of the models that are best, or that all are alike."""
    if all(are_best) or not any(are_best):
        return ALIKE
    return ", ".join(one.model for one, is_best in zip(models, are_best, strict=True) if is_best)


def headline(one: Judged) -> str:
    """The verdict on a model in a sentence, with the rules that it does not pass."""
    if one.state == "passed":
        return f"{one.model} passes"
    reasons = ", ".join(f"{rule.name} ({rule.found})" for rule in one.rules if rule.state != "passed")
    if one.is_only_slow:
        return f"{one.model} fails by latency alone: {reasons}"
    return f"{one.model} {'fails' if one.state == 'failed' else 'is unknown'} by {reasons}"
