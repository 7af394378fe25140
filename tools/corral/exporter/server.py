"""Serves metrics, and the account of the cards as JSON, over HTTP, without a password: no answer has a secret.

/metrics      for Prometheus
/card.json    for `corral card`
/health       200 while it runs, whatever the driver does
"""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

_AT_ONCE = 8
_ENDS = (signal.SIGINT, signal.SIGTERM)
_CLIENT_S = 10.0  # for a request to arrive, and for its answer to be taken


class Server(ThreadingHTTPServer):
    """An HTTP server of the three paths; a client more than ``_AT_ONCE`` gets 503."""

    daemon_threads = True
    request_queue_size = 32

    def __init__(self, address: tuple[str, int], exporter: Collector, cards: Callable[[], Any]) -> None:
        self.registry = CollectorRegistry(auto_describe=False)
        self.registry.register(exporter)
        self.cards = cards
        self.free = threading.BoundedSemaphore(_AT_ONCE)
        super().__init__(address, _Handler)


class _Handler(BaseHTTPRequestHandler):
    server: Server
    timeout = _CLIENT_S
    server_version, sys_version = "corral", ""

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if path == "/health":
            self._answer(HTTPStatus.OK, "text/plain", b"OK\n")
        elif path not in ("/metrics", "/card.json"):
            self._answer(HTTPStatus.NOT_FOUND, "text/plain", b"There is /metrics, /card.json and /health.\n")
        elif not self.server.free.acquire(blocking=False):
            self._answer(HTTPStatus.SERVICE_UNAVAILABLE, "text/plain", b"Too many requests at once.\n")
        else:
            try:
                self._answer(HTTPStatus.OK, *(self._metrics() if path == "/metrics" else self._cards()))
            finally:
                self.server.free.release()

    def _metrics(self) -> tuple[str, bytes]:
        encoder, kind = choose_encoder(self.headers.get("Accept", ""))
        return kind, encoder(self.server.registry)

    def _cards(self) -> tuple[str, bytes]:
        return "application/json", f"{json.dumps(self.server.cards())}\n".encode()

    def _answer(self, status: HTTPStatus, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Scrapes are not worth a line."""


@contextmanager
def serving(address: tuple[str, int], exporter: Collector, cards: Callable[[], Any]) -> Iterator[Server]:
    """A server at *address* (port 0: any), while the block lasts; *cards* gives what /card.json shows.

    Raises:
        OSError: it cannot listen there.
    """
    server = Server(address, exporter, cards)
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
    beside: AbstractContextManager[None],
) -> None:
    """Serve as ``serving`` does, call *announce* with the port, and return at SIGINT or SIGTERM.  Main thread only.

    *beside* is entered meanwhile, where signals are blocked, so that no thread of it gets one.

    Raises:
        OSError: it cannot listen there.
    """
    # Blocked in every thread, and taken from the kernel: a handler runs only when the main thread wakes, and a signal
    # just before it sleeps in a lock does not wake it.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDS)
    try:
        with serving(address, exporter, cards) as server, beside:
            announce(server.server_port)
            signal.sigwait(_ENDS)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
