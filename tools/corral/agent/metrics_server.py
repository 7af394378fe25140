"""Serves the metrics of a store over HTTP, without a password: no answer has a secret.

/metrics      for Prometheus
/health       200 while it runs, whatever the store does
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from .store_metrics import CONTENT_TYPE

_CLIENT_S = 10.0  # for a request to arrive, and for its answer to be taken
_AT_ONCE = 8


class Server(ThreadingHTTPServer):
    """An HTTP server of what *metrics* returns; a client more than ``_AT_ONCE`` is not accepted."""

    daemon_threads = True

    def __init__(self, address: tuple[str, int], metrics: Callable[[], str]) -> None:
        self.metrics = metrics
        self._free = threading.BoundedSemaphore(_AT_ONCE)
        super().__init__(address, _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._free.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        # The handler's own limit is for each piece of a request: a client that sends one byte at a time would stay.
        limit = threading.Timer(_CLIENT_S, _end, (request,))
        limit.daemon = True
        limit.start()
        try:
            super().process_request_thread(request, client_address)
        finally:
            limit.cancel()
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that is gone is no error of this server."""


def _end(request: socket.socket) -> None:
    with suppress(OSError):  # it has ended by itself
        request.shutdown(socket.SHUT_RDWR)


class _Handler(BaseHTTPRequestHandler):
    server: Server
    timeout = _CLIENT_S
    server_version, sys_version = "corral", ""

    def do_GET(self) -> None:
        if self.path == "/health":
            self._answer(HTTPStatus.OK, "text/plain", "OK\n")
        elif self.path == "/metrics":
            self._answer(HTTPStatus.OK, CONTENT_TYPE, self.server.metrics())
        else:
            self._answer(HTTPStatus.NOT_FOUND, "text/plain", "There is /metrics and /health.\n")

    def _answer(self, status: HTTPStatus, kind: str, text: str) -> None:
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Scrapes are not worth a line."""


@contextmanager
def serving(address: tuple[str, int], metrics: Callable[[], str]) -> Iterator[Server]:
    """A server at *address* (port 0: any) of what *metrics* returns, while the block lasts.

    Raises:
        OSError: it cannot listen there.
    """
    server = Server(address, metrics)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
