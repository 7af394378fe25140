"""When to try again, how long to wait before, and when to give up: one answer for all connections of a file."""

from __future__ import annotations

import random
import threading
import time
from dataclasses import dataclass

from .errors import Failed
from .source import Hiccup

_FIRST_PAUSE_SECONDS = 0.25
_MAX_CONTRADICTIONS = 8


@dataclass(frozen=True)
class Settings:
    """How hard to try.

    Attributes:
        connections: ranges under way at a time.
        patience: seconds without one new byte before giving up.
        obedience: seconds more that a server may ask to wait (Retry-After) without one new byte.
        slowest_retry: the longest pause between two tries that the server did not ask for, in seconds.
    """

    connections: int = 8
    patience: float = 60.0
    obedience: float = 900.0
    slowest_retry: float = 8.0


class Patience:
    """What is left of it; safe to use from several threads."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._news_at = time.monotonic()
        self._hold_until = 0.0
        self._ordered = 0.0
        self._contradictions = 0

    def renew(self) -> None:
        """New bytes have arrived: all waiting begins to count anew."""
        with self._lock:
            self._news_at, self._ordered = time.monotonic(), 0.0

    def hold(self) -> float:
        """Seconds that the server asked everybody to wait from now on; 0 or less when it did not."""
        with self._lock:
            return self._hold_until - time.monotonic()

    def pause_after(self, hiccup: Hiccup, failures: int) -> float:
        """Seconds to wait before the next try, after *failures* in a row.

        Raises:
            CorralError: there is no next try; what ``hiccup.becomes``, with its reason as the message.
        """
        pause = hiccup.wait
        if pause is None:
            most = min(self._settings.slowest_retry, _FIRST_PAUSE_SECONDS * 2 ** min(failures, 16))
            pause = most * random.uniform(0.5, 1)  # noqa: S311
        now = time.monotonic()
        with self._lock:
            if hiccup.wait:
                self._ordered += max(0.0, now + pause - max(now, self._hold_until))
                self._hold_until = max(self._hold_until, now + pause)
            self._contradictions += hiccup.becomes is Failed
            deadline = self._news_at + self._settings.patience + min(self._ordered, self._settings.obedience)
            if now + pause > deadline or self._contradictions >= _MAX_CONTRADICTIONS:
                raise hiccup.becomes(hiccup.reason, code=hiccup.code)
        return pause
