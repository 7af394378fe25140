"""Users in front of cards that all have the same models, behind a balancer.

A user sends a request, waits for the answer, thinks for a random time (exponential), and sends the next.  The balancer
knows which card has which model loaded: a request goes to the card with the fewest requests of that group, where a swap
counts as many as the model has slots.  A card on which a model has ``at_most`` requests refuses a further
one, as llama-swap does (429): it is no answer, and its user thinks again
after the pause of corral bench.  Requests under way at the end are not counted, which favours a card that is too busy.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from scale_support.card import Card, Group, Model, Request

from corral.bench import figures
from corral.bench.load import LEAST_PAUSE_S


@dataclass(frozen=True)
class Load:
    """So many *users*, the seconds for which one thinks, the tokens of a request, and each model's share of them."""

    users: int
    think_seconds: float
    prompt_tokens: float
    answer_tokens: float
    shares: Mapping[str, float]


@dataclass(frozen=True)
class Outcome:
    """What the users had; times in seconds.

    Attributes:
        p50: within which half of the answers ended.
        p95: within which 95 of 100 did.
        answers: that this was counted from.
        refused: the part of the requests, from 0 to 1.
        answers_per_second: of all cards.
        loads_per_hour: of all cards.
        busy: the part of the time for which a card computed, from 0 to 1.
    """

    p50: float
    p95: float
    answers: int
    refused: float
    answers_per_second: float
    loads_per_hour: float
    busy: float


def simulate(load: Load, models: Mapping[str, Model], *, cards: int, requests: int, at_most: int, seed: int) -> Outcome:
    """What *load* brings to so many *cards*.

    Args:
        load: the users.
        models: of each card, by name.
        cards: their number.
        requests: that are begun; the first fifth of them is not counted.
        at_most: requests that a model of a card takes at a time.
        seed: of the random times and models.
    """
    chance = random.Random(seed)  # noqa: S311 - no secret
    fleet = [Card(models) for _ in range(cards)]
    names, weights = list(load.shares), list(load.shares.values())
    groups = {name: [card.groups[name] for card in fleet] for name in names}
    order = itertools.count()
    heap: list[tuple[float, int, Card | None, int]] = []
    latest = dict.fromkeys(fleet, 0)

    def think(user: int, now: float) -> None:
        seconds = chance.expovariate(1 / load.think_seconds) if load.think_seconds else 0.0
        heapq.heappush(heap, (now + seconds, next(order), None, user))

    def expect(card: Card) -> None:
        latest[card] = next(order)
        if (time := card.time_of_event()) < float("inf"):
            heapq.heappush(heap, (time, latest[card], card, 0))

    for user in range(load.users):
        think(user, 0.0)
    begun, refused, now, counted_from = 0, 0, 0.0, 0.0
    ended: list[Request] = []
    uncounted = requests // 5
    loads_before, busy_before = 0, 0.0
    while begun < requests and heap:
        now, number, card, user = heapq.heappop(heap)
        if card is not None:
            if latest[card] == number:
                for one in card.advance_to(now):
                    ended.append(one)
                    think(one.user, now)
                expect(card)
            continue
        begun += 1
        if begun == uncounted:
            counted_from, ended, refused = now, [], 0
            loads_before, busy_before = sum(one.loads for one in fleet), sum(one.busy_seconds for one in fleet)
        (model,) = chance.choices(names, weights)
        card = fleet[_balance(groups[model], model)]
        if card.groups[model].under_way >= at_most:
            refused += 1
            think(user, now + LEAST_PAUSE_S)
            continue
        for one in card.advance_to(now):
            ended.append(one)
            think(one.user, now)
        card.arrive(Request(model, load.prompt_tokens, load.answer_tokens, arrived=now, user=user))
        expect(card)
    seconds = now - counted_from
    times = sorted(one.ended - one.arrived for one in ended if one.arrived >= counted_from)
    return Outcome(
        p50=_percentile(times, 0.5),
        p95=_percentile(times, 0.95),
        answers=len(times),
        refused=refused / max(1, requests - uncounted),
        answers_per_second=len(ended) / seconds if seconds else 0.0,
        loads_per_hour=(sum(one.loads for one in fleet) - loads_before) * 3600 / seconds if seconds else 0.0,
        busy=(sum(one.busy_seconds for one in fleet) - busy_before) / (seconds * cards) if seconds else 0.0,
    )


def _balance(groups: Sequence[Group], model: str) -> int:
    """The number of the card for a request; *groups* are those of *model*, one a card."""
    best, least, swap = 0, float("inf"), groups[0].models[model].slots
    for number, group in enumerate(groups):
        cost = group.under_way
        if group.loaded not in (model, ""):
            cost += swap
        if cost < least:
            if not cost:
                return number
            best, least = number, cost
    return best


def _percentile(ordered: Sequence[float], part: float) -> float:
    return figures.quantile(ordered, part) if ordered else float("inf")
