"""Stopping work: SIGTERM sets an event, on which the work ends with ``Stopped``."""

from __future__ import annotations

import _thread
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from .errors import CannotRun, Code


class Stopped(CannotRun):
    """The work was stopped before its end; what has arrived is kept."""

    def __init__(self) -> None:
        super().__init__(
            "Stopped before the end; what has arrived is kept.",
            next_step="Run the same command again: it resumes where this one stopped.",
            code=Code.STOPPED,
        )


@contextmanager
def stop_on_sigterm() -> Iterator[threading.Event]:
    """An event that SIGTERM sets while the block runs (main thread only)."""
    stop = threading.Event()

    def on_sigterm(_number: int, _frame: object) -> None:
        # A handler may run within the event's own wait(), which holds the lock that set() takes.
        _thread.start_new_thread(stop.set, ())

    before = signal.signal(signal.SIGTERM, on_sigterm)
    try:
        yield stop
    finally:
        signal.signal(signal.SIGTERM, before)
