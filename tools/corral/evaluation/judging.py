"""Judges the answers of a model: shares, scores, seconds, and a verdict by the rules of the set.

An answer that is not there, or not parsed, has no field right and no score; it counts in every share.
"""

from __future__ import annotations

import json
import math
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from corral.bench import figures
from corral.bench.figures import Spread, least_samples, quantile
from corral.evaluation.asking import Answer, Asked
from corral.evaluation.cases import Case, EvalSet, Exact
from corral.golden.comparison import State

PARSED, RIGHT, TOP, BEST, P50, P95 = "parsed", "fields right", "decisive top", "expected top", "p50", "p95"
LATENCIES = (P50, P95)

DEFINITIONS = (
    ("parsed", "answers that are whole, JSON that every parser reads alike, and as the schema of their case has it"),
    (
        "fields right",
        "expected fields that have the value, or a number in the range; those of no parsed answer are wrong",
    ),
    ("decisive top", "in every round all cases have a score, and rank N is above rank N + 1: no tie across the cut"),
    ("expected top", "in every round the lowest score of the expected cases is above the highest of all others"),
    (
        "p50, p95",
        "from sending a request to the end of its whole answer, one at a time; the first one, a load, is apart",
    ),
    ("n too small", "a percentile needs ten answers beyond it (p50 20, p95 200); the rule is then unknown"),
    ("verdict", "passed when every rule passes, failed when one fails, else unknown, which is no pass"),
)
"""What is printed with a verdict."""

_BINS = 10
_MOST_SHOWN = 80
_BARS = "▁▂▃▄▅▆▇█"


@dataclass(frozen=True)
class Wrong:
    """A field of an answer that is not as expected; texts, JSON's for values."""

    case: str
    round: int
    field: str
    expected: str
    got: str


@dataclass(frozen=True)
class Rule:
    """One rule of the verdict: what was *found*, and what is *asked* for."""

    name: str
    state: State
    found: str
    asked: str


@dataclass(frozen=True)
class Scores:
    """The distribution of all scores of all rounds: it describes them, and estimates nothing."""

    n: int
    lowest: float
    quartiles: tuple[float, float, float]
    highest: float
    distinct: int
    bins: tuple[int, ...]
    limits: tuple[float, float]

    def line(self) -> str:
        """``min 2, quartiles 5 / 7 / 8, max 10, 6 different; 0 ▁▁▃█ 10``, a bar for each tenth of the range."""
        most = max(self.bins)
        bars = "".join(_BARS[math.ceil(one / most * len(_BARS)) - 1] if one else "·" for one in self.bins)
        quartiles = " / ".join(f"{one:g}" for one in self.quartiles)
        ends = f"min {self.lowest:g}, quartiles {quartiles}, max {self.highest:g}"
        return f"{ends}, {self.distinct} different; {self.limits[0]:g} {bars} {self.limits[1]:g}"


@dataclass(frozen=True)
class Judged:
    """A model.

    Attributes:
        model: its id.
        state: of the verdict.
        rules: each that the set has, in the order of the names above.
        answers: how many were asked for.
        parsed: how many of them were.
        right, expected: fields, of all answers.
        by_field: the same of each field, by its path.
        wrong: the fields that are not right, of parsed answers.
        problems: why an answer was not parsed, or is not there: case, round, reason.
        scores: their distribution; None: there are none.
        ranked: cases with their score in the first round, the best first.
        seconds: of whole answers: case, round, seconds.
        spread: their percentiles.
        first_answer_s: seconds of the first request, a load included.
    """

    model: str
    state: State
    rules: tuple[Rule, ...]
    answers: int
    parsed: int
    right: int
    expected: int
    by_field: Mapping[str, tuple[int, int]]
    wrong: tuple[Wrong, ...]
    problems: tuple[tuple[str, int, str], ...]
    scores: Scores | None
    ranked: tuple[tuple[str, float], ...]
    seconds: tuple[tuple[str, int, float], ...]
    spread: Spread
    first_answer_s: float | None

    @property
    def failed(self) -> tuple[str, ...]:
        """The names of the rules that do not pass."""
        return tuple(rule.name for rule in self.rules if rule.state != "passed")

    @property
    def is_only_slow(self) -> bool:
        """Whether it fails by latency alone."""
        return self.state == "failed" and set(self.failed) <= set(LATENCIES)


