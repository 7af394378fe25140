"""Asking a model hub for ranges of a file, over HTTP.

The hub answers ``{endpoint}/{repo}/resolve/{revision}/{path}`` with a redirect to a signed address on another
host.  Redirects are followed by hand: the token goes to the hub alone, and not even there once another host has been
on the way; the signed address is asked for once and used for every range, and asked for again when it has expired.
"""

from __future__ import annotations

import contextlib
import email.utils
import http.client
import os
import re
import ssl
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from email.message import Message
from pathlib import Path
from typing import NamedTuple, NoReturn
from urllib.parse import quote, urljoin, urlsplit

from .connection import Connection, Origin, Pool, is_loopback
from .errors import CannotRun, Code, CorralError, Failed, Refused
from .source import Hiccup

DEFAULT_ENDPOINT = "https://huggingface.co"

_REDIRECTS = (301, 302, 303, 307, 308)
_MAY_PASS = (408, 425, 429)
_EXPIRED = (*_REDIRECTS, 401, 403, 404, 410)
_MAX_REDIRECTS = 10
_MAX_FRESH_REFUSALS = 3
_CONTENT_RANGE = re.compile(r"bytes[ =](\d+)-\d+(?:/(\d+|\*))?", re.IGNORECASE)
_SAFE_IN_ADDRESSES = "%/:?#[]@!$&'()*+,;=~"


@dataclass(frozen=True)
class Hub:
    """A hub, and how to be let in.

    Attributes:
        endpoint: its address, ``https://host`` with an optional path.
        token: sent to this address only; None for none.
        plain_http_hosts: hosts besides loopback that may be spoken to without TLS.
        timeout: seconds without a byte before a connection counts as stalled.
    """

    endpoint: str = DEFAULT_ENDPOINT
    token: str | None = field(default=None, repr=False)
    plain_http_hosts: frozenset[str] = frozenset()
    timeout: float = 15.0

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Hub:
        """The hub that ``HF_ENDPOINT``, ``HF_TOKEN``, ``HF_TOKEN_PATH`` and ``CORRAL_ALLOW_HTTP`` describe.

        Raises:
            Refused: one of them makes no sense.
        """
        allowed = environment.get("CORRAL_ALLOW_HTTP", "").split(",")
        hub = cls(
            endpoint=(environment.get("HF_ENDPOINT") or DEFAULT_ENDPOINT).rstrip("/"),
            token=_find_token(environment),
            plain_http_hosts=frozenset(host.strip().lower() for host in allowed if host.strip()),
        )
        hub.origin_of(hub.endpoint)
        return hub

    def origin_of(self, url: str) -> Origin:
        """Whom *url* leads to, once it is clear that one may speak to them.

        Raises:
            Refused: it is no web address, or plain HTTP to a host that was not allowed by name.
        """
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError:
            host, port = None, None
        if not host or parts.scheme not in ("http", "https"):
            raise Refused(
                f"{url!r} is not the address of a hub.",
                next_step=f"Set HF_ENDPOINT to an address like {DEFAULT_ENDPOINT}, or unset it",
                code=Code.HUB_ADDRESS,
                fields={"address": url},
            )
        if parts.scheme == "http" and not is_loopback(host) and host not in self.plain_http_hosts:
            raise Refused(
                f"http://{parts.netloc} is plain HTTP: anyone on the way can read and change what it carries.",
                next_step=f"Use https, or allow this one host by name: CORRAL_ALLOW_HTTP={host}",
                code=Code.HUB_ADDRESS,
                fields={"address": f"http://{parts.netloc}"},
            )
        return Origin(parts.scheme, host, port or {"http": 80, "https": 443}[parts.scheme])

    def file(self, repo: str, revision: str, path: str) -> HubFile:
        """The file *path* of *repo* at *revision*, ready to be read by ranges."""
        return HubFile(self, f"{self.endpoint}/{quote(repo)}/resolve/{quote(revision, safe='')}/{quote(path)}")


class _Address(NamedTuple):
    """Where a file is, and whether the way there led past the hub alone: then the token may go along."""

    url: str
    trusted: bool


