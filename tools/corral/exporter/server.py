"""Serves metrics, and the account of the cards as JSON, over HTTP; where there are keys, the first three need one.

/             a page for people, which reads the next two
/card.json    for `corral card`
/records      for `corral timeline`: what the recorder has from ?since=SECONDS (since 1970) on, as JSON lines
/metrics      for Prometheus, which sends no key: no figure of it is a secret
/health       200 while it runs, whatever the driver does
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import re
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from .errors import KeysUnknown
from .keys import OperatorKeys
from .recorder import Recorder

PAGE = Path(__file__).with_name("page.html")
_PATHS = b"There is /, /card.json, /records, /metrics and /health.\n"
_HOSTS = b"This host is not served. Name the exporter by its address, or by localhost, e.g. http://127.0.0.1:9460/.\n"
_HOST = re.compile(r"(?:(?P<name>[A-Za-z0-9._-]+)|\[(?P<address>[0-9A-Fa-f:.]+)\])(?::[0-9]{1,5})?")
_CHALLENGE = {"WWW-Authenticate": 'Basic realm="corral", charset="UTF-8"'}  # https://www.rfc-editor.org/rfc/rfc7617
_AT_ONCE, _READERS, _CONNECTIONS = 8, 2, 64
_CROWDED = b"HTTP/1.0 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n"
_PIECE = 64 << 10
_ENDS = (signal.SIGINT, signal.SIGTERM)
_HEADERS = {"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cache-Control": "no-store"}
_PLACE_S = 1.0
_CLIENT_S = 10.0  # for a request to arrive, and for its answer to be taken


class Server(ThreadingHTTPServer):
    """An HTTP server of these paths.

    A client more than ``_AT_ONCE`` gets 503, and so does a reader of records more than ``_READERS``, and a connection
    more than ``_CONNECTIONS``, each of which has a thread.
    """

    daemon_threads = True
    request_queue_size = 32

    def __init__(
        self,
        address: tuple[str, int],
        exporter: Collector,
        cards: Callable[[], Any],
        recorder: Recorder | None,
        keys: OperatorKeys | None,
    ) -> None:
        self.registry = CollectorRegistry(auto_describe=False)
        self.registry.register(exporter)
        self.page = _page()
        self.cards = cards
        self.recorder = recorder
        self.keys = keys
        self.hosts = {"localhost", address[0]}
        self.free = threading.BoundedSemaphore(_AT_ONCE)
        self.readers = threading.BoundedSemaphore(_READERS)
        self.connections = threading.BoundedSemaphore(_CONNECTIONS)
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        super().__init__(address, _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Give *request* a thread, where one is left."""
        if self.connections.acquire(blocking=False):
            super().process_request(request, client_address)
            return
        with suppress(OSError):
            request.sendall(_CROWDED)
        self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer *request*, in its thread."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.connections.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that is gone is no error."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


