"""A server of one file on loopback, as fast as Python can: ``sendfile`` and a thread for each connection.

The same server answers curl and the agent.  It speaks as much of a hub's protocol as the agent needs: the address
of the file redirects from 127.0.0.1 to localhost, ranges are served, ``/sent`` tells the bytes of the file that went
out so far.  It prints its port, then serves until stdin ends::

    python server.py FILE [--rate BYTES_PER_SECOND] [--tls CERTIFICATE KEY]
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import socket
import ssl
import sys
import threading
import time
from pathlib import Path

_RANGE = re.compile(rb"\r\nrange: *bytes=(\d+)-(\d*)", re.IGNORECASE)
_CHUNK_BYTES = 1 << 20


class Server:
    """Serves *path* at *rate* bytes a second and connection (0: without a limit), with TLS or without."""

    def __init__(self, path: Path, rate: float, tls: ssl.SSLContext | None) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = self.listener.getsockname()[1]
        self._file = os.open(path, os.O_RDONLY)
        self._size = path.stat().st_size
        self._rate = rate
        self._tls = tls
        self._lock = threading.Lock()
        self._sent = 0

    def serve(self) -> None:
        while True:
            connection, _ = self.listener.accept()
            threading.Thread(target=self._talk, args=(connection,), daemon=True).start()

    def _talk(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
            stack.enter_context(connection)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._tls:
                connection = stack.enter_context(self._tls.wrap_socket(connection, server_side=True))
            while head := _read_head(connection):
                self._answer(connection, head)

    def _answer(self, connection: socket.socket, head: bytes) -> None:
        target = head.split(b" ", 2)[1]
        if target == b"/sent":
            body = str(self._sent).encode()
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
        elif b"/resolve/" in target:
            scheme = b"https" if self._tls else b"http"
            place = b"%b://localhost:%d/data?Signature=benchmark" % (scheme, self.port)
            connection.sendall(b"HTTP/1.1 302 Found\r\nLocation: %b\r\nContent-Length: 0\r\n\r\n" % place)
        else:
            start, end, status, more = 0, self._size, b"200 OK", b""
            if asked := _RANGE.search(head):
                start, end = int(asked[1]), min(int(asked[2] or self._size) + 1, self._size)
                status, more = (
                    b"206 Partial Content",
                    b"Content-Range: bytes %d-%d/%d\r\n" % (start, end - 1, self._size),
                )
            connection.sendall(b"HTTP/1.1 %b\r\n%bContent-Length: %d\r\n\r\n" % (status, more, end - start))
            self._send(connection, start, end)

    def _send(self, connection: socket.socket, start: int, end: int) -> None:
        began, first = time.monotonic(), start
        chunk = max(1 << 16, min(_CHUNK_BYTES, int(self._rate / 100))) if self._rate else _CHUNK_BYTES
        while start < end:
            count = min(chunk, end - start)
            if self._tls:
                connection.sendall(os.pread(self._file, count, start))
            else:
                count = os.sendfile(connection.fileno(), self._file, start, count)
            start += count
            with self._lock:
                self._sent += count
            if self._rate:
                time.sleep(max(0.0, began + (start - first) / self._rate - time.monotonic()))


def _read_head(connection: socket.socket) -> bytes:
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        more = connection.recv(1 << 16)
        if not more:
            return b""
        head += more
    return head


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--rate", type=float, default=0.0)
    parser.add_argument("--tls", nargs=2, metavar=("CERTIFICATE", "KEY"))
    args = parser.parse_args()
    tls = None
    if args.tls:
        tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        tls.load_cert_chain(*args.tls)
    server = Server(args.file, args.rate, tls)
    threading.Thread(target=server.serve, daemon=True).start()
    print(server.port, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
