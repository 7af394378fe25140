"""What a benchmark decides, by rules that its document states."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from corral.bench.figures import Figures

LEAST_GAIN = 0.05
RULES = (
    "A level is `invalid` when the client itself was too late, or sent no request; it decides nothing.",
    "It `fails` when a request failed, or when 95 of 100 answers took longer than a budget of the model allows.",
    "Of its latency budgets, those count whose prompt and answer are not longer than the ones of this benchmark.",
    "It is `unknown` where one counts and too few answers for its percentile; else it `holds`.",
    "With fewer requests under way at a time, at most, than it has users it is `unknown`, too.",
    "The model serves the largest load up to which every level holds.",
    "Beside neighbours, each of their states has a verdict of its own.",
    f"It is saturated from the first level on after which no level has {LEAST_GAIN:.0%} more output tokens/s.",
)


@dataclass(frozen=True)
class Goal:
    """A latency budget: seconds in which 95 of 100 of a consumer's answers must end, and what that consumer sends."""

    consumer: str
    prompt_tokens: int
    answer_tokens: int
    p95_seconds: float
    requests_at_once: int = 1


class State(StrEnum):
    """Of a level."""

    HOLDS = "holds"
    FAILS = "fails"
    UNKNOWN = "unknown"
    INVALID = "invalid"


@dataclass(frozen=True)
class Decision:
    """The *state* of a level, and why."""

    level: str
    state: State
    reason: str


@dataclass(frozen=True)
class Verdict:
    """On one model.

    Attributes:
        decisions: one for each level, by its load.
        serves: the largest load up to which every level holds; empty: none.
        saturated: the first level that no larger one exceeds; empty: none was saturated.
    """

    decisions: tuple[Decision, ...]
    serves: str
    saturated: str


def of(levels: Sequence[Figures], goals: Sequence[Goal], *, prompt_tokens: int, answer_tokens: int) -> Verdict:
    """The verdict on the *levels* of one model beside the same neighbours, asked for so many tokens; by ``RULES``."""
    asked = [one for one in goals if one.prompt_tokens <= prompt_tokens and one.answer_tokens <= answer_tokens]
    ordered = sorted(levels, key=lambda one: one.users or one.asked_rate or 0)
    decisions = tuple(_decide(one, asked) for one in ordered)
    serves = ""
    for one in decisions:
        if one.state is not State.HOLDS:
            break
        serves = one.level
    return Verdict(decisions, serves, _saturated([one for one in ordered if not one.invalid]))


def too_few_at_once(level: Figures, asked: int | None) -> str:
    """How many requests were under way at a time, where that is fewer than the users *asked* for; else nothing."""
    if asked is None or level.at_once >= asked:
        return ""
    return f"{asked} at a time were asked for, and at most {level.at_once} were under way"


def _decide(level: Figures, goals: Sequence[Goal]) -> Decision:
    if level.invalid:
        return Decision(level.level, State.INVALID, "; ".join(level.invalid))
    if failed := level.requests - level.ok:
        causes = ", ".join(f"{times} {outcome}" for outcome, times in level.failures.items())
        return Decision(level.level, State.FAILS, f"{failed} of {level.requests} requests failed: {causes}")
    if few := too_few_at_once(level, level.users):
        return Decision(level.level, State.UNKNOWN, few)
    if not goals:
        return Decision(level.level, State.HOLDS, "every answer is whole; no latency budget asks for less")
    if (p95 := level.e2e.p95) is None:
        reason = f"{level.e2e.n} answers are too few for a p95, which {len(goals)} latency budgets ask for"
        return Decision(level.level, State.UNKNOWN, reason)
    missed = list(_missed(goals, p95))
    reason = "; ".join(missed) or f"95 of 100 answers end within {p95:.2f} s, and so within every latency budget"
    return Decision(level.level, State.FAILS if missed else State.HOLDS, reason)


def _missed(goals: Sequence[Goal], p95: float) -> Iterator[str]:
    for one in goals:
        if p95 > one.p95_seconds:
            yield f"{p95:.2f} s for 95 of 100 answers, and {one.consumer} asks for {one.p95_seconds:g} s"


def _saturated(levels: Sequence[Figures]) -> str:
    rates = [one.output_tokens_per_s for one in levels]
    for at, one in enumerate(levels[:-1]):
        if max(rates[at + 1 :]) < (1 + LEAST_GAIN) * rates[at]:
            return one.level
    return ""