class _Request(io.RawIOBase):
    """What *connection* brings within ``_CLIENT_S``: a socket's own limit is for each piece, however small."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection, self._ends = connection, time.monotonic() + _CLIENT_S

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        left_s = self._ends - time.monotonic()
        if left_s <= 0:
            raise TimeoutError
        self._connection.settimeout(left_s)
        try:
            return self._connection.recv_into(buffer)
        finally:
            self._connection.settimeout(_CLIENT_S)


class _Handler(BaseHTTPRequestHandler):
    server: Server
    timeout = _CLIENT_S
    server_version, sys_version = "corral", ""

    def setup(self) -> None:
        super().setup()
        self.rfile.close()
        self.rfile = io.BufferedReader(_Request(self.connection))

    def do_HEAD(self) -> None:
        """As GET, without the body."""
        self.do_GET()

    def do_GET(self) -> None:
        path, _, query = self.path.partition("?")
        if path == "/health":
            self._answer(HTTPStatus.OK, "text/plain", b"OK\n")
        elif path == "/metrics":
            self._in_turn(self.server.free, lambda: self._answer(HTTPStatus.OK, *self._metrics()))
        elif path not in ("/", "/card.json", "/records"):
            self._answer(HTTPStatus.NOT_FOUND, "text/plain", _PATHS)
        elif not self._is_meant():
            self._answer(HTTPStatus.MISDIRECTED_REQUEST, "text/plain", _HOSTS)
        elif refusal := self._refusal():
            self._answer(*refusal)
        elif path == "/":
            page, policy = self.server.page
            self._answer(HTTPStatus.OK, "text/html; charset=utf-8", page, {"Content-Security-Policy": policy})
        elif path == "/card.json":
            self._in_turn(self.server.free, lambda: self._answer(HTTPStatus.OK, *self._cards()))
        else:
            self._in_turn(self.server.readers, lambda: self._send_records(query))

    def _in_turn(self, free: threading.BoundedSemaphore, act: Callable[[], None]) -> None:
        """*act*, or 503 when *free* has no place within ``_PLACE_S``: one is free a moment after its client has all."""
        if not free.acquire(timeout=_PLACE_S):
            self._answer(HTTPStatus.SERVICE_UNAVAILABLE, "text/plain", b"Too many requests at once.\n")
            return
        try:
            act()
        finally:
            free.release()

    def _is_meant(self) -> bool:
        """Whether the request names this server by an address, or by a name that it has.

        A web page whose own name was rebound to this address names that one: https://en.wikipedia.org/wiki/DNS_rebinding
        """
        found = _HOST.fullmatch(self.headers.get("Host", "localhost"))
        host = (found["name"] or found["address"]).lower() if found else ""
        if host in self.server.hosts:
            return True
        try:
            ip_address(host)
        except ValueError:
            return False
        return True

    def _refusal(self) -> tuple[HTTPStatus, str, bytes, Mapping[str, str]] | None:
        """The answer to a request without the operator's key; None: it has one, or none is needed."""
        keys = self.server.keys
        try:
            if keys is None or keys.accepts(self.headers.get_all("Authorization", [])):
                return None
        except KeysUnknown as error:
            sentence = (
                f"{error} `corral keys list` has those there are; in a cluster `corral apply` brings them here.\n"
            )
            return HTTPStatus.SERVICE_UNAVAILABLE, "text/plain", sentence.encode(), {}
        sentence = (
            "The operator's key is required: as the password, with any user name, or as Authorization: Bearer KEY. "
            f"This prints it: {keys.command}\n"
        )
        return HTTPStatus.UNAUTHORIZED, "text/plain", sentence.encode(), _CHALLENGE

    def _metrics(self) -> tuple[str, bytes]:
        encoder, kind = choose_encoder(self.headers.get("Accept", ""))
        return kind, encoder(self.server.registry)

    def _cards(self) -> tuple[str, bytes]:
        return "application/json", f"{json.dumps(self.server.cards())}\n".encode()

    def _send_records(self, query: str) -> None:
        since = re.fullmatch(r"since=([0-9]{1,12}(?:\.[0-9]{1,6})?)", query)
        if since is None:
            self._answer(HTTPStatus.BAD_REQUEST, "text/plain", b"It is /records?since=SECONDS, since 1970.\n")
            return
        with ExitStack() as opened:
            found = self.server.recorder.open_since(float(since[1])) if self.server.recorder else []
            streams = [opened.enter_context(stream) for stream in found]
            sizes = [os.fstat(stream.fileno()).st_size for stream in streams]  # the last one grows
            self._begin(HTTPStatus.OK, "application/jsonl", sum(sizes))
            for stream, size in zip(streams, sizes, strict=True) if self.command != "HEAD" else ():
                for left in range(size, 0, -_PIECE):  # a time limit is for each piece
                    self.wfile.write(stream.read(min(left, _PIECE)))

    def _answer(self, status: HTTPStatus, kind: str, body: bytes, headers: Mapping[str, str] | None = None) -> None:
        self._begin(status, kind, len(body), headers)
        if self.command != "HEAD":
            self.wfile.write(body)

    def _begin(self, status: HTTPStatus, kind: str, length: int, headers: Mapping[str, str] | None = None) -> None:
        self.send_response(status)
        own = {"Content-Type": kind, "Content-Length": str(length)}
        for name, value in {**_HEADERS, **own, **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Scrapes are not worth a line."""


def _page() -> tuple[bytes, str]:
    """The page, and the policy by which a browser runs its own script and style, and loads from here alone."""
    page = PAGE.read_bytes()
    hashes = {
        name: base64.b64encode(hashlib.sha256(re.findall(rb"<%b>(.*?)</%b>" % (tag, tag), page, re.DOTALL)[0]).digest())
        for name, tag in (("script-src", b"script"), ("style-src", b"style"))
    }
    own = "; ".join(f"{name} 'sha256-{digest.decode()}'" for name, digest in hashes.items())
    return page, f"default-src 'none'; connect-src 'self'; base-uri 'none'; frame-ancestors 'none'; {own}"


@contextmanager
def serving(
    address: tuple[str, int],
    exporter: Collector,
    cards: Callable[[], Any],
    recorder: Recorder | None = None,
    keys: OperatorKeys | None = None,
) -> Iterator[Server]:
    """A server at *address* (port 0: any), while the block lasts.

    *cards* gives what /card.json shows, and *recorder* has what /records does; None: nothing is recorded.  Both, and
    the page, need one of *keys*; None: all that reach *address* may read them.

    Raises:
        OSError: it cannot listen there.
    """
    server = Server(address, exporter, cards, recorder, keys)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def serve_until_signal(
    address: tuple[str, int],
    exporter: Collector,
    cards: Callable[[], Any],
    announce: Callable[[int], None],
    beside: Sequence[AbstractContextManager[None]],
    recorder: Recorder | None = None,
    keys: OperatorKeys | None = None,
) -> None:
    """Serve as ``serving`` does, call *announce* with the port, and return at SIGINT or SIGTERM.  Main thread only.

    All of *beside* are entered meanwhile, where signals are blocked, so that no thread of them gets one.

    Raises:
        OSError: it cannot listen there.
    """
    # Blocked in every thread, and taken from the kernel: a handler runs only when the main thread wakes, and a signal
    # just before it sleeps in a lock does not wake it.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDS)
    try:
        with serving(address, exporter, cards, recorder, keys) as server, ExitStack() as entered:
            for one in beside:
                entered.enter_context(one)
            announce(server.server_port)
            signal.sigwait(_ENDS)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
