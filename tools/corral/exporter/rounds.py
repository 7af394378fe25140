"""Does something again and again beside the server."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def repeating(act: Callable[[], None], every_s: float, failure: str, *, begins_now: bool = False) -> Iterator[None]:
    """Call *act* after every *every_s* seconds while the block lasts; one under way does not delay the end.

    The first call is after *every_s* seconds, too, unless it *begins_now*.  Whatever *act* raises is printed once,
    after *failure*, and costs that round alone.
    """
    ended = threading.Event()

    def repeat() -> None:
        before, pause_s = "", 0.0 if begins_now else every_s
        while not ended.wait(pause_s):
            problem, pause_s = "", every_s
            try:
                act()
            except Exception as error:  # noqa: BLE001 - whatever it is, the next round is another one
                problem = f"exporter: {failure}: {str(error) or type(error).__name__}"
            if problem and problem != before:
                print(problem, file=sys.stderr, flush=True)  # noqa: T201 - a program of its own
            before = problem

    thread = threading.Thread(target=repeat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
