"""The demo hub with faults: each one is switched on for the requests it matches, as often as it says."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace

from corral.demo.hub import Answer, Hub, RepoContent, Request, Wire, pieces
from corral.demo.hub_content import StoredFile

DATA = "/cdn/"
RESOLVE = "/resolve/"


@dataclass
class Fault:
    """A way to misbehave.

    Attributes:
        on: a part of the path of the requests it is for.
        times: to how many of them it happens; None: to all.
        skip: how many of them pass in good health first.
    """

    on: str = DATA
    times: int | None = 1
    skip: int = 0

    def answer(self, answer: Answer) -> Answer:
        """Change what is said."""
        return answer

    def send(self, wire: Wire, answer: Answer, *, body: bool) -> None:
        """Change how it is said."""
        wire.send(answer, body=body)


@dataclass
class Cut(Fault):
    """The connection ends after *after* bytes of the body, by FIN or by RST."""

    after: int = 1000
    reset: bool = False

    def send(self, wire, answer, *, body):
        wire.send_head(answer)
        _send_first(wire, answer, self.after)
        if self.reset:
            wire.reset()
        wire.hang_up()


@dataclass
class HangUp(Fault):
    """All is well, but the connection is closed afterwards, without a word."""

    times: int | None = None

    def send(self, wire, answer, *, body):
        wire.send(answer, body=body)
        wire.hang_up()


@dataclass
class Truncate(Fault):
    """A short body whose Content-Length agrees with it."""

    to: int = 1000

    def answer(self, answer):
        return replace(answer, length=min(answer.length, self.to))


@dataclass
class Flip(Fault):
    """One bit of the body is another one."""

    def send(self, wire, answer, *, body):
        wire.send_head(answer)
        for number, piece in enumerate(pieces(answer)):
            wire.send_piece(piece if number else bytes([piece[0] ^ 1]) + piece[1:])


@dataclass
class Stall(Fault):
    """Nothing comes after *after* bytes of the body, for *seconds* or until *until* is set."""

    after: int = 1000
    seconds: float = 60.0
    until: threading.Event | None = None

    def send(self, wire, answer, *, body):
        wire.send_head(answer)
        _send_first(wire, answer, self.after)
        (self.until or threading.Event()).wait(self.seconds)
        wire.hang_up()


@dataclass
class Slow(Fault):
    """At most *rate* bytes a second on each connection."""

    times: int | None = None
    rate: float = 1e6

    def send(self, wire, answer, *, body):
        wire.send_head(answer)
        for piece in pieces(answer):
            for at in range(0, len(piece), 1 << 14):
                part = piece[at : at + (1 << 14)]
                time.sleep(len(part) / self.rate)
                wire.send_piece(part)


@dataclass
class Status(Fault):
    """Another status, perhaps with Retry-After."""

    status: int = 503
    retry_after: str = ""

    def answer(self, answer):
        return Answer(self.status, {"Retry-After": self.retry_after} if self.retry_after else {})


@dataclass
class Header(Fault):
    """A header field with another value: a wrong etag, a wrong size."""

    name: str = "X-Linked-Etag"
    value: str = ""

    def answer(self, answer):
        return replace(answer, headers={**answer.headers, self.name: self.value})


@dataclass
class IgnoreRange(Fault):
    """The whole file instead of the range that was asked for."""


@dataclass
class Expire(Fault):
    """All signed addresses given out so far are refused from this request on."""


class FaultyHub(Hub):
    """A hub with *faults*, which tests add to and clear; the first that matches a request happens."""

    def __init__(self, repositories: Mapping[str, RepoContent]) -> None:
        self.faults: list[Fault] = []
        self._guard = threading.Lock()
        self._signed = 0
        self._valid_from = 0
        super().__init__(repositories)

    def expire_addresses(self) -> None:
        """Signed addresses that were given out so far are refused from now on."""
        with self._guard:
            self._valid_from = self._signed + 1

    def signed_address(self, file: StoredFile) -> str:
        with self._guard:
            self._signed += 1
            return f"{super().signed_address(file)}&Number={self._signed}"

    def serve(self, request: Request, wire: Wire) -> None:
        with self._guard:
            expired = int(request.query.get("Number", ["0"])[0]) < self._valid_from
        if DATA in request.path and expired:
            wire.send(Answer(403))
            return
        fault = self._take(request)
        body = request.method == "GET"
        if isinstance(fault, Expire):
            self.expire_addresses()
            wire.send(Answer(403))
            return
        if isinstance(fault, IgnoreRange):
            request = replace(request, headers={k: v for k, v in request.headers.items() if k != "range"})
        answer = self.answer(request)
        if fault is None:
            wire.send(answer, body=body)
        else:
            fault.send(wire, fault.answer(answer), body=body)

    def _take(self, request: Request) -> Fault | None:
        with self._guard:
            for fault in self.faults:
                if fault.on not in request.path:
                    continue
                if fault.skip:
                    fault.skip -= 1
                elif fault.times is None:
                    return fault
                elif fault.times:
                    fault.times -= 1
                    return fault
        return None


def _send_first(wire: Wire, answer: Answer, count: int) -> None:
    for piece in pieces(replace(answer, length=min(answer.length, count))):
        wire.send_piece(piece)
