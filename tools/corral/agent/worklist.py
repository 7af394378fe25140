"""Who asks for which part of a file, and for how much at a time."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterable

from .partial import Span, length

_MIB = 1 << 20
_SMALLEST_PART = _MIB
_USUAL_PART = 4 * _MIB
_LARGEST_PART = 64 * _MIB
_PART_PER_ROUND_TRIP = 20


class Worklist:
    """The parts of a file that nobody has asked for yet; safe to use from several threads.

    Args:
        missing: what is to be asked for.
        workers: how many want to work.
    """

    def __init__(self, missing: list[Span], workers: int) -> None:
        self.workers = min(workers, -(-length(missing) // _SMALLEST_PART))
        self._lock = threading.Lock()
        self._todo = deque(missing)
        self._claims = 0
        self._ranges_ignored = 0

    @property
    def in_one_piece(self) -> bool:
        """Whether the server knows no ranges: then there is one request at a time, for everything."""
        return self._ranges_ignored > 1  # once may be an accident

    def note_ignored_range(self) -> None:
        """The server sent the whole file where a part was asked for."""
        with self._lock:
            self._ranges_ignored += 1

    def claim(self, wanted: int) -> list[Span]:
        """The next parts to ask for in one request, in order: about *wanted* bytes; empty when nothing is left."""
        with self._lock:
            if not self._todo:
                return []
            if self.in_one_piece:
                if self._claims:
                    return []  # whoever is the last to give its parts back goes on alone
                spans = sorted(self._todo)
                self._todo.clear()
            else:
                spans = [self._next(wanted)]
            self._claims += 1
            return spans

    def release(self, left: Iterable[Span]) -> None:
        """Give back what was claimed and did not arrive."""
        with self._lock:
            self._todo.extendleft(sorted(left, reverse=True))
            self._claims -= 1

    def _next(self, wanted: int) -> Span:
        # Ever less towards the end, so that all connections are done at the same time.
        fair = length(self._todo) // (2 * self.workers)
        start, end = self._todo.popleft()
        cut = start + max(_SMALLEST_PART, min(wanted, fair))
        if cut < end:
            self._todo.appendleft((cut, end))
        return start, min(cut, end)


class Pace:
    """How much one connection asks for at a time.

    Nothing comes during a request's round trip, so what it asks for is to take many times as long.  More than that
    would let the connections drift apart, and the hash fall behind: it reads what is still in the processor's cache.
    """

    def __init__(self) -> None:
        self.part = _USUAL_PART
        self._asked_at = 0.0
        self._answered_at = 0.0

    def asked(self) -> None:
        """A request goes out."""
        self._asked_at = time.monotonic()

    def answered(self) -> None:
        """The head of the answer is here."""
        self._answered_at = time.monotonic()

    def received(self, count: int) -> None:
        """So has the body, *count* bytes."""
        round_trip, took = self._answered_at - self._asked_at, time.monotonic() - self._answered_at
        wanted = int(_PART_PER_ROUND_TRIP * round_trip * count / max(took, 1e-6))
        self.part = max(_USUAL_PART, min(wanted, _LARGEST_PART))