class HubFile:
    """One file of a hub: a ``Source`` (see there)."""

    def __init__(self, hub: Hub, url: str) -> None:
        self._hub = hub
        self._url = url
        self._home = hub.origin_of(url)
        self._pool = Pool(hub.timeout)
        self._resolving = threading.Lock()
        self._address: _Address | None = None
        self._address_worked = False
        self._fresh_refusals = 0

    def open(self, start: int, end: int) -> Answer:
        """Ask for the bytes from *start* up to *end*; see ``Source.open``."""
        address = self._address
        if address is None:
            with self._resolving:  # one thread asks the hub, the others use what it learned
                address = self._address
                if address is None:
                    return self._follow(start, end)
        return self._read(address, self._get(address, start, end), start, end)

    def abort(self) -> None:
        """Break all requests under way, from any thread."""
        self._pool.abort()

    def _follow(self, start: int, end: int) -> Answer:
        """Ask the hub, go where it sends us, and remember the way."""
        address = _Address(self._url, trusted=True)
        for _ in range(_MAX_REDIRECTS):
            answer = self._get(address, start, end)
            location = answer.headers.get("Location")
            if answer.status not in _REDIRECTS or not location:
                if address.url != self._url:
                    self._address, self._address_worked = address, False
                return self._read(address, answer, start, end)
            answer.close()
            url = urljoin(address.url, _quoted(location))
            address = _Address(url, address.trusted and self._hub.origin_of(url) == self._home)
        raise CannotRun(
            f"{_shown(self._url)} redirects more than {_MAX_REDIRECTS} times.",
            code=Code.HUB_ANSWER,
            fields={"address": _shown(self._url)},
        )

    def _read(self, address: _Address, answer: Answer, start: int, end: int) -> Answer:
        """Check the head of an answer that is no redirect."""
        try:
            self._check(address, answer, start, end)
        except BaseException:
            answer.close()
            raise
        self._address_worked, self._fresh_refusals = True, 0
        return answer

    def _check(self, address: _Address, answer: Answer, start: int, end: int) -> None:
        status, what = answer.status, _shown(address.url)
        if status == 206:
            answer.start, answer.total = _range_of(answer, start, end, what)
        elif status == 200:
            answer.start, answer.total = 0, answer.length
        elif status == 416:
            raise Hiccup(f"{what} ends before byte {start}", becomes=Failed, code=Code.CONTENT_DIFFERS)
        elif status in _MAY_PASS or status >= 500:
            raise Hiccup(f"{what} answered {status}", wait=_retry_after(answer.headers.get("Retry-After")))
        elif address.url == self._url or status not in _EXPIRED:
            raise self._refusal(address.url, answer)
        else:
            self._expired(address, answer)
        if answer.headers.get("Content-Encoding", "identity").lower() != "identity":
            raise Hiccup(
                f"{what} comes compressed, though it was asked for as it is", becomes=Failed, code=Code.HUB_ANSWER
            )

    def _expired(self, address: _Address, answer: Answer) -> NoReturn:
        """The data host refuses a signed address; it is real when it refuses several new ones in a row."""
        if self._address == address:
            self._address = None
            self._fresh_refusals = 0 if self._address_worked else self._fresh_refusals + 1
        if self._fresh_refusals >= _MAX_FRESH_REFUSALS:
            raise self._refusal(address.url, answer)
        raise Hiccup(
            f"{_shown(address.url)} answered {answer.status} to a signed address",
            wait=None if self._fresh_refusals else 0,
        )

    def _get(self, address: _Address, start: int, end: int) -> Answer:
        origin = self._hub.origin_of(address.url)
        parts = urlsplit(address.url)
        target = f"{parts.path or '/'}{f'?{parts.query}' if parts.query else ''}"
        headers = {"User-Agent": "corral-agent", "Accept-Encoding": "identity", "Range": f"bytes={start}-{end - 1}"}
        if self._hub.token and address.trusted and origin == self._home:
            headers["Authorization"] = f"Bearer {self._hub.token}"
        while True:
            try:
                connection = self._pool.take(origin)
            except ConnectionAbortedError as error:
                raise Hiccup(str(error)) from error
            try:
                return Answer(self._pool, connection, connection.ask("GET", target, headers))
            except ssl.SSLCertVerificationError as error:
                self._pool.give_back(connection, reusable=False)
                raise CannotRun(
                    f"The certificate of {origin} is not trusted: {error.verify_message}.",
                    next_step="If its authority is your own, name its certificate file: SSL_CERT_FILE=/path/to/ca.pem",
                    code=Code.HUB_ADDRESS,
                    fields={"address": str(origin)},
                ) from error
            except (OSError, http.client.HTTPException) as error:
                self._pool.give_back(connection, reusable=False)
                if connection.fresh:
                    raise Hiccup(f"{origin}: {_reason(error)}") from error
                # The server closed a connection that had waited for us: that says nothing about a new one.

    def _refusal(self, url: str, answer: Answer) -> CorralError:
        """The error for an answer that will not change by asking again."""
        status, code = answer.status, answer.headers.get("X-Error-Code", "")
        what = _shown(url)
        if status == 404 or code == "RepoNotFound":
            private = ", or is private and needs a token" if code == "RepoNotFound" else ""
            return Refused(
                f"{what} does not exist{private} (the hub answered {status}).",
                next_step="If upstream moved it, resolve the model again with: corral lock --upgrade",
                code=Code.NOT_ON_HUB,
                fields={"address": what, "status": status},
            )
        if status in (401, 403):
            rule = (
                "the token in HF_TOKEN is not let in" if self._hub.token else "it needs a token, and HF_TOKEN has none"
            )
            return Refused(
                f"The hub answered {status} for {what}: {rule}.",
                next_step="If the model's page asks for it, accept its terms; then set HF_TOKEN to that user's token",
                code=Code.NOT_PERMITTED,
                fields={"address": what, "status": status},
            )
        return CannotRun(
            f"{what} answered {status}, which is no answer of a hub.",
            next_step="Check HF_ENDPOINT.",
            code=Code.HUB_ANSWER,
            fields={"address": what, "status": status},
        )


