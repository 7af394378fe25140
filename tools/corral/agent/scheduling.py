"""Schedules the requests of one file: which part is next, how large it is, and when a failed request is sent again."""

from __future__ import annotations

import random
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from .errors import Failed
from .hub_client import RetryableError
from .hub_policy import LEAST_RATE, Budgets, ThroughputMeter
from .partial import Span, length

_MIB = 1 << 20
_SMALLEST_PART = _MIB
USUAL_PART = 4 * _MIB
_LARGEST_PART = 64 * _MIB
_PART_PER_ROUND_TRIP = 20

_FIRST_PAUSE_SECONDS = 0.25
_MAX_CONTRADICTIONS = 8


@dataclass(frozen=True)
class TransferSettings:
    """How many requests of one file run at a time, and how long they are retried; times in seconds."""

    connections: int = 8
    give_up_after: float = Budgets.window_seconds  # in which fewer bytes arrive than the hub's budgets demand
    max_server_wait: float = 900.0  # more, where the server asks to wait (Retry-After)
    max_pause: float = 8.0  # between two tries, where the server does not ask to wait


class RetryBudget:
    """The time that is left for one file, one for all of its connections; safe to use from several threads.

    A ``ThroughputMeter`` measures the connections as a whole: each of several that share a slow line is slow.  Waiting
    where the server demands it is not its usual silence, and has a limit of its own; bytes renew both.
    """

    def __init__(
        self,
        settings: TransferSettings,
        least_rate: float = Budgets.least_rate,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._meter = ThroughputMeter(least_rate, settings.give_up_after, clock)
        self._whole = least_rate * settings.give_up_after  # bytes that renew all of it
        self._lock = threading.Lock()
        self._server_wait_until = 0.0
        self._server_wait = 0.0
        self._contradictions = 0

    def received(self, count: int) -> None:
        """Note *count* bytes, just now."""
        with self._lock:
            self._meter.received(count)
            renewed = count / self._whole if self._whole else 1
            self._server_wait = max(0.0, self._server_wait - renewed * self._settings.max_server_wait)

    def exclude(self, seconds: float) -> None:
        """Do not count the last *seconds*, in which no connection waited for the server."""
        with self._lock:
            self._meter.exclude(seconds)

    def too_slow(self) -> RetryableError | None:
        """The failure that the bytes arrive too slowly, after which there is no other try; None while they do not."""
        with self._lock:
            if self._meter.left > 0:
                return None
        return RetryableError(f"its bytes arrive too slowly: {self._meter} are expected ({LEAST_RATE} sets this)")

    def server_wait(self) -> float:
        """Seconds from now for which the server asked all connections to wait; 0 or less when it did not."""
        with self._lock:
            return self._server_wait_until - self._clock()

    def pause_after(self, error: RetryableError, failures: int) -> float:
        """Seconds to wait before the next try, after *failures* in a row; raises ``error.becomes`` after the last."""
        pause = error.wait
        if pause is None:
            most = min(self._settings.max_pause, _FIRST_PAUSE_SECONDS * 2 ** min(failures, 16))
            pause = most * random.uniform(0.5, 1)  # noqa: S311
        now = self._clock()
        with self._lock:
            left = self._meter.left
            until = max(self._server_wait_until, now + (error.wait or 0.0))
            server_wait = self._server_wait + until - max(now, self._server_wait_until)
            self._contradictions += error.becomes is Failed
            if (
                left <= (0 if error.wait else pause)
                or server_wait > self._settings.max_server_wait
                or self._contradictions >= _MAX_CONTRADICTIONS
            ):
                raise error.becomes(error.reason, code=error.code)
            if error.wait:
                self._server_wait, self._server_wait_until = server_wait, until
                self._meter.pause(error.wait)
        return pause


class Worklist:
    """The parts *missing* of a file, for at most *workers* connections; safe to use from several threads."""

    def __init__(self, missing: list[Span], workers: int) -> None:
        self.workers = min(workers, -(-length(missing) // _SMALLEST_PART))
        self._lock = threading.Lock()
        self._todo = deque(missing)
        self._claims = 0
        self._ranges_ignored = 0

    @property
    def in_one_piece(self) -> bool:
        """Whether the server ignores ranges: then there is one request at a time, for everything."""
        return self._ranges_ignored > 1  # once may be an accident

    def note_ignored_range(self) -> None:
        """Count a response with the whole file to a request for a part."""
        with self._lock:
            self._ranges_ignored += 1

    def claim(self, wanted: int) -> list[Span]:
        """The next parts of one request, in order: about *wanted* bytes; empty when nothing is left."""
        with self._lock:
            if not self._todo:
                return []
            if self.in_one_piece:
                if self._claims:
                    return []  # the last worker that releases its parts continues alone
                spans = sorted(self._todo)
                self._todo.clear()
            else:
                spans = [self._next(wanted)]
            self._claims += 1
            return spans

    def release(self, left: Iterable[Span]) -> None:
        """Return what was claimed and did not arrive."""
        with self._lock:
            self._todo.extendleft(sorted(left, reverse=True))
            self._claims -= 1

    def _next(self, wanted: int) -> Span:
        # Smaller parts towards the end, so that all connections end at the same time.
        fair = length(self._todo) // (2 * self.workers)
        start, end = self._todo.popleft()
        cut = start + max(_SMALLEST_PART, min(wanted, fair))
        if cut < end:
            self._todo.appendleft((cut, end))
        return start, min(cut, end)


def part_size(round_trip: float, count: int, seconds: float) -> int:
    """How many bytes a connection requests after a body of *count* bytes took *seconds*, its head *round_trip* seconds.

    Nothing arrives during a request's round trip, so its body should take many times as long.  With larger parts the
    connections drift apart, and the hash falls behind: it should read what is still in the processor's cache.
    """
    wanted = int(_PART_PER_ROUND_TRIP * round_trip * count / max(seconds, 1e-6))
    return max(USUAL_PART, min(wanted, _LARGEST_PART))
