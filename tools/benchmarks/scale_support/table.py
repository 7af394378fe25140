"""How many cards keep the time of an answer, as a table: of one model that stays loaded, or of several in turns."""

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
SEVERAL, NODE, NODES = 4, 8, 32
"""Cards of one homelab, of one node, and of a few nodes: up to each, another platform serves."""
MOST_CARDS = 4_096
_USERS_OF_A_FAST_CARD = 128  # where the search begins; no answer depends on it


def table(speed: Speed, slots: int, users: Sequence[int], *, turns: int = 1) -> str:
    """The table for a model with this *speed* and so many *slots*, as Markdown.

    With *turns* above 1 so many such models are in one group of each card, and are asked equally often.

    Raises:
        CannotRun: it was measured with shorter prompts, with fewer answers side by side, or without its load.
    """
    of = {"prompt_tokens": PROMPT, "answer_tokens": ANSWER, "at_once": slots, "parallel": slots}
    lacks = (
        f"prompts of {PROMPT} tokens, or {slots} answers side by side" if answer_seconds(speed, **of) is None else ""
    )
    lacks = lacks or ("the seconds of a load" if turns > 1 and speed.load_seconds is None else "")
    if lacks:
        message = f"The speed of {speed.model} lacks {lacks}."
        raise CannotRun(message, next_step=f"corral bench --speeds {speed.model}")
    lines = ["| users | cards | p50 | p95 | refused | a card computes | loads an hour | what serves that |"]
    lines.append("| ---: " * 7 + "| --- |")
    return "\n".join([*lines, *(_row(speed, slots, many, turns) for many in users)])


def _row(speed: Speed, slots: int, users: int, turns: int) -> str:
    cards, found = least_cards(speed, slots, users, turns=turns)
    if found is None:
        return f"| {users:,} | - | - | - | - | - | - | up to twice as many cards as users do not keep the time |"
    shares = f"{found.refused:.2%} | {found.busy:.0%} | {found.loads_per_hour:,.0f}"
    return f"| {users:,} | {cards} | {found.p50:.2f} s | {found.p95:.2f} s | {shares} | {answer(cards)} |"


def answer(cards: int) -> str:
    """What serves so many cards' worth of requests; docs/architecture/scale.md has the reasons."""
    if cards == 1:
        return "one card"
    if cards <= SEVERAL:
        return "several cards"
    if cards <= NODE:
        return "vLLM on one node"
    return "vLLM on several nodes" if cards <= NODES else "another platform"


def least_cards(speed: Speed, slots: int, users: int, *, turns: int = 1) -> tuple[int, Outcome | None]:
    """The least number of cards that keeps 95 of 100 answers within ``P95_S``, and what its users have."""
    low, high = 0, max(1, users // _USERS_OF_A_FAST_CARD)
    while not _keeps(found := _outcome(speed, slots, users, high, turns)):
        low, high = high, high * 2
        if high > min(MOST_CARDS, 2 * users):
            return 0, None
    while high - low > 1:
        middle = (low + high) // 2
        if _keeps(tried := _outcome(speed, slots, users, middle, turns)):
            high, found = middle, tried
        else:
            low = middle
    return high, found


def _keeps(found: Outcome) -> bool:
    return found.p95 <= P95_S and found.refused <= REFUSED


def _outcome(speed: Speed, slots: int, users: int, cards: int, turns: int) -> Outcome:
    names = [f"m{number}" for number in range(turns)]
    load = Load(users, THINK_S, PROMPT, ANSWER, dict.fromkeys(names, 1.0))
    seconds = (speed.load_seconds or 0.0) if turns > 1 else 0.0
    models = {name: Model(speed, slots, "group", seconds) for name in names}
    return simulate(load, models, cards=cards, requests=max(1_000, 4 * users), at_most=AT_MOST, seed=0)
