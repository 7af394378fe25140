"""HTTP connections that are kept for the next request and can be aborted from another thread."""

from __future__ import annotations

import base64
import contextlib
import functools
import http.client
import socket
import ssl
import threading
import urllib.request
from urllib.parse import SplitResult, unquote, urlsplit

from .hub_policy import Origin, is_loopback


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
        proxy = _proxy_for(origin)
        host, port = (proxy.hostname or "", proxy.port or 80) if proxy else (origin.host, origin.port)
        if origin.scheme == "https":
            tls = http.client.HTTPSConnection(host, port, timeout=timeout, context=_tls())
            self._http: http.client.HTTPConnection = tls
        else:
            self._http = http.client.HTTPConnection(host, port, timeout=timeout)
        if proxy:
            login = f"{unquote(proxy.username or '')}:{unquote(proxy.password or '')}".encode()
            credentials = {"Proxy-Authorization": f"Basic {base64.b64encode(login).decode()}"} if proxy.username else {}
            if origin.scheme == "https":
                self._http.set_tunnel(origin.host, origin.port, headers=credentials)
            else:
                self._headers = credentials
                self._target_prefix = f"http://{origin}"

    def get(self, target: str, headers: dict[str, str]) -> http.client.HTTPResponse:
        """Send one request; the head of the response is read, its body is not.

        A connection that does not work (TLS included) is an ``OSError`` or an ``http.client.HTTPException``.
        """
        if self._http.sock is None:
            self._http.connect()
            # http.client forgets the socket of a response that ends with the connection; abort() may need it.
            self._socket = self._http.sock
        self._http.request("GET", self._target_prefix + target, headers={**headers, **self._headers})
        return self._http.getresponse()

    def abort(self) -> None:
        """Fail the reads and writes under way, from any thread."""
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the connection."""
        self._http.close()


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


def _proxy_for(origin: Origin) -> SplitResult | None:
    if is_loopback(origin.host) or urllib.request.proxy_bypass(origin.host):
        return None
    proxy = urllib.request.getproxies().get(origin.scheme)
    return urlsplit(proxy if "//" in proxy else f"http://{proxy}") if proxy else None