def judge(of: EvalSet, asked: Asked) -> Judged:
    """The verdict on what a model answered to the set *of*."""
    cases = {case.id: case for case in of.cases}
    wrong = [one for answer in asked.answers for one in _wrong(answer, cases[answer.case])]
    by_field = _by_field(cases, asked.answers)
    rounds = _rounds(of, asked.answers)
    seconds = tuple((one.case, one.round, one.seconds) for one in asked.answers if one.seconds is not None)
    spread = figures.spread(each for _, _, each in seconds)
    parsed = sum(one.fields is not None for one in asked.answers)
    right, expected = (sum(counts[at] for counts in by_field.values()) for at in (0, 1))
    rules = tuple(_rules(of, asked, parsed, right, expected, rounds, spread))
    states = {rule.state for rule in rules}
    ranked = sorted(rounds[0].items(), key=lambda one: (-one[1], one[0])) if rounds else []
    return Judged(
        model=asked.model,
        state="failed" if "failed" in states else "unknown" if "unknown" in states else "passed",
        rules=rules,
        answers=len(asked.answers),
        parsed=parsed,
        right=right,
        expected=expected,
        by_field=by_field,
        wrong=tuple(wrong),
        problems=tuple((one.case, one.round, one.problem) for one in asked.answers if one.problem),
        scores=_distribution(of, [score for scores in rounds for score in scores.values()]),
        ranked=tuple(ranked),
        seconds=seconds,
        spread=spread,
        first_answer_s=asked.first_answer_s,
    )


def _wrong(answer: Answer, case: Case) -> Iterator[Wrong]:
    if answer.fields is None:
        return
    for path in case.fields:
        if not is_right(answer.fields, case, path):
            got = _shown(answer.fields[path]) if path in answer.fields else "none"
            yield Wrong(case.id, answer.round, path, _expected(case, path), got)


def is_right(fields: Mapping[str, Any], case: Case, path: str) -> bool:
    """Whether the field *path* of an answer's *fields* is as *case* expects it."""
    if path not in fields:
        return False
    value = fields[path]
    if path in case.between:
        least, most = case.between[path]
        number = _number(value)
        return number is not None and least <= number <= most
    return _is_same(case.expect[path], value)


def _is_same(expected: Exact, value: Any) -> bool:
    if isinstance(expected, bool) or isinstance(value, bool):  # True equals 1 in Python, and not in JSON
        return expected is value
    if isinstance(expected, str) and isinstance(value, str):
        return expected == unicodedata.normalize("NFC", value)  # as the file was read
    return bool(expected == value)


def _number(value: Any) -> float | None:
    """*value* where it is a number; None also for one that is too large to be compared."""
    try:
        found = float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else math.nan
    except OverflowError:
        return None
    return found if math.isfinite(found) else None


def _expected(case: Case, path: str) -> str:
    if path in case.between:
        least, most = case.between[path]
        return f"{least:g} to {most:g}" if most > least else f"{least:g}"
    return _shown(case.expect[path])


def _shown(value: Any) -> str:
    is_constant = value is None or isinstance(value, bool)
    text = json.dumps(value) if is_constant else repr(value) if isinstance(value, str) else str(value)
    return text if len(text) <= _MOST_SHOWN else f"{text[: _MOST_SHOWN - 1]}…"


def _by_field(cases: Mapping[str, Case], answers: Sequence[Answer]) -> dict[str, tuple[int, int]]:
    found: dict[str, tuple[int, int]] = {}
    for answer in answers:
        case = cases[answer.case]
        for path in case.fields:
            right, expected = found.get(path, (0, 0))
            is_one = answer.fields is not None and is_right(answer.fields, case, path)
            found[path] = right + is_one, expected + 1
    return found


def _rounds(of: EvalSet, answers: Sequence[Answer]) -> list[dict[str, float]]:
    """The score of each case that has one, round by round; none where the set has no score."""
    if of.score is None:
        return []
    found: list[dict[str, float]] = [{} for _ in range(max(one.round for one in answers))]
    for one in answers:
        if (value := _number((one.fields or {}).get(of.score.field))) is not None:
            found[one.round - 1][one.case] = value
    return found


