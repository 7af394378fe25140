"""HTTP connections that are kept for the next request and can be aborted from another thread.

``http.client`` implements the protocol, but limits neither the length of an answer's head nor the length of the lines
between the chunks of a body.  This module limits both.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import http.client
import io
import re
import socket
import ssl
import threading
import time
import urllib.request
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from .errors import Code, Refused
from .hub_policy import Origin, is_loopback, origin_of

_HEAD_BYTES = 64 << 10
"""Ten times the longest that is known, interim answers (``100 Continue``) and the proxy's own included."""

_CHUNK_LINE_BYTES = 1 << 10
_CHUNK_LINE = re.compile(rb"([0-9a-fA-F]{1,12})[ \t]*(;.*)?\r?\n")


class _Lines:
    """Reads lines from *stream*: at most *size* bytes, in at most *seconds*; beyond that an ``HTTPException``."""

    def __init__(self, stream: io.BufferedReader, size: int, seconds: float | None) -> None:
        self._stream = stream
        self._left = size
        self._end = None if seconds is None else time.monotonic() + seconds

    def readline(self, _limit: int = -1) -> bytes:
        line = bytearray()
        while not line.endswith(b"\n"):
            found = self._stream.peek(1)  # at most one read from the socket, which has its own time limit
            part = found[: found.find(b"\n") + 1 or len(found)]
            if not part:
                break
            self._left -= len(self._stream.read(len(part)))
            line += part
            if self._left < 0:
                raise http.client.HTTPException("the head of its answer is too long")
            if self._end is not None and time.monotonic() > self._end:
                raise http.client.HTTPException("the head of its answer takes too long")
        return bytes(line)

    def flush(self) -> None:
        self._stream.flush()

    def close(self) -> None:
        self._stream.close()


class Response(http.client.HTTPResponse):
    """A response whose head is limited, and whose body is passed on as it arrives; *length* is what is left of it."""

    fp: io.BufferedReader

    def __init__(self, sock: socket.socket, *args: object, **options: object) -> None:
        super().__init__(sock, *args, **options)  # type: ignore[arg-type]
        self._stream = self.fp
        timeout = sock.gettimeout()
        self._seconds = None if timeout is None else 2 * timeout
        self._chunk: int | None = None  # bytes left of it; None before the first
        self.fp = _Lines(self._stream, _HEAD_BYTES, self._seconds)  # type: ignore[assignment]

    def begin(self) -> None:
        """Read the head."""
        super().begin()
        self.fp = self._stream

    def receive(self, buffer: memoryview) -> int:
        """Fill the front of *buffer* with what has arrived, after waiting for the first byte; 0 at the end of the body.

        Not by ``http.client``, which waits until the buffer is full and loses what arrived when it breaks.
        """
        if self.chunked:
            self._chunk = self._chunk or self._next_chunk()
            if not self._chunk:  # the end; a trailer may follow, and is not read: no other request uses the connection
                self.chunked, self.length, self.will_close = False, 0, True
                return 0
            count = self._stream.readinto1(buffer[: self._chunk])
            self._chunk -= count
            return count
        if self.length is None:  # up to the end of the connection
            return self._stream.readinto1(buffer)
        count = self._stream.readinto1(buffer[: self.length]) if self.length else 0
        self.length -= count
        return count

    def _next_chunk(self) -> int:
        """The size of the next chunk; 0 after the last one."""
        lines = _Lines(self._stream, _CHUNK_LINE_BYTES, self._seconds)
        is_apart = self._chunk is None or lines.readline() in (b"\r\n", b"\n")
        found = _CHUNK_LINE.fullmatch(lines.readline()) if is_apart else None
        if not found:
            raise http.client.HTTPException("a chunk of its answer has no size, or another one than stated")
        return int(found[1], 16)


def is_encoded(headers: http.client.HTTPMessage) -> bool:
    """Whether a body is compressed or the like: no request permits it, and what it inflates to has no limit."""
    codings = {headers.get(name, "").lower() for name in ("Content-Encoding", "Transfer-Encoding")}
    return bool(codings - {"", "identity", "chunked"})


