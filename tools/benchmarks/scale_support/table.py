"""How many cards keep the time of an answer, as a table: of one model that stays loaded on each of them."""

from __future__ import annotations

from collections.abc import Sequence

from scale_support.card import Model
from scale_support.fleet import Load, Outcome, simulate

from corral.catalog.ledger import Speed
from corral.errors import CannotRun
from corral.latency.prediction import answer_seconds

TABLE_USERS = (1, 10, 50, 100, 500, 1_000, 10_000)
THINK_S = 60.0
PROMPT, ANSWER = 200, 48
P95_S = 10.0
AT_MOST = 10
"""Requests of a model that llama-swap takes at a time, unless the operator sets another number."""
REFUSED = 0.001
"""The part of the requests that may be refused."""
SEVERAL = 4
"""Cards of one homelab; from more on, an engine that batches is compared first."""
MOST_CARDS = 4_096


def table(speed: Speed, slots: int, users: Sequence[int]) -> str:
    """The table for a model with this *speed* and so many *slots*, as Markdown.

    Raises:
        CannotRun: it was measured with shorter prompts, or with fewer answers side by side.
    """
    of = {"prompt_tokens": PROMPT, "answer_tokens": ANSWER, "at_once": slots, "parallel": slots}
    if answer_seconds(speed, **of) is None:
        raise CannotRun(
            f"The speed of {speed.model} lacks prompts of {PROMPT} tokens, or {slots} answers side by side.",
            next_step=f"corral bench --speeds {speed.model}",
        )
    lines = ["| users | cards | p50 | p95 | refused | a card computes | answer |"]
    lines.append("| --- " * 7 + "|")
    for many in users:
        cards, found = least_cards(speed, slots, many)
        if found is None:
            lines.append(f"| {many:,} | - | - | - | - | - | up to twice as many cards as users do not keep the time |")
            continue
        shares = f"{found.refused:.2%} | {found.busy:.0%}"
        lines.append(f"| {many:,} | {cards} | {found.p50:.2f} s | {found.p95:.2f} s | {shares} | {answer(cards)} |")
    return "\n".join(lines)


def answer(cards: int) -> str:
    """What serves so many cards' worth of requests."""
    if cards == 1:
        return "one card"
    return "several cards" if cards <= SEVERAL else "measure an engine that batches"


def least_cards(speed: Speed, slots: int, users: int) -> tuple[int, Outcome | None]:
    """The least number of cards that keeps 95 of 100 answers within ``P95_S``, and what its users have."""
    low, high = 0, 1
    while not _keeps(found := _outcome(speed, slots, users, high)):
        low, high = high, high * 2
        if high > min(MOST_CARDS, 2 * users):
            return 0, None
    while high - low > 1:
        middle = (low + high) // 2
        if _keeps(tried := _outcome(speed, slots, users, middle)):
            high, found = middle, tried
        else:
            low = middle
    return high, found


def _keeps(found: Outcome) -> bool:
    return found.p95 <= P95_S and found.refused <= REFUSED


def _outcome(speed: Speed, slots: int, users: int, cards: int) -> Outcome:
    load = Load(users, THINK_S, PROMPT, ANSWER, {"m": 1.0})
    models = {"m": Model(speed, slots, "m", load_seconds=0.0)}
    return simulate(load, models, cards=cards, requests=max(1_000, 4 * users), at_most=AT_MOST, seed=0)
