"""Counts the requests that each latency budget of the lock is about, and those of them that took longer.

llama-swap's list has neither the client of a request nor whether it waited for a load.  A request of any client counts
for each budget of its model whose size it does not exceed.  It did not wait for a load where its model was ready at
every reading since one before its begin; only a load that began and ended between two readings goes unnoticed.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass

from .llama_swap import Request


@dataclass(frozen=True)
class Budget:
    """How fast a model must answer one of its consumers; one that must not wait for a load has ``cold`` excluded.

    Attributes:
        card: that the model runs on.
        prompt_tokens: most of a request that it is about.
        answer_tokens: the same of its answer.
        seconds: to the end of the answer that 95 of 100 requests may take.
        cold: ``allowed`` or ``excluded``.
    """

    card: str
    model: str
    consumer: str
    prompt_tokens: int
    answer_tokens: int
    seconds: float
    cold: str

    def is_about(self, one: Request) -> bool:
        """Whether *one* was answered and is no larger; False where its size is not known."""
        if one.status != 200 or one.cached_tokens is None or not one.output_tokens:
            return False
        prompt = one.prompt_tokens + one.cached_tokens
        return one.model == self.model and prompt <= self.prompt_tokens and one.output_tokens <= self.answer_tokens


class Budgets:
    """The counts of *budgets*."""

    def __init__(self, budgets: Iterable[Budget], *, clock: Callable[[], float] = time.monotonic) -> None:
        self._budgets, self._clock = tuple(budgets), clock
        self._requests: Counter[Budget] = Counter()
        self._slow: Counter[Budget] = Counter()
        self._ready_since: dict[str, float] = {}
        self._read_at = 0.0

    def take(self, ended: Iterable[Request], ready: Collection[str]) -> None:
        """Count those that *ended* since the last reading; *ready* are the models that are ready at this one."""
        for one in ended:
            for budget in self._budgets:
                if budget.is_about(one) and (budget.cold == "allowed" or self._is_warm(one)):
                    self._requests[budget] += 1
                    self._slow[budget] += one.seconds > budget.seconds
        self._read_at = self._clock()
        self._ready_since = {model: self._ready_since.get(model, self._read_at) for model in ready}

    def lose_sight(self) -> None:
        """There was no reading: which models are ready is not known."""
        self._ready_since = {}

    def counted(self) -> Iterator[tuple[Budget, int, int]]:
        """Each budget, how many requests it was about, and how many of them took longer."""
        for budget in self._budgets:
            yield budget, self._requests[budget], self._slow[budget]

    def _is_warm(self, one: Request) -> bool:
        since = self._ready_since.get(one.model)
        return since is not None and since <= self._read_at - one.seconds
