"""A server of the API whose answers a test writes: for what the real ones do not get wrong when a test wants it."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = tuple[int, Any] | None
"""The status, and JSON, a stream (a list of texts), or bytes as they are; None: the connection is closed."""


@contextlib.contextmanager
def scripted(answer: Callable[[str, Any], Answer]) -> Iterator[tuple[str, list[dict[str, str]]]]:
    """The address of a server that gives the *answer* to a path and a body, and the headers of each request."""
    received: list[dict[str, str]] = []

    class Exchange(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            received.append({name.lower(): value for name, value in self.headers.items()})
            size = int(self.headers.get("Content-Length", 0))
            reply = answer(self.path, json.loads(self.rfile.read(size)) if size else None)
            if reply is None:
                return
            status, body = reply
            is_stream = isinstance(body, list) and all(isinstance(one, str) for one in body)
            self.send_response(status)
            self.send_header("Content-Type", "text/event-stream" if is_stream else "application/json")
            self.end_headers()
            if is_stream:
                body = "".join(body).encode()
            with contextlib.suppress(OSError):  # the client may have gone
                self.wfile.write(body if isinstance(body, bytes) else json.dumps(body).encode())

        do_POST = do_PATCH = do_GET  # noqa: N815 - the names are http.server's

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            """Write no log."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Exchange)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", received
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
