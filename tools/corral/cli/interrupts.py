"""Ctrl-C, SIGTERM and SIGHUP while something in a cluster has to be undone."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager

from corral import output

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def first_only(message: str) -> Iterator[None]:
    """In the block the first signal is a KeyboardInterrupt, and each further one prints *message* alone."""

    def interrupt(_number: int, _frame: object) -> None:
        for number in taken:
            signal.signal(number, lambda *_: output.info(message))
        raise KeyboardInterrupt

    taken = [number for number in _SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]  # nohup
    before = {number: signal.signal(number, interrupt) for number in taken}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
