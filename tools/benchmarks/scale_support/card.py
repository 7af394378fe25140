"""One card as a simulation of events: its groups of models, each with one loaded model, its slots and its queue.

What passes is what was measured of one model at a time, by the rules of corral.latency.prediction:

* an engine reads one prompt at a time, and makes the next token of all answers together;
* requests beyond the slots of a model wait for one, in the order in which they came;
* a group has one loaded model.  Another one is loaded when nothing of the loaded one is under way, so that overlapping
  requests for one model keep the others waiting, as llama-swap does;
* groups that compute at a time share the card's compute equally; a load takes none of it.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

from corral.catalog.ledger import Speed
from corral.latency.prediction import first_token_seconds, next_token_seconds

_DONE = 1e-9
"""Seconds, or tokens, of rounding."""


@dataclass(frozen=True)
class Model:
    """What serves: the measured *speed*, the *slots*, the *group*, and the seconds of a load."""

    speed: Speed
    slots: int
    group: str
    load_seconds: float


@dataclass(slots=True, eq=False)
class Request:
    """One request; *left* are the tokens of its answer that are not made, *arrived* and *ended* seconds."""

    model: str
    prompt_tokens: float
    answer_tokens: float
    arrived: float = 0.0
    left: float = 0.0
    ended: float = math.inf
    user: int = 0


class Group:
    """Models of which one is loaded at a time."""

    def __init__(self, models: Mapping[str, Model]) -> None:
        self.models = models
        self.loaded = ""
        self.loads = 0
        self.under_way = 0  # requests that are here
        self._loading = 0.0
        self._elsewhere: deque[Request] = deque()
        self._queue: deque[Request] = deque()
        self._prompts: deque[Request] = deque()
        self._reading = 0.0
        self._writing: list[Request] = []
        self._token = 0.0

    @property
    def computes(self) -> bool:
        """Whether it takes a share of the card's compute."""
        return not self._loading and bool(self._prompts or self._writing)

    def arrive(self, request: Request) -> None:
        """Take *request*."""
        self.under_way += 1
        request.left = max(0.0, request.answer_tokens - 1)
        (self._queue if request.model == self.loaded else self._elsewhere).append(request)
        self._fill_slots()

    def seconds_to_event(self, share: float) -> float:
        """Seconds until something ends here, with a *share* of the card's compute."""
        if self._loading:
            return self._loading
        if self._prompts:
            return self._reading / share
        if self._writing:
            return min(one.left for one in self._writing) * self._token / share
        return math.inf

    def advance(self, seconds: float, share: float) -> list[Request]:
        """Advance by *seconds*, within which nothing ends before their end; the requests that end with them."""
        if self._loading:
            self._loading -= seconds
            if self._loading > _DONE:
                return []
            self._loading = 0.0
        elif self._prompts:
            self._reading -= seconds * share
            if self._reading > _DONE:
                return []
            self._writing.append(self._prompts.popleft())
            self._reading = self._seconds_of_the_prompt()
        elif self._writing:
            tokens = seconds * share / self._token if self._token else math.inf
            for one in self._writing:
                one.left -= tokens
        ended = [one for one in self._writing if one.left <= _DONE]
        if ended:
            self._writing = [one for one in self._writing if one.left > _DONE]
            self.under_way -= len(ended)
        self._fill_slots()
        return ended

    @property
    def _busy(self) -> int:
        return len(self._prompts) + len(self._writing)

    def _fill_slots(self) -> None:
        """Give free slots to what waits, or load what waits for a model that is not loaded."""
        if self._loading:
            return
        if self._elsewhere and not self._queue and not self._busy:
            self.loaded = self._elsewhere[0].model
            self._queue.extend(one for one in self._elsewhere if one.model == self.loaded)
            self._elsewhere = deque(one for one in self._elsewhere if one.model != self.loaded)
            self._loading = self.models[self.loaded].load_seconds
            self.loads += 1
            if self._loading:
                return
        while self._queue and self._busy < self.models[self.loaded].slots:
            self._prompts.append(self._queue.popleft())
            if len(self._prompts) == 1:
                self._reading = self._seconds_of_the_prompt()
        if self._writing:
            context = sum(one.prompt_tokens + one.answer_tokens / 2 for one in self._writing) / len(self._writing)
            self._token = next_token_seconds(self.models[self.loaded].speed, len(self._writing), context)

    def _seconds_of_the_prompt(self) -> float:
        if not self._prompts:
            return 0.0
        return first_token_seconds(self.models[self.loaded].speed, self._prompts[0].prompt_tokens)


class Card:
    """The groups of *models* on one card."""

    def __init__(self, models: Mapping[str, Model]) -> None:
        names = sorted({one.group for one in models.values()})
        of = {name: Group({model: one for model, one in models.items() if one.group == name}) for name in names}
        self.groups = {model: of[one.group] for model, one in models.items()}
        self._groups = tuple(of.values())
        self._now = 0.0
        self.busy_seconds = 0.0

    @property
    def loads(self) -> int:
        """All loads until now."""
        return sum(one.loads for one in self._groups)

    def arrive(self, request: Request) -> None:
        """Take *request* at the time to which this card has advanced."""
        self.groups[request.model].arrive(request)

    def time_of_event(self) -> float:
        """When something ends here; infinite: nothing is under way."""
        share = self._share()
        return self._now + min(one.seconds_to_event(share) for one in self._groups)

    def advance_to(self, now: float) -> list[Request]:
        """Advance to *now*, which is no later than ``time_of_event``; the requests that end then."""
        seconds, share = now - self._now, self._share()
        self._now = now
        if any(one.computes for one in self._groups):
            self.busy_seconds += seconds
        ended = [request for one in self._groups for request in one.advance(seconds, share)]
        for one in ended:
            one.ended = now
        return ended

    def _share(self) -> float:
        return 1 / max(1, sum(one.computes for one in self._groups))
