"""Stopping work: SIGTERM sets an event, on which the work ends with ``Stopped``."""

from __future__ import annotations

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
    before = signal.signal(signal.SIGTERM, lambda _number, _frame: stop.set())
    try:
        yield stop
    finally:
        signal.signal(signal.SIGTERM, before)
