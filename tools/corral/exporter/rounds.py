"""Does something again and again beside the server."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def repeating(act: Callable[[], None], every_s: float) -> Iterator[None]:
    """Call *act* after every *every_s* seconds while the block lasts; one under way does not delay the end."""
    ended = threading.Event()

    def repeat() -> None:
        while not ended.wait(every_s):
            act()

    thread = threading.Thread(target=repeat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
