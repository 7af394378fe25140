"""The demo hub with faults: each one is switched on for the requests that it matches, and for how many of them."""

from __future__ import annotations

import contextlib
import gzip
import re
import socket
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar, Self

from corral.demo.hub import Answer, Hub, RepoContent, Request, Wire
from corral.demo.hub_content import StoredFile

DATA = "/cdn/"
MIB = 1 << 20
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

    ignores_range: ClassVar[bool] = False

    def answer(self, answer: Answer) -> Answer:
        """Change the answer."""
        return answer

    def send(self, wire: Wire, answer: Answer, *, body: bool) -> None:
        """Change how it is sent."""
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
            wire.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
        wire.close_connection = True


@dataclass
class HangUp(Fault):
    """The answer is sound, but the connection is closed afterwards, without notice."""

    times: int | None = None

    def send(self, wire, answer, *, body):
        wire.send(answer, body=body)
        wire.close_connection = True


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
        for number, piece in enumerate(answer.pieces()):
            wire.send_piece(piece if number else bytes([piece[0] ^ 1]) + piece[1:])


@dataclass
class Stall(Fault):
    """Nothing is sent after *after* bytes of the body, for *seconds* or until *until* is set."""

    after: int = 1000
    seconds: float = 60.0
    until: threading.Event | None = None

    def send(self, wire, answer, *, body):
        wire.send_head(answer)
        _send_first(wire, answer, self.after)
        (self.until or threading.Event()).wait(self.seconds)
        wire.close_connection = True


@dataclass
class Hold(Fault):
    """Nothing is sent before *until* is set; then all of it, in good health."""

    until: threading.Event = field(default_factory=threading.Event)

    def send(self, wire, answer, *, body):
        self.until.wait()
        wire.send(answer, body=body)


@dataclass
class Slow(Fault):
    """At most *rate* bytes a second on each connection."""

    times: int | None = None
    rate: float = 1e6

    def send(self, wire, answer, *, body):
        wire.send_head(answer)
        for piece in answer.pieces():
            for at in range(0, len(piece), 1 << 14):
                part = piece[at : at + (1 << 14)]
                self.pause(part)
                wire.send_piece(part)

    def pause(self, part):
        """Wait before *part* is sent."""
        time.sleep(len(part) / self.rate)


@dataclass
class Quota(Slow):
    """The same, and *size* bytes in all: then ``used_up`` is set, and nothing is sent until *until* is set."""

    rate: float = 3e6
    size: int = MIB
    until: threading.Event = field(default_factory=threading.Event)
    used_up: threading.Event = field(default_factory=threading.Event)
    guard: threading.Lock = field(default_factory=threading.Lock)

    def pause(self, part):
        super().pause(part)
        with self.guard:
            self.size -= len(part)
            is_within = self.size >= 0
        if not is_within:
            self.used_up.set()
            self.until.wait()


@dataclass
class Raw(Fault):
    """*content* instead of an answer, then *endless* until the client hangs up, each time after *pause* seconds."""

    times: int | None = None
    content: bytes = b""
    endless: bytes = b""
    pause: float = 0.0

    def send(self, wire, answer, *, body):
        wire.connection.sendall(self.content)
        while self.endless:
            time.sleep(self.pause)
            wire.connection.sendall(self.endless)
        wire.close_connection = True


@dataclass
class Drip(Fault):
    """One byte of the body every *pause* seconds."""

    times: int | None = None
    pause: float = 0.02

    def send(self, wire, answer, *, body):
        wire.send_head(answer)
        for piece in answer.pieces():
            for byte in piece:
                time.sleep(self.pause)
                wire.send_piece(bytes([byte]))


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
class Change(Fault):
    """Another head: a status, fields that come in addition or in another's place, fields that are left out."""

    status: int | None = None
    fields: Mapping[str, str] = field(default_factory=dict)
    without: tuple[str, ...] = ()

    def answer(self, answer):
        kept = {name: value for name, value in answer.headers.items() if name not in self.without}
        return replace(answer, status=self.status or answer.status, headers={**kept, **self.fields})


@dataclass
class RangeForm(Fault):
    """Another form of Content-Range, made of *start*, *end* (the last byte) and *size*."""

    times: int | None = None
    form: str = "bytes {start}-{end}/{size}"

    def answer(self, answer):
        start, end, size = re.split(r"[-/]", answer.headers["Content-Range"].removeprefix("bytes "))
        value = self.form.format(start=start, end=end, size=size)
        return replace(answer, headers={**answer.headers, "Content-Range": value})


