"""Serves metrics, and the account of the cards as JSON, over HTTP, without a password: no answer has a secret.

/             a page for people, which reads the next two
/card.json    for `corral card`
/records      for `corral timeline`: what the recorder has from ?since=SECONDS (since 1970) on, as JSON lines
/metrics      for Prometheus
/health       200 while it runs, whatever the driver does
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from . import recorder

PAGE = Path(__file__).with_name("page.html")
_PATHS = b"There is /, /card.json, /records, /metrics and /health.\n"
_AT_ONCE = 8
_ENDS = (signal.SIGINT, signal.SIGTERM)
_HEADERS = {"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cache-Control": "no-store"}
_CLIENT_S = 10.0  # for a request to arrive, and for its answer to be taken


class Server(ThreadingHTTPServer):
    """An HTTP server of the three paths; a client more than ``_AT_ONCE`` gets 503."""

    daemon_threads = True
    request_queue_size = 32

    def __init__(
        self, address: tuple[str, int], exporter: Collector, cards: Callable[[], Any], records: Path | None
    ) -> None:
        self.registry = CollectorRegistry(auto_describe=False)
        self.registry.register(exporter)
        self.page = _page()
        self.cards = cards
        self.records = records
        self.free = threading.BoundedSemaphore(_AT_ONCE)
        super().__init__(address, _Handler)


class _Handler(BaseHTTPRequestHandler):
    server: Server
    timeout = _CLIENT_S
    server_version, sys_version = "corral", ""

    def do_GET(self) -> None:
        path, _, query = self.path.partition("?")
        if path == "/health":
            self._answer(HTTPStatus.OK, "text/plain", b"OK\n")
        elif path == "/":
            page, policy = self.server.page
            self._answer(HTTPStatus.OK, "text/html; charset=utf-8", page, {"Content-Security-Policy": policy})
        elif path not in ("/metrics", "/card.json", "/records"):
            self._answer(
                HTTPStatus.NOT_FOUND, "text/plain", b"There is /, /card.json, /records, /metrics and /health.\n"
            )
        elif not self.server.free.acquire(blocking=False):
            self._answer(HTTPStatus.SERVICE_UNAVAILABLE, "text/plain", b"Too many requests at once.\n")
        else:
            try:
                if path == "/records":
                    self._send_records(query)
                else:
                    self._answer(HTTPStatus.OK, *(self._metrics() if path == "/metrics" else self._cards()))
            finally:
                self.server.free.release()

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
            found = recorder.open_since(self.server.records, float(since[1])) if self.server.records else []
            streams = [opened.enter_context(stream) for stream in found]
            sizes = [os.fstat(stream.fileno()).st_size for stream in streams]  # the last one grows
            self._begin(HTTPStatus.OK, "application/jsonl", sum(sizes))
            for stream, size in zip(streams, sizes, strict=True):
                self.wfile.write(stream.read(size))

    def _answer(self, status: HTTPStatus, kind: str, body: bytes, headers: Mapping[str, str] | None = None) -> None:
        self._begin(status, kind, len(body), headers)
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
    address: tuple[str, int], exporter: Collector, cards: Callable[[], Any], records: Path | None = None
) -> Iterator[Server]:
    """A server at *address* (port 0: any), while the block lasts.

    *cards* gives what /card.json shows, and the folder *records* has what /records does; None: nothing is recorded.

    Raises:
        OSError: it cannot listen there.
    """
    server = Server(address, exporter, cards, records)
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
    records: Path | None = None,
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
        with serving(address, exporter, cards, records) as server, ExitStack() as entered:
            for one in beside:
                entered.enter_context(one)
            announce(server.server_port)
            signal.sigwait(_ENDS)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
