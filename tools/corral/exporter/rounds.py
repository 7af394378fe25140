"""Does something again and again beside the server."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def repeating(act: Callable[[], None], every_s: float, failure: str) -> Iterator[None]:
    """Call *act* after every *every_s* seconds while the block lasts; one under way does not delay the end.

    Whatever it raises is printed once, after *failure*, and costs that round alone.
    """
    ended = threading.Event()

    def repeat() -> None:
        before = ""
        while not ended.wait(every_s):
            problem = ""
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