def _distribution(of: EvalSet, scores: Sequence[float]) -> Scores | None:
    if not scores:
        return None
    assert of.score
    first, last = _limits(of.cases, of.score.field, scores)
    bins = [0] * _BINS
    for one in scores:
        share = (one - first) / (last - first) if last > first else 0.0
        bins[max(0, min(_BINS - 1, int(share * _BINS)))] += 1
    q1, q2, q3 = (quantile(scores, q) for q in (0.25, 0.5, 0.75))
    return Scores(len(scores), min(scores), (q1, q2, q3), max(scores), len(set(scores)), tuple(bins), (first, last))


def _limits(cases: Sequence[Case], path: str, scores: Sequence[float]) -> tuple[float, float]:
    """The range of the histogram: that of the schemas where all have the same, else that of the scores."""
    found = {tuple(_number(_field(case, path).get(key)) for key in ("minimum", "maximum")) for case in cases}
    first, last = next(iter(found)) if len(found) == 1 else (None, None)
    return (min(scores), max(scores)) if first is None or last is None else (first, last)


def _field(case: Case, path: str) -> Mapping[str, Any]:
    found = case.schema["properties"].get(path)
    return found if isinstance(found, dict) else {}


def _rules(
    of: EvalSet,
    asked: Asked,
    parsed: int,
    right: int,
    expected: int,
    rounds: Sequence[Mapping[str, float]],
    spread: Spread,
) -> Iterator[Rule]:
    yield _share(PARSED, parsed, len(asked.answers), of.rules.parsed)
    if expected:
        yield _share(RIGHT, right, expected, of.rules.right)
    if of.top:
        yield _decisive(of, rounds, of.top)
    if of.score and of.score.best:
        yield _best(of, rounds, of.score.best)
    for name, q, value, limit in (
        (P50, 0.5, spread.p50, of.rules.p50_seconds),
        (P95, 0.95, spread.p95, of.rules.p95_seconds),
    ):
        if limit is not None:
            yield _latency(name, q, value, limit, spread.n, len(of.cases))


def _share(name: str, part: int, whole: int, least: float) -> Rule:
    is_met = part >= least * whole - 1e-9  # 0.7 * 30 is a little more than 21
    return Rule(name, "passed" if is_met else "failed", share(part, whole), f"at least {100 * least:g} %")


def share(part: int, whole: int) -> str:
    """``29 of 30, 96.6 %``; never rounded up to 100 %."""
    return f"{part} of {whole}, {math.floor(1000 * part / whole) / 10:g} %" if whole else "none"


def _decisive(of: EvalSet, rounds: Sequence[Mapping[str, float]], top: int) -> Rule:
    asked = f"rank {top} above rank {top + 1}"
    margins = []
    for scores in rounds:
        if missing := len(of.cases) - len(scores):
            return Rule(TOP, "failed", f"{missing} of {len(of.cases)} cases have no score", asked)
        ordered = sorted(scores.values(), reverse=True)
        margins.append((ordered[top - 1] - ordered[top], ordered[top - 1], ordered[top]))
    margin, last, next_one = min(margins)
    found = f"rank {top}: {last:g}, rank {top + 1}: {next_one:g}"
    return Rule(TOP, "passed" if margin > 0 else "failed", found, asked)


def _best(of: EvalSet, rounds: Sequence[Mapping[str, float]], best: Sequence[str]) -> Rule:
    asked = f"{', '.join(best)} above all others"
    for scores in rounds:
        if missing := len(of.cases) - len(scores):
            return Rule(BEST, "failed", f"{missing} of {len(of.cases)} cases have no score", asked)
        other = max(scores.keys() - set(best), key=lambda id_: (scores[id_], id_))
        if below := [id_ for id_ in best if scores[id_] <= scores[other]]:
            return Rule(BEST, "failed", f"not above {other} with {scores[other]:g}: {', '.join(below)}", asked)
    return Rule(BEST, "passed", f"all {len(best)} are", asked)


def _latency(name: str, q: float, value: float | None, limit: float, n: int, cases: int) -> Rule:
    asked = f"at most {limit:g} s"
    if value is None:
        least = least_samples(q)
        rounds = math.ceil(least / cases)
        found = f"n too small: {n} of {least} whole answers"
        found += f"; --repeat {rounds} asks for {rounds * cases}" if n else ""
        return Rule(name, "unknown", found, asked)
    return Rule(name, "passed" if value <= limit else "failed", f"{value:.3f} s", asked)
