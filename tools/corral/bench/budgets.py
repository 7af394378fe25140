"""Whether a model keeps its latency budgets: each measured with the consumer's own tokens and requests at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from corral.bench import figures
from corral.bench.exchange import Client, Sample
from corral.bench.figures import least_samples, quantile
from corral.bench.load import Level, Run
from corral.bench.measuring import Question
from corral.bench.measuring import measure as measured_levels
from corral.bench.verdict import Goal, State, too_few_at_once
from corral.catalog.intent import Model

COLUMNS = ("model", "consumer", "at once", "asked p95", "p95", "serving p95", "n", "verdict", "reason and remedy")
"""The headings of ``row``."""
_Q = 0.95
REQUESTS = least_samples(_Q)
"""Answers that a budget is measured with: fewer have no p95."""
SECONDS = 1800.0
"""In which they must have begun."""


@dataclass(frozen=True)
class Outcome:
    """Of one budget.

    Attributes:
        model: whose it is.
        goal: the budget.
        answers: whole ones.
        p95: seconds to the end of 95 of 100 answers, waiting included; None: too few.
        serving_p95: of these seconds, those in which the engine worked on the request by its own count; None: unknown.
        state: whether it is kept.
        reason: why; for one that is not kept, the shortfall.
        remedy: what would help; empty where nothing is missing.
    """

    model: str
    goal: Goal
    answers: int
    p95: float | None
    serving_p95: float | None
    state: State
    reason: str
    remedy: str = ""

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        return asdict(self)


def goals(model: Model) -> list[Goal]:
    """The latency budgets of *model*."""
    return [
        Goal(one.consumer, one.prompt_tokens, one.answer_tokens, one.p95_seconds, one.requests_at_once)
        for one in model.latency
    ]


async def measure(
    client: Client,
    model_id: str,
    model: Model,
    goal: Goal,
    report: Callable[[str], None],
    *,
    seconds: float = SECONDS,
    requests: int = REQUESTS,
    may_end: bool = False,
    seed: int = 0,
) -> Outcome:
    """Whether *model* keeps *goal* now, by *requests* answers that begin within *seconds*; the rest as of a question.

    Raises:
        CannotRun: it gives no whole answer at all.
    """
    report(f"{model_id}: the budget of {goal.consumer}, {requests} answers")
    level = Level(users=goal.requests_at_once, seconds=seconds, requests=requests)
    question = Question(goal.prompt_tokens, goal.answer_tokens, may_end, seed)
    found = await measured_levels(client, model_id, question, [level], report, next_step=f"corral why {model_id}")
    return judge(model_id, goal, found.runs[0], parallel=model.parallel)


def judge(model: str, goal: Goal, run: Run, *, parallel: int) -> Outcome:
    """Whether *run* keeps the budget *goal* of *model*, which has *parallel* request slots."""
    found = figures.of(run)
    serving = [seconds for one in run.samples if one.is_ok and (seconds := _serving(one)) is not None]
    serving_p95 = quantile(serving, _Q) if len(serving) >= REQUESTS else None
    known = (model, goal, found.ok, found.e2e.p95, serving_p95)
    if found.invalid:
        return Outcome(*known, State.INVALID, "; ".join(found.invalid), "Measure from a machine with less other work")
    if failed := found.requests - found.ok:
        causes = ", ".join(f"{times} {outcome}" for outcome, times in found.failures.items())
        reason = f"{failed} of {found.requests} requests failed: {causes}"
        return Outcome(*known, State.FAILS, reason, f"corral why {model}")
    if found.e2e.p95 is None:
        reason = f"{found.ok} answers are too few for a p95"
        return Outcome(*known, State.UNKNOWN, reason, f"Measure longer: --seconds, for {REQUESTS} answers")
    if few := too_few_at_once(found, goal.requests_at_once):
        return Outcome(*known, State.UNKNOWN, few, "Measure longer: corral bench --budgets --requests N, a larger N")
    if found.e2e.p95 <= goal.p95_seconds:
        return Outcome(*known, State.HOLDS, f"{goal.p95_seconds - found.e2e.p95:.2f} s are left")
    reason = f"{found.e2e.p95 - goal.p95_seconds:.2f} s too long"
    return Outcome(*known, State.FAILS, reason, _remedy(goal, serving_p95, run, parallel))


def row(one: Outcome) -> tuple[str, ...]:
    """The cells of *one*."""
    times = (one.goal.p95_seconds, one.p95, one.serving_p95)
    return (
        *(one.model, one.goal.consumer, str(one.goal.requests_at_once)),
        *("-" if value is None else f"{value:.2f} s" for value in times),
        *(str(one.answers), one.state, f"{one.reason}; {one.remedy}" if one.remedy else one.reason),
    )


def _serving(sample: Sample) -> float | None:
    """Seconds in which the engine worked on it."""
    if sample.server_prompt_s is None or sample.server_output_s is None:
        return None
    return sample.server_prompt_s + sample.server_output_s


def _remedy(goal: Goal, serving_p95: float | None, run: Run, parallel: int) -> str:
    """What of the time is missing: the engine's work on one request, or the wait for a slot."""
    if serving_p95 is None:
        return "the engine reports no times of its own, so what would help is unknown"
    if serving_p95 <= goal.p95_seconds:
        if goal.requests_at_once > parallel:
            step = f"parallel: {goal.requests_at_once} in the model's file (now {parallel}), then corral lock and seat"
            return f"requests wait for a slot: {step}"
        return "requests wait for other requests or a load: a group of its own, or fewer consumers"
    prompt = quantile([one.server_prompt_s or 0.0 for one in run.samples], 0.5)
    output = quantile([one.server_output_s or 0.0 for one in run.samples], 0.5)
    side_by_side = min(parallel, goal.requests_at_once)
    beside = f" with {side_by_side} requests side by side" if side_by_side > 1 else ""
    part = "prompt" if prompt > output else "answer"
    most = f"serving alone takes {serving_p95:.2f} s{beside}, most of it for the {part}"
    return f"{most}: a shorter {part}, another quant, a smaller model, or another card or engine"
