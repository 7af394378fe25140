"""The one seam to HTTP: an OpenAI-compatible endpoint and its replies, byte for byte."""

from __future__ import annotations

import re
import ssl
from dataclasses import dataclass, field
from typing import Any, Self
from urllib.parse import urlsplit

import httpx2

from corral.errors import Refused

MAX_REPLY_BYTES = 8 * 2**20
"""An answer to one of our questions has a few hundred kilobytes at most, chunk envelopes included."""

CONNECT_LIMIT_S = 10.0
LOOPBACK = {"127.0.0.1", "::1", "localhost"}
_END_OF_STREAM = re.compile(rb"(?:^|[\r\n])data: ?\[DONE\][\r\n]")


@dataclass(frozen=True)
class Reply:
    """An answer: the status, two headers, and the body as it was received."""

    status: int
    content_type: str
    body: bytes
    location: str = ""


@dataclass
class Arriving:
    """The part of an answer that has arrived; it outlives a request that ran into its time limit.

    Attributes:
        body: the bytes.
        pieces: how many pieces have arrived, the head of each answer included; it only grows.
    """

    body: bytearray = field(default_factory=bytearray)
    pieces: int = 0


class TransportError(Exception):
    """There is no complete HTTP answer: no server listens, the connection was cut, or the answer has no end."""


class UnreachableError(TransportError):
    """No connection could be made."""


class CutOffError(TransportError):
    """The connection was closed before the answer was complete."""


class TooLargeError(TransportError):
    """The answer is larger than ``MAX_REPLY_BYTES``."""


def root_of(url: str, option: str = "--endpoint") -> str:
    """The address of the server itself: *url*, the value of *option*, without ``/v1`` and a slash at the end.

    Raises:
        Refused: *url* is no http(s) address, or carries a password, a query or a fragment.
    """
    example = f"Write it like: {option} http://127.0.0.1:8080"
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
        httpx2.URL(url)
    except (ValueError, httpx2.InvalidURL) as error:
        raise Refused(f"{url!r} is no endpoint: {error}.", next_step=example) from None
    if parts.scheme not in {"http", "https"} or not host:
        why = "it must begin with http:// or https:// and name a host"
        raise Refused(f"{url!r} is no endpoint: {why}.", next_step=example)
    if parts.username is not None or parts.password is not None:
        raise Refused(
            f"The endpoint on {host} carries a user or password, which would end up in reports.",
            next_step="Take it out of the address, and set CORRAL_API_KEY in the environment",
        )
    if parts.query or parts.fragment:
        raise Refused(f"{url!r} is no endpoint: it has a query or a fragment.", next_step=example)
    path = parts.path.rstrip("/").removesuffix("/v1").rstrip("/")
    return f"{parts.scheme}://{parts.netloc}{path}"


def require_sendable(api_key: str) -> None:
    """Raise ``Refused`` when *api_key* cannot be sent in a header."""
    if not (api_key.isascii() and api_key.isprintable()):
        raise Refused(
            "CORRAL_API_KEY holds a character that no HTTP header can carry (a newline, an accent).",
            next_step="export CORRAL_API_KEY=<the key, and nothing else>",
        )


class Endpoint:
    """An endpoint, with a fresh connection for each request.

    Fresh, because llama-server promises to keep a connection after a streamed answer and then closes it.  Requests
    have no time limit of their own, except for the connection: the caller sets one with ``asyncio.timeout``.

    Args:
        root: the address, as ``root_of`` gives it.
        api_key: sent as a bearer token; empty for none.
        trust: what its certificate must belong to; None: any authority of this machine.

    Raises:
        Refused: the key cannot be sent in a header.
    """

    def __init__(self, root: str, *, api_key: str = "", trust: ssl.SSLContext | None = None) -> None:
        self.root, self.trust = root, trust
        require_sendable(api_key)
        headers = {"Accept": "application/json, text/event-stream", "Accept-Encoding": "identity"}
        if api_key:
            headers["Authorization"] = f"Bearer {api_key}"
        self._client = httpx2.AsyncClient(
            headers=headers,
            timeout=httpx2.Timeout(None, connect=CONNECT_LIMIT_S),
            limits=httpx2.Limits(max_keepalive_connections=0),
            # The machine's certificates take 30 ms to load, and plain HTTP needs none.
            verify=trust or root.startswith("https:"),
            # A proxy set for the internet must not swallow a request to this machine.
            trust_env=urlsplit(root).hostname not in LOOPBACK,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.aclose()

    async def request(self, path: str, body: dict[str, Any] | None = None, arriving: Arriving | None = None) -> Reply:
        """POST *body*, or GET without one; a streamed answer is read up to its ``[DONE]``, or to its end.

        Args:
            path: below the root.
            body: sent as JSON.
            arriving: filled while the answer arrives.

        Raises:
            TransportError: there is no complete answer.
        """
        arriving, method = arriving or Arriving(), "GET" if body is None else "POST"
        received = arriving.body
        try:
            async with self._client.stream(method, self.root + path, json=body) as response:
                arriving.pieces += 1
                async for piece in response.aiter_raw():
                    arriving.pieces += 1
                    searched = max(0, len(received) - len(b"\ndata: [DONE]\n"))
                    received += piece
                    if len(received) > MAX_REPLY_BYTES:
                        raise TooLargeError(f"the answer is larger than {MAX_REPLY_BYTES // 2**20} MiB")
                    if _END_OF_STREAM.search(received, searched):
                        break
                content_type = response.headers.get("content-type", "").partition(";")[0].strip().lower()
                return Reply(response.status_code, content_type, bytes(received), response.headers.get("location", ""))
        except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.ProxyError) as error:
            raise UnreachableError(str(error) or f"no connection within {CONNECT_LIMIT_S:g} s") from error
        except httpx2.HTTPError as error:
            raise CutOffError(str(error) or type(error).__name__) from error
