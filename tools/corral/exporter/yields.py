"""Has idle models unloaded when a tenant of their card needs memory, the longest idle first.

Off where the card's file has no ``yield``.  This decides, by the driver's account, the tenants' pods and the requests
that llama-swap lists; what is unknown is no reason.  The guard of the front door unloads, and none that serves (ADR
0015).
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Literal, get_args

from .account import CardAccount, CardPromise
from .llama_swap import LlamaSwap, News, Request, Resident
from .rounds import repeating

ROUND_S = 15.0
"""Seconds between two rounds.  Each reads the driver anew and has one model of a card unloaded: none too many."""
Reason = Literal["free-below-floor", "tenant-waits"]


@dataclass(frozen=True)
class Rule:
    """The ``yield`` of a card: bytes that should be free, and seconds without a request that make a model idle."""

    floor: int
    idle_s: int


@dataclass(frozen=True)
class Need:
    """That a neighbour needs memory.

    Attributes:
        reason: less is free than the floor, or than what is left of the budget of a tenant whose pod waits.
        tenant: that one; else empty.
        free: bytes, by the driver.
        wanted: bytes: the floor, or what is left of the budget.
    """

    reason: Reason
    tenant: str
    free: int
    wanted: int


@dataclass(frozen=True)
class Yielded:
    """A model that was unloaded, and why: the fields of ``Need``, and the seconds since its last use."""

    card: str
    model: str
    reason: Reason
    tenant: str
    free: int
    wanted: int
    idle_s: float


def need(account: CardAccount, rule: Rule) -> Need | None:
    """Which neighbour needs memory of the card of *account*; None: none does, or it is unknown."""
    free = account.driver.free if account.driver and not account.unknown else None
    if free is None:
        return None
    for row in account.rows:
        if row.kind == "tenant" and row.waiting and row.held is not None and row.promised is not None:
            left = row.promised - row.held
            if free < left:
                return Need("tenant-waits", row.name, free, left)
    return Need("free-below-floor", "", free, rule.floor) if free < rule.floor else None


def idle(account: CardAccount, rule: Rule, used: Mapping[str, float], now: float) -> list[str]:
    """The models that may be unloaded at the time *now*, the longest idle first.

    *used* has the time of the last use of each that is ready; what is not known to hold memory of the card gives none.
    """
    holding = {row.name for row in account.rows if row.kind == "model" and row.held}
    found = [model for model, at in used.items() if model in holding and now - at >= rule.idle_s]
    return sorted(found, key=lambda model: (used[model], model))


class Yields:
    """What was unloaded, and the rounds that do it.

    Args:
        rules: of the cards whose models yield, by name.
        promises: of all cards: their models.
        accounts: reads the cards.
        find_door: the llama-swap that runs now, by a door whose guard permits it; None: none does.
        clock: seconds that no one sets: the times of llama-swap's requests are of one that is set.
    """

    def __init__(
        self,
        rules: Mapping[str, Rule],
        *,
        promises: Mapping[str, CardPromise],
        accounts: Callable[[], Sequence[CardAccount]],
        find_door: Callable[[], LlamaSwap | None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._rules, self._accounts, self._find, self._clock = rules, accounts, find_door, clock
        self._used: dict[str, float] = {}
        self._requests: News[Request] = News()
        self._lock = threading.Lock()
        # From 0 on, where an alert looks: the increase to a first value is none.
        self._counts: Counter[tuple[str, str, str]] = Counter(
            {
                (card, model, reason): 0
                for card in rules
                for model in promises[card].models
                for reason in get_args(Reason)
            }
        )
        self._fresh: list[Yielded] = []

    def counts(self) -> dict[tuple[str, str, str], int]:
        """How often each model has yielded: by card, model and reason."""
        with self._lock:
            return dict(self._counts)

    def take(self) -> tuple[Yielded, ...]:
        """What was unloaded since the last ``take``."""
        with self._lock:
            taken, self._fresh = tuple(self._fresh), []
        return taken

    def run(self) -> None:
        """One round: at most one model of each card.

        After one that fails, what a model did meanwhile is not known.
        """
        try:
            client = self._find()
            residents = client.residents() if client else ()
            self._observe(residents, client.requests() if client else ())
            # What is being unloaded gives its memory back in a moment, and may be enough.
            if client and self._used and all(one.state != "stopping" for one in residents):
                for account in self._accounts():
                    if rule := self._rules.get(account.name):
                        self._make_room(client, account, rule)
        except Exception:
            self._used = {}
            raise

    def running(self) -> AbstractContextManager[None]:
        """A round every ``ROUND_S`` while the block lasts; none where no card has a rule."""
        return repeating(self.run, ROUND_S, "No model yields") if self._rules else nullcontext()

    def _observe(self, residents: Sequence[Resident], requests: Sequence[Request]) -> None:
        """When each model that is ready was last used: when its load, or the end of a request, was first listed."""
        now = self._clock()
        fresh, missed = self._requests.take(requests)
        served = {one.model for one in fresh}
        ready = [one.model for one in residents if one.state == "ready"]
        self._used = {model: now if missed or model in served else self._used.get(model, now) for model in ready}

    def _make_room(self, client: LlamaSwap, account: CardAccount, rule: Rule) -> None:
        needed = need(account, rule)
        if needed is None:
            return
        now = self._clock()
        for model in idle(account, rule, self._used, now):
            unloaded = client.unload_idle(model)
            if unloaded:
                self._add(
                    Yielded(
                        account.name,
                        model,
                        needed.reason,
                        needed.tenant,
                        needed.free,
                        needed.wanted,
                        round(now - self._used[model], 1),
                    )
                )
            if unloaded is not False:  # one that is gone by itself has given its memory, too
                del self._used[model]
                return

    def _add(self, one: Yielded) -> None:
        with self._lock:
            self._counts[one.card, one.model, one.reason] += 1
            self._fresh.append(one)