@dataclass
class LowerCase(Fault):
    """All names of header fields in lower case, as proxies pass them on."""

    times: int | None = None

    def send(self, wire, answer, *, body):
        fields = {"Content-Length": str(answer.length), **answer.headers}
        _send_bare_head(wire, answer.status, {name.lower(): value for name, value in fields.items()})
        _send_first(wire, answer, answer.length if body else 0)


@dataclass
class Chunked(Fault):
    """The body in chunks of *of* bytes, without a Content-Length."""

    times: int | None = None
    of: int = 10_000

    def send(self, wire, answer, *, body):
        _send_bare_head(wire, answer.status, {**answer.headers, "Transfer-Encoding": "chunked"})
        for piece in answer.pieces():
            for at in range(0, len(piece), self.of):
                part = piece[at : at + self.of]
                wire.send_piece(b"%x\r\n%b\r\n" % (len(part), part))
        wire.send_piece(b"0\r\n\r\n")


@dataclass
class Lengthless(Fault):
    """The whole file without a Content-Length: the body ends with the connection."""

    times: int | None = None
    ignores_range = True

    def send(self, wire, answer, *, body):
        _send_bare_head(wire, answer.status, answer.headers)
        _send_first(wire, answer, answer.length)
        wire.close_connection = True


@dataclass
class Compressed(Fault):
    """Compressed, though the request excludes that."""

    def answer(self, answer):
        body = gzip.compress(b"".join(answer.pieces()), compresslevel=1)
        return replace(
            answer, headers={**answer.headers, "Content-Encoding": "gzip"}, content=body, start=0, length=len(body)
        )


@dataclass
class IgnoreRange(Fault):
    """The whole file instead of the requested range."""

    ignores_range = True


@dataclass
class CutWhole(Cut):
    """The whole file instead of the requested range, and cut short."""

    ignores_range = True


@dataclass
class Expire(Fault):
    """All signed addresses given out so far are refused from this request on."""


class FaultyHub(Hub):
    """A hub with *faults*, which tests add to and clear; the first that matches a request happens."""

    def __init__(self, repositories: Mapping[str, RepoContent], host: str = "127.0.0.1") -> None:
        self.faults: list[Fault] = []
        self._guard = threading.Lock()
        self._signed = 0
        self._valid_from = 0
        super().__init__(repositories, host)

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
        if fault and fault.ignores_range:
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


class SecureHub(FaultyHub):
    """The same over TLS, with the certificate and key in the PEM file *certificate*."""

    def __init__(self, repositories: Mapping[str, RepoContent], certificate: Path) -> None:
        super().__init__(repositories)
        tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        tls.load_cert_chain(certificate)
        self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)

    @property
    def endpoint(self) -> str:
        return super().endpoint.replace("http:", "https:")

    def signed_address(self, file: StoredFile) -> str:
        return super().signed_address(file).replace("http:", "https:")


class Door:
    """Another port of *hub*, where connections are refused until it is opened."""

    def __init__(self, hub: Hub, host: str = "127.0.0.1") -> None:
        self._inside = int(hub.endpoint.rpartition(":")[2])
        self._host = f"[{host}]" if ":" in host else host
        self._socket = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
        self._socket.bind((host, 0))  # bound, but not listening: the port is taken and refuses
        self._threads: list[threading.Thread] = []

    @property
    def endpoint(self) -> str:
        """The address for ``HF_ENDPOINT``."""
        return f"http://{self._host}:{self._socket.getsockname()[1]}"

    def open(self) -> None:
        """Let connections in from now on."""
        self._socket.listen()
        self._start(self._let_in)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        for thread in self._threads:
            thread.join()

    def _let_in(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                outer, _ = self._socket.accept()
                inner = socket.create_connection(("127.0.0.1", self._inside))
                self._start(_pass_on, outer, inner)
                self._start(_pass_on, inner, outer)

    def _start(self, target: Callable[..., None], *args: object) -> None:
        self._threads.append(threading.Thread(target=target, args=args))
        self._threads[-1].start()


def _pass_on(source: socket.socket, target: socket.socket) -> None:
    with source, contextlib.suppress(OSError):
        while piece := source.recv(1 << 16):
            target.sendall(piece)
        target.shutdown(socket.SHUT_WR)


def _send_bare_head(wire: Wire, status: int, fields: Mapping[str, str]) -> None:
    """Status line and *fields* as they are: no length is added."""
    wire.entry.status = status
    wire.send_response_only(status)
    for name, value in fields.items():
        wire.send_header(name, value)
    wire.end_headers()


def _send_first(wire: Wire, answer: Answer, count: int) -> None:
    for piece in replace(answer, length=min(answer.length, count)).pieces():
        wire.send_piece(piece)
