"""Which models have requests under way, so that none is unloaded under one."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http import HTTPStatus

from .refusals import Refusal


class Uses:
    """Counts the requests of each model that are forwarded; one task at a time changes it."""

    def __init__(self) -> None:
        self._under_way: Counter[str] = Counter()
        self._pauses = self._waiting = 0
        self._paused_at = 0.0
        self._resumed = asyncio.Event()
        self._resumed.set()
        self._unloading: dict[str, asyncio.Event] = {}
        self._order: dict[str, None] = {}  # the model of the latest request is the last

    async def enter(self, model: str) -> None:
        """Count a request for *model*, when there is no pause and it is not being unloaded any more."""
        self._waiting += 1
        try:
            while (ended := self._unloading.get(model)) or not self._resumed.is_set():
                await (ended or self._resumed).wait()
        finally:
            self._waiting -= 1
        self._under_way[model] += 1
        self._order.pop(model, None)
        self._order[model] = None

    def leave(self, model: str) -> None:
        """Count a request for *model* as over."""
        self._under_way[model] -= 1

    def latest(self, models: Sequence[str]) -> str:
        """That of *models* whose last request is the latest; the first, where none had any."""
        order = list(self._order)
        return max(models, key=lambda one: order.index(one) if one in order else -1)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """A request of any model that comes during the block waits for its end."""
        if not self._pauses:
            self._paused_at = time.monotonic()
        self._pauses += 1
        self._resumed.clear()
        try:
            yield
        finally:
            self._pauses -= 1
            if not self._pauses:
                self._resumed.set()

    def pause(self) -> dict[str, float | int | None]:
        """Since when there is a pause, in seconds, None: there is none; and the number of requests that wait."""
        seconds = round(time.monotonic() - self._paused_at, 1) if self._pauses else None
        return {"seconds": seconds, "waiting": self._waiting}

    @contextmanager
    def unloading(self, model: str) -> Iterator[None]:
        """The block may unload *model*: a request for it waits for the end of the block.

        Raises:
            Refusal: there is a request for it, or another such block.
        """
        if self._under_way[model] or model in self._unloading:
            raise busy()
        ended = self._unloading[model] = asyncio.Event()
        try:
            yield
        finally:
            del self._unloading[model]
            ended.set()


def busy() -> Refusal:
    """The engine has requests, and is left to them."""
    return Refusal(HTTPStatus.CONFLICT, "engine-busy", "The engine of the model serves other requests.")
