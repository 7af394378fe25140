"""The border between the engine that moves bytes and whatever the bytes come from.

The engine (``transfer.py``) knows this file and nothing of HTTP; the hub's client (``hub_client.py``) knows
this file and nothing of the disk.  Either can be replaced alone.
"""

from __future__ import annotations

from typing import Protocol

from .errors import CannotRun, Code, CorralError


class Hiccup(Exception):
    """A request failed in a way that may pass: worth another try, until patience ends.

    Args:
        reason: what happened, as a clause: "the connection was reset".
        wait: seconds that the other side asked for; None when it did not.
        becomes: the error to end with when it never passes.
        code: of that error.
    """

    def __init__(
        self,
        reason: str,
        *,
        wait: float | None = None,
        becomes: type[CorralError] = CannotRun,
        code: Code = Code.HUB_UNREACHABLE,
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.wait = wait
        self.becomes = becomes
        self.code = code


class Body(Protocol):
    """The answer to one request: bytes in order from ``start`` on."""

    start: int
    """Offset of the first byte in the file: what was asked for, or 0 when the range was ignored."""

    total: int | None
    """Size of the whole file as the source states it; None when it does not."""

    def readinto(self, buffer: memoryview) -> int:
        """Fill the front of *buffer*; 0 at the end, early or not.

        Raises:
            Hiccup: the connection broke or stalled.
        """

    def close(self) -> None:
        """Give the connection back, or drop it when bytes are left."""


class Source(Protocol):
    """One file that can be read by ranges, from several threads at a time."""

    def open(self, start: int, end: int) -> Body:
        """Ask for the bytes from *start* up to, without, *end*.

        Raises:
            Hiccup: it may work later.
            CorralError: it will not.
        """

    def abort(self) -> None:
        """Break all requests under way, from any thread; each ends with a ``Hiccup``."""
