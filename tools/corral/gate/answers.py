"""Boxes 2 to 4: the latency budgets, one request alone, and many users at a time; all by ``corral.bench``."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence

from corral.bench import budgets, figures, verdict
from corral.bench.exchange import described
from corral.bench.figures import Figures
from corral.bench.load import Level
from corral.bench.measuring import Measured
from corral.bench.measuring import measure as measured_levels
from corral.bench.verdict import Decision, Goal
from corral.bench.verdict import State as Kept
from corral.gate import box
from corral.gate.box import Line, State
from corral.gate.site import Site

SECONDS = 30.0
"""Of a level of users."""
_STATES = {Kept.HOLDS: State.PASSED, Kept.FAILS: State.FAILED, Kept.UNKNOWN: State.UNKNOWN, Kept.INVALID: State.UNKNOWN}
_QUIETER = "Measure again with less other work on this machine, or from another machine"
_LONGER = "Measure longer than the second in which the users begin at most: --seconds"
_REFUSED = "http-429"
_LIMIT = (
    "llama-swap accepts as many requests at a time for a model as its concurrencyLimit: ten, or `parallel` where that "
    "is more, unless `concurrency` of the homelab sets another number, and no client more than its own `requests`"
)


def latency(site: Site) -> tuple[Line, ...]:
    """Whether each latency budget of the model is kept, as ``corral bench --budgets`` measures it.

    Raises:
        CannotRun: the model gives no whole answer at all.
    """
    if not site.goals:
        text = f"{site.model} has no latency budget, so how fast it must answer is unknown"
        return box.line(State.UNKNOWN, text, "Add `latency:` to the model's file (docs/models.md), then: corral lock")

    async def outcomes() -> list[budgets.Outcome]:
        async with site.client() as client:
            model = site.entry.intent
            return [await budgets.measure(client, site.model, model, goal, site.report) for goal in site.goals]

    return tuple(line for one in asyncio.run(outcomes()) for line in _kept(one, site))


def _kept(one: budgets.Outcome, site: Site) -> tuple[Line, ...]:
    p95 = "too few answers for a p95" if one.p95 is None else f"p95 {one.p95:.2f} s"
    at_once = f"{one.goal.requests_at_once} at once, {one.goal.prompt_tokens}+{one.goal.answer_tokens} tokens"
    reason = f"the run is invalid: {one.reason}" if one.state is Kept.INVALID else one.reason
    text = f"{one.goal.consumer}: {p95} of {one.goal.p95_seconds:g} s, {one.answers} answers ({at_once}); {reason}"
    if _REFUSED in reason:
        return box.line(State.FAILED, f"{text}; {_LIMIT}", _wider(one.goal.requests_at_once, site))
    return box.line(_STATES[one.state], text, one.remedy)


def single(site: Site) -> tuple[Line, ...]:
    """Whether one request alone gets a whole answer, and how fast.

    Raises:
        CannotRun: the model gives no whole answer at all.
    """
    measured = asyncio.run(_measured(site, [Level(users=1, seconds=site.timeout_s, requests=1)]))
    (sample,) = measured.runs[0].samples
    if not sample.is_ok:
        return box.line(State.FAILED, f"{described(sample.outcome)}: {sample.example or 'no further word'}", site.why)
    times = [("TTFT", figures.ttft(sample)), ("TPOT", figures.tpot(sample)), ("E2E", figures.e2e(sample))]
    shown = ", ".join(f"{name} {1000 * value:.1f} ms" for name, value in times if value is not None)
    tokens = f"{sample.prompt_tokens} → {sample.output_tokens} tokens"
    return box.line(State.PASSED, f"a whole answer, {tokens}: {shown}")


def users(site: Site, at_a_time: Sequence[int], *, seconds: float | None) -> tuple[Line, ...]:
    """Whether so many users at a time get whole answers, by the rules of a benchmark.

    Args:
        site: what is measured.
        at_a_time: users, one level each.
        seconds: of each level; None: ``SECONDS`` or, where a latency budget asks for a p95, until there are enough
            answers for one.

    Raises:
        CannotRun: the model gives no whole answer at all.
    """
    levels = [_level_of(one, seconds, has_budget=bool(site.goals)) for one in dict.fromkeys(at_a_time)]
    measured = asyncio.run(_measured(site, levels))
    return judge_users([figures.of(run) for run in measured.runs], site.goals, site)


def _level_of(at_a_time: int, seconds: float | None, *, has_budget: bool) -> Level:
    if seconds is None and has_budget:
        return Level(users=at_a_time, seconds=budgets.SECONDS, requests=max(budgets.REQUESTS, 2 * at_a_time))
    return Level(users=at_a_time, seconds=seconds or SECONDS)


async def _measured(site: Site, levels: Sequence[Level]) -> Measured:
    async with site.client() as client:
        return await measured_levels(client, site.model, site.question, levels, site.report, next_step=site.why)


def judge_users(found: Sequence[Figures], goals: Sequence[Goal], site: Site) -> tuple[Line, ...]:
    """A line for each level; a refusal over the limit has its cause and what would help."""
    asked = site.question
    judged = verdict.of(found, goals, prompt_tokens=asked.prompt_tokens, answer_tokens=asked.answer_tokens)
    of = {one.level: one for one in found}
    return tuple(line for one in judged.decisions for line in _level(of[one.level], one, site))


def _level(one: Figures, decision: Decision, site: Site) -> tuple[Line, ...]:
    text = f"{one.level}, {one.seconds:.0f} s: {one.ok} of {one.requests} whole; {'; '.join(_figures(one))}"
    state, reason, step = _STATES[decision.state], decision.reason, ""
    if _REFUSED in one.failures:  # also of a run whose client was late: that is no cause of it
        refused = f"{one.failures[_REFUSED]} requests were refused with HTTP 429"
        state, reason, step = State.FAILED, f"{refused}; {_LIMIT}", _wider(one.users or 1, site)
    elif decision.state is Kept.INVALID:
        causes = "".join(f"; {times} {described(outcome)}" for outcome, times in one.failures.items())
        reason, step = f"the run is invalid: {reason}{causes}", _QUIETER if one.requests else _LONGER
    elif decision.state is Kept.FAILS:
        step = site.why if one.failures else "corral bench --budgets has what would help"
    elif decision.state is Kept.UNKNOWN and verdict.too_few_at_once(one, one.users):
        step = _LONGER
    elif decision.state is Kept.UNKNOWN:
        step = f"Measure longer: --seconds, for {figures.least_samples(0.95)} answers"
    return box.line(state, f"{text}; {reason}", step)


def _figures(one: Figures) -> Iterator[str]:
    for name, value in (("TTFT p50", one.ttft.p50), ("E2E p50", one.e2e.p50), ("E2E p95", one.e2e.p95)):
        if value is not None:
            yield f"{name} {value:.2f} s"
    yield f"{one.output_tokens_per_s:.1f} tokens/s"


def _wider(wanted: int, site: Site) -> str:
    file = f"parallel: {wanted} in the file of {site.model}, then corral lock and corral seat"
    return f"{file}; or ask for the users that you expect: --users N"