class Connection:
    """A connection to *origin*, through the proxy that the environment names, if any.

    *timeout* is in seconds: so long without a byte, in either direction, is a ``TimeoutError``.
    """

    def __init__(self, origin: Origin, timeout: float) -> None:
        self.origin = origin
        self.fresh = True
        self._socket: socket.socket | None = None
        self._headers: dict[str, str] = {}
        self._target_prefix = ""
        proxy = _Proxy.of(origin)
        host, port = (proxy.origin if proxy else origin)[1:]
        if origin.scheme == "https":
            tls = http.client.HTTPSConnection(host, port, timeout=timeout, context=_tls())
            self._http: http.client.HTTPConnection = tls
        else:
            self._http = http.client.HTTPConnection(host, port, timeout=timeout)
        self._http.response_class = Response
        if proxy and origin.scheme == "https":
            self._http.set_tunnel(origin.host, origin.port, headers=proxy.headers)
        elif proxy:
            self._headers = proxy.headers
            self._target_prefix = f"http://{origin}"

    @property
    def is_open(self) -> bool:
        """Whether there was a connection, and with https a handshake."""
        return self._socket is not None

    def request(self, method: str, target: str, headers: dict[str, str]) -> Response:
        """Send one request; the head of the response is read, its body is not.

        A connection that does not work (TLS included) is an ``OSError`` or an ``http.client.HTTPException``.
        """
        if self._http.sock is None:
            self._http.connect()
            # http.client forgets the socket of a response that ends with the connection; abort() may need it.
            self._socket = self._http.sock
        self._http.request(method, self._target_prefix + target, headers={**headers, **self._headers})
        response = self._http.getresponse()
        assert isinstance(response, Response)
        return response

    def abort(self) -> None:
        """Fail the reads and writes under way, from any thread."""
        if (opened := self._opened) is not None:
            with contextlib.suppress(OSError):
                opened.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the connection, also where an answer that was given up still refers to its socket."""
        opened = self._opened
        self.abort()
        self._http.close()
        if opened is not None:
            with contextlib.suppress(OSError):  # it is closed
                socket.close(opened.detach())

    @property
    def _opened(self) -> socket.socket | None:
        return self._socket or self._http.sock  # the second while a proxy opens a tunnel


class Pool:
    """Connections in use and idle ones; safe to use from several threads."""

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self._lock = threading.Lock()
        self._idle: list[Connection] = []
        self._busy: set[Connection] = set()
        self._aborted = False

    def take(self, origin: Origin) -> Connection:
        """A connection to *origin* that no other thread has; after ``abort`` a ``ConnectionAbortedError``."""
        with self._lock:
            if self._aborted:
                raise ConnectionAbortedError("the download was stopped")
            connection = next((idle for idle in self._idle if idle.origin == origin), None)
            if connection is None:
                connection = Connection(origin, self._timeout)
            else:
                self._idle.remove(connection)
                connection.fresh = False
            self._busy.add(connection)
            return connection

    def give_back(self, connection: Connection, *, reusable: bool) -> None:
        """Return *connection*; it is closed unless it is *reusable*: nothing is left to read from it."""
        with self._lock:
            self._busy.discard(connection)
            if reusable and not self._aborted:
                self._idle.append(connection)
                return
        connection.close()

    def abort(self) -> None:
        """Abort the connections in use, close the idle ones, hand out no more."""
        with self._lock:
            self._aborted = True
            busy, idle, self._idle = list(self._busy), self._idle, []
        for connection in busy:
            connection.abort()
        for connection in idle:
            connection.close()


@functools.cache
def _tls() -> ssl.SSLContext:
    return ssl.create_default_context()


class _Proxy(NamedTuple):
    """A proxy, and the header fields that it gets."""

    origin: Origin
    headers: dict[str, str]

    @classmethod
    def of(cls, target: Origin) -> _Proxy | None:
        """The proxy that the environment names for *target*; ``Refused`` where it is unusable, without its address."""
        if is_loopback(target.host) or urllib.request.proxy_bypass(target.host):
            return None
        named = urllib.request.getproxies().get(target.scheme)
        if not named:
            return None
        url = named if "//" in named else f"http://{named}"
        origin = origin_of(url)
        if origin is None or origin.scheme != "http":
            raise Refused(
                f"{target.scheme}_proxy does not name a proxy that corral can use.",
                next_step=f"Set {target.scheme}_proxy to an address like http://proxy:3128, or unset it",
                code=Code.HUB_ADDRESS,
                fields={"variable": f"{target.scheme}_proxy"},
            )
        parts = urlsplit(url)
        login = f"{unquote(parts.username or '')}:{unquote(parts.password or '')}".encode()
        credentials = {"Proxy-Authorization": f"Basic {base64.b64encode(login).decode()}"} if parts.username else {}
        return cls(origin, credentials)
