"""The demo's hub, which stops in the middle of a file, so that something can happen while a fetch is under way."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from corral.demo.hub import Hub, Request, Wire

_LIMIT_S = 60.0


@dataclass(frozen=True)
class _Pause:
    """From *at* bytes of large files on, until ``over``."""

    at: int
    begun: threading.Event = field(default_factory=threading.Event)
    over: threading.Event = field(default_factory=threading.Event)


class PausingHub(Hub):
    """A hub that is the demo's, until ``paused``."""

    _pause: _Pause | None = None

    def serve(self, request: Request, wire: Wire) -> None:
        """Answer *request*; in a pause, with the bytes of large files that it lets pass."""
        answer, pause = self.answer(request), self._pause
        if not request.is_data or pause is None:
            wire.send(answer, body=request.method == "GET")
            return
        wire.send_head(answer)
        for piece in answer.pieces():
            if self.data_sent >= pause.at:
                pause.begun.set()
                pause.over.wait(_LIMIT_S)
            wire.send_piece(piece)

    @contextmanager
    def paused(self, after: int) -> Iterator[threading.Event]:
        """Send *after* more bytes of large files, about, and the rest when the block ends; the event: they are sent."""
        self._pause = pause = _Pause(self.data_sent + after)
        try:
            yield pause.begun
        finally:
            self._pause = None
            pause.over.set()
