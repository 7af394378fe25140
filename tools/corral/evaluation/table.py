"""What a verdict and a comparison have as rows of a table, and which fields were wrong as lines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from corral.bench.figures import least_samples
from corral.evaluation.judging import LATENCIES, Judged, share

COLUMNS = ("model", "measure", "found", "asked for", "state")
"""The headings of ``rows``."""
MOST_LINES = 20
"""Of fields that are wrong, and of answers that are not parsed; of each model."""
_NOT_JUDGED = "-"


def rows(one: Judged) -> Iterator[tuple[str, ...]]:
    """All that is known of a model: the rules with their states, then what no rule judges."""
    for rule in one.rules:
        yield one.model, rule.name, rule.found, rule.asked, rule.state
    for path, (right, expected) in one.by_field.items():
        yield one.model, f"field {path}", share(right, expected), _NOT_JUDGED, _NOT_JUDGED
    if one.scores:
        yield one.model, "score", one.scores.line(), _NOT_JUDGED, _NOT_JUDGED
    judged = {rule.name for rule in one.rules}
    for name, q, value in zip(LATENCIES, (0.5, 0.95), (one.spread.p50, one.spread.p95), strict=True):
        if name not in judged:
            few = f"n too small: {one.spread.n} of {least_samples(q)} whole answers"
            yield one.model, name, few if value is None else f"{value:.3f} s", _NOT_JUDGED, _NOT_JUDGED
    if one.first_answer_s is not None:
        yield one.model, "first answer, with any load", f"{one.first_answer_s:.2f} s", _NOT_JUDGED, _NOT_JUDGED
    yield one.model, "verdict", one.state, _NOT_JUDGED, one.state


def lines(one: Judged, rounds: int) -> Iterator[str]:
    """What was not parsed, and what was wrong, ``MOST_LINES`` of each."""
    problems = [f"{_place(one, case, number, rounds)}: {why}" for case, number, why in one.problems]
    wrong = [
        f"{_place(one, each.case, each.round, rounds)}: field {each.field}: expected {each.expected}, got {each.got}"
        for each in one.wrong
    ]
    for found in (problems, wrong):
        yield from found[:MOST_LINES]
        if len(found) > MOST_LINES:
            yield f"{one.model}: … and {len(found) - MOST_LINES} more; --json has all"


def _place(one: Judged, case: str, number: int, rounds: int) -> str:
    return f"{one.model}, {case}" + (f", round {number}" if rounds > 1 else "")


def as_json(models: Sequence[Judged]) -> list[dict[str, Any]]:
    """The same for programs; seconds."""
    return [
        asdict(one)
        | {
            "problems": [dict(zip(("case", "round", "problem"), each, strict=True)) for each in one.problems],
            "seconds": [dict(zip(("case", "round", "seconds"), each, strict=True)) for each in one.seconds],
            "by_field": {path: {"right": right, "expected": all_} for path, (right, all_) in one.by_field.items()},
            "spread": one.spread.as_json(),
        }
        for one in models
    ]
