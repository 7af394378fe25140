"""Since when a holder is beyond its promise: from the first reading that showed it, until one shows that it is not."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import replace

from .account import CardAccount, Row


class Excesses:
    """Dates the excesses of successive accounts; a reading that does not know what a holder has ends none."""

    def __init__(self, *, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._since: dict[tuple[str, str, str], float] = {}

    def dated(self, accounts: Iterable[CardAccount]) -> tuple[CardAccount, ...]:
        """*accounts*, where each row that is over its promise has the time, in seconds since 1970, since when it is."""
        return self.date(accounts, self._clock())

    def date(self, accounts: Iterable[CardAccount], now: float) -> tuple[CardAccount, ...]:
        """As ``dated``, for *accounts* of the time *now*."""
        with self._lock:
            return tuple(
                replace(one, rows=tuple(self._dated(one.name, row, now) for row in one.rows)) for one in accounts
            )

    def _dated(self, card: str, row: Row, now: float) -> Row:
        key = (card, row.kind, row.name)
        if row.over:
            return replace(row, over_since=self._since.setdefault(key, now))
        if row.held is not None:
            self._since.pop(key, None)
        return row