class Answer:
    """The answer to one request: a ``Body`` (see there) with its head."""

    def __init__(self, pool: Pool, connection: Connection, response: http.client.HTTPResponse) -> None:
        self._pool = pool
        self._connection = connection
        self._response = response
        self._left = response.length
        self.start = 0
        self.total: int | None = None

    @property
    def status(self) -> int:
        """The status code."""
        return self._response.status

    @property
    def headers(self) -> Message:
        """The header fields."""
        return self._response.headers

    @property
    def length(self) -> int | None:
        """How many bytes are still to come; None when the other side did not say."""
        return self._left

    def readinto(self, buffer: memoryview) -> int:
        """Fill the front of *buffer*; see ``Body.readinto``."""
        try:
            return self._readinto(buffer)
        except (OSError, http.client.HTTPException) as error:
            raise Hiccup(f"{self._connection.origin}: {_reason(error)}") from error

    def _readinto(self, buffer: memoryview) -> int:
        if self._left is None:  # chunked, or up to the end of the connection
            return self._response.readinto(buffer)
        if not self._left:
            return 0
        # Past http.client, which waits until the buffer is full and, if something breaks meanwhile, forgets the rest.
        count = self._response.fp.readinto1(buffer[: self._left])
        self._left -= count
        return count

    def close(self) -> None:
        """Give the connection back; a short rest is read first, so that it can be used again."""
        with contextlib.suppress(OSError, http.client.HTTPException):
            while self._left and self._left <= 1 << 14 and self._readinto(memoryview(bytearray(self._left))):
                pass
        self._pool.give_back(self._connection, reusable=self.length == 0 and not self._response.will_close)
        self._response.close()


def _range_of(answer: Answer, start: int, end: int, what: str) -> tuple[int, int | None]:
    """Where the part in *answer* begins, and the size of the whole if it is said.

    Raises:
        Hiccup: it is not the part from *start* to *end*.
    """
    said = answer.headers.get("Content-Range")
    if said is None and answer.length == end - start:
        return start, None  # against the rules, but its length says the same
    found = _CONTENT_RANGE.fullmatch((said or "").strip())
    if not found or int(found[1]) != start:
        raise Hiccup(f"{what} sent another range than the one it was asked for")
    return start, None if found[2] in (None, "*") else int(found[2])


def _quoted(location: str) -> str:
    """*location*, which http.client reads as Latin-1, with all escaped that may not stand in an address."""
    return quote(location.strip().encode("latin-1"), safe=_SAFE_IN_ADDRESSES)


def _find_token(environment: Mapping[str, str]) -> str | None:
    """``HF_TOKEN``, else the file that ``HF_TOKEN_PATH`` names, else what ``hf auth login`` stored."""
    token = environment.get("HF_TOKEN", "").strip()
    if not token:
        named = environment.get("HF_TOKEN_PATH")
        cache = environment.get("XDG_CACHE_HOME") or "~/.cache"
        home = environment.get("HF_HOME") or f"{cache}/huggingface"
        path = Path(named or f"{home}/token").expanduser()
        try:
            token = path.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            if named:
                raise Refused(
                    f"HF_TOKEN_PATH names {path}, which cannot be read: {error}.",
                    code=Code.TOKEN_UNUSABLE,
                    fields={"path": str(path)},
                ) from error
            return None
    if not (token.isascii() and token.isprintable()):
        raise Refused(
            "The hub token holds characters that no token has.",
            next_step="Set HF_TOKEN again",
            code=Code.TOKEN_UNUSABLE,
        )
    return token or None


def _retry_after(value: str | None) -> float | None:
    """Seconds that a ``Retry-After`` header asks for: a number, or a date."""
    if not value:
        return None
    if value.strip().isdigit():
        return float(value)
    with contextlib.suppress(ValueError):
        return max(0.0, email.utils.parsedate_to_datetime(value).timestamp() - time.time())
    return None


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "no byte came for too long"
    if isinstance(error, ConnectionRefusedError):
        return "connection refused"
    if isinstance(error, ConnectionResetError):
        return "the connection was reset"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__


def _shown(url: str) -> str:
    """*url* without its query, which may hold a signature."""
    return urlsplit(url)._replace(query="", fragment="").geturl()
