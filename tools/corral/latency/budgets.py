"""Whether a latency budget can be kept, by what a benchmark measured; no benchmark is no answer, and never a yes."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from corral.catalog.intent import LatencyBudget, Model
from corral.catalog.ledger import Speed
from corral.latency import prediction

COLUMNS = ("model", "consumer", "asked p95", "p50", "p95", "load", "verdict", "reason")
"""The headings of ``row``."""


class State(StrEnum):
    """Of a budget, by prediction."""

    HOLDS = "holds"
    UNLIKELY = "unlikely"
    IMPOSSIBLE = "impossible"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Forecast:
    """Of one budget; seconds, None: unknown.

    Attributes:
        model: its id.
        consumer: of the budget.
        asked: in which 95 of 100 answers must end.
        p50: that half of the answers take, by a loaded model.
        p95: that 95 of 100 take.
        load: that a load of the model takes before.
        state: whether the budget can be kept.
        reason: why, with what would help.
    """

    model: str
    consumer: str
    asked: float
    p50: float | None
    p95: float | None
    load: float | None
    state: State
    reason: str

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        return asdict(self)

    def row(self) -> tuple[str, ...]:
        """Its cells, under ``COLUMNS``."""
        times = ("-" if value is None else f"{value:.2f} s" for value in (self.asked, self.p50, self.p95, self.load))
        return (self.model, self.consumer, *times, self.state, self.reason)


def forecast(model_id: str, model: Model, budget: LatencyBudget, speed: Speed | None) -> Forecast:
    """Whether *budget* of *model* can be kept, by its *speed*; None: no benchmark of its command line."""
    asked, load = budget.p95_seconds, speed.load_seconds if speed else None

    def found(state: State, reason: str, p50: float | None = None, p95: float | None = None) -> Forecast:
        return Forecast(model_id, budget.consumer, asked, p50, p95, load, state, reason)

    measure = f"corral bench --speeds {model_id}"
    if speed is None:
        return found(State.UNKNOWN, f"no benchmark of this command line: {measure}")
    p50 = prediction.answer_seconds(
        speed,
        prompt_tokens=budget.prompt_tokens,
        answer_tokens=budget.answer_tokens,
        at_once=budget.requests_at_once,
        parallel=model.parallel,
    )
    if p50 is None:
        return found(State.UNKNOWN, f"larger than what its benchmark had: {measure}")
    p95 = None if speed.p95_ratio is None else p50 * speed.p95_ratio
    known = (p50, p95)
    if not speed.on_card:
        return found(State.UNKNOWN, f"measured on a processor, and not on card {model.card}: {measure}", *known)
    if p50 > asked:
        source = f"{speed.device}, {speed.date[:10]}"
        missing = f"half of the answers take {p50 - asked:.2f} s longer than 95 of 100 may ({source})"
        return found(State.IMPOSSIBLE, f"{missing}; {_remedy(model, budget, speed, p50)}", *known)
    if p95 is None:
        return found(State.UNKNOWN, f"its benchmark has too few answers for a p95: {measure}", *known)
    if p95 > asked:
        return found(State.UNLIKELY, f"{p95 - asked:.2f} s too long; {_remedy(model, budget, speed, p50)}", *known)
    if budget.cold == "allowed" and load is None:
        return found(State.UNKNOWN, f"it counts loads, and none was measured: {measure}", *known)
    left = asked - p95 - ((load or 0.0) if budget.cold == "allowed" else 0.0)
    if left < 0:
        rare = "kept while fewer than 5 of 100 requests wait for a load: a longer ttl, or a group of its own"
        return found(State.UNLIKELY, rare, *known)
    return found(State.HOLDS, f"{left:.2f} s are left", *known)


def _remedy(model: Model, budget: LatencyBudget, speed: Speed, p50: float) -> str:
    """What would help with the largest part of the time *p50*."""
    asked, parallel = budget.p95_seconds, model.parallel
    alone = prediction.answer_seconds(
        speed, prompt_tokens=budget.prompt_tokens, answer_tokens=budget.answer_tokens, at_once=1, parallel=parallel
    )
    if alone is None or alone > asked:
        first = prediction.first_token_seconds(speed, budget.prompt_tokens)
        part = "prompt" if alone is None or first > alone - first else "answer"
        return f"most of it for the {part}: a shorter {part}, another quant, a smaller model, or another card or engine"
    if budget.requests_at_once > parallel:
        waiting = p50 * (1 - parallel / budget.requests_at_once)
        return f"{waiting:.2f} s of it wait for a slot: more parallel, or fewer at once"
    return f"one request alone takes {alone:.2f} s: fewer at once, another quant, or a smaller model"
