"""Reads ranges of a file of a model hub, over HTTP.

The hub redirects ``{endpoint}/{repo}/resolve/{revision}/{path}`` to a signed address on another host.  Redirects are
followed here, not by a library: the token is sent to the hub alone, and not even there after a redirect through another
host.  The signed address serves every range, and is resolved again when it has expired.
"""

from __future__ import annotations

import contextlib
import email.utils
import http.client
import re
import ssl
import threading
import time
from dataclasses import dataclass
from urllib.parse import quote, urlsplit

from .connection import Connection, Pool, Response, is_encoded
from .errors import CannotRun, Code, CorralError, Failed, Refused
from .hub_policy import Address, HubPolicy, printable, shown

_REDIRECTS = (301, 302, 303, 307, 308)
_MAY_PASS = (408, 425, 429)
_EXPIRED = (*_REDIRECTS, 401, 403, 404, 410)
_MAX_REDIRECTS = 10
_MAX_FRESH_REFUSALS = 3
_REST_BYTES, _REST_SECONDS = 1 << 14, 1.0
_NUMBER = r"[0-9]{1,18}"  # int() takes other digits too, and refuses thousands of them with a ValueError
_CONTENT_RANGE = re.compile(rf"bytes[ =]({_NUMBER})-{_NUMBER}(?:/({_NUMBER}|\*))?", re.IGNORECASE)
_DATE = re.compile(r"[A-Z][a-z]{2}, [0-9]{2} [A-Z][a-z]{2} [0-9]{4} [0-9]{2}:[0-9]{2}:[0-9]{2} GMT")


@dataclass(eq=False)
class RetryableError(Exception):
    """A request failed in a way that may pass."""

    reason: str  # what happened, as a clause: "the connection was reset"
    wait: float | None = None  # seconds that the server asked for
    becomes: type[CorralError] = CannotRun  # what is raised, with *code*, when there is no other try
    code: Code = Code.HUB_UNREACHABLE


@dataclass(frozen=True)
class Hub(HubPolicy):
    """A hub, and the access to it."""

    timeout: float = 15.0  # seconds without a byte before a connection counts as stalled

    def file(self, repo: str, revision: str, path: str) -> HubFile:
        """The file *path* of *repo* at *revision*."""
        return HubFile(self, self.first(f"/{quote(repo)}/resolve/{quote(revision, safe='')}/{quote(path)}"))


class HubFile:
    """One file of a hub, read by ranges; safe to use from several threads."""

    def __init__(self, hub: Hub, address: Address) -> None:
        self.budgets = hub.budgets
        self._hub = hub
        self._first = address
        self._pool = Pool(hub.timeout)
        self._resolving = threading.Lock()
        self._address: Address | None = None
        self._address_worked = False
        self._fresh_refusals = 0

    def open(self, start: int, end: int) -> RangeResponse:
        """Request the bytes from *start* up to, without, *end*; a ``RetryableError`` where that may succeed later."""
        address = self._address
        if address is None:
            with self._resolving:  # one thread resolves the address, the others use it
                address = self._address
                if address is None:
                    return self._follow(start, end)
        return self._read(address, self._get(address, start, end), start, end)

    def abort(self) -> None:
        """Fail all requests under way with a ``RetryableError``, from any thread."""
        self._pool.abort()

    def _follow(self, start: int, end: int) -> RangeResponse:
        """Follow the hub's redirects, and keep the last address."""
        address = self._first
        for _ in range(_MAX_REDIRECTS):
            response = self._get(address, start, end)
            location = response.headers.get("Location")
            if response.status not in _REDIRECTS or not location:
                if address != self._first:
                    self._address, self._address_worked = address, False
                return self._read(address, response, start, end)
            response.close()
            address = self._hub.next(address, location)
        raise CannotRun(
            f"{shown(self._first.url)} redirects more than {_MAX_REDIRECTS} times.",
            code=Code.HUB_ANSWER,
            fields={"address": shown(self._first.url)},
        )

    def _read(self, address: Address, response: RangeResponse, start: int, end: int) -> RangeResponse:
        """Check the head of a response that is no redirect."""
        try:
            self._check(address, response, start, end)
        except BaseException:
            response.close()
            raise
        self._address_worked, self._fresh_refusals = True, 0
        return response

    def _check(self, address: Address, response: RangeResponse, start: int, end: int) -> None:
        status, what = response.status, shown(address.url)
        if status == 206:
            response.start, response.total = _range_of(response, start, end, what)
        elif status == 200:
            response.start, response.total = 0, response.left
        elif status == 416:
            raise RetryableError(f"{what} ends before byte {start}", becomes=Failed, code=Code.CONTENT_DIFFERS)
        elif status in _MAY_PASS or status >= 500:
            raise RetryableError(f"{what} answered {status}", wait=_retry_after(response.headers.get("Retry-After")))
        elif address == self._first or status not in _EXPIRED:
            raise self._refusal(address.url, response)
        else:  # a signed address: it has expired, or, after several new ones in a row, the refusal is final
            if self._address == address:
                self._address = None
                self._fresh_refusals = 0 if self._address_worked else self._fresh_refusals + 1
            if self._fresh_refusals >= _MAX_FRESH_REFUSALS:
                raise self._refusal(address.url, response)
            wait = None if self._fresh_refusals else 0
            raise RetryableError(f"{what} answered {status} to a signed address", wait=wait)
        if is_encoded(response.headers):
            raise RetryableError(
                f"{what} is compressed, though it was requested as it is", becomes=Failed, code=Code.HUB_ANSWER
            )

    def _get(self, address: Address, start: int, end: int) -> RangeResponse:
        origin, parts = address.origin, urlsplit(address.url)
        target = f"{parts.path or '/'}{f'?{parts.query}' if parts.query else ''}"
        headers = {
            "User-Agent": "corral-agent",
            "Accept-Encoding": "identity",
            "Range": f"bytes={start}-{end - 1}",
            **self._hub.authorization(address),
        }
        while True:
            try:
                connection = self._pool.take(origin)
            except ConnectionAbortedError as error:
                raise RetryableError(str(error)) from error
            try:
                return RangeResponse(self._pool, connection, connection.request("GET", target, headers))
            except ssl.SSLCertVerificationError as error:
                self._pool.give_back(connection, reusable=False)
                raise CannotRun(
                    f"The certificate of {origin} is not trusted: {printable(error.verify_message)}.",
                    next_step="If its authority is your own, name its certificate file: SSL_CERT_FILE=/path/to/ca.pem",
                    code=Code.HUB_ADDRESS,
                    fields={"address": str(origin)},
                ) from error
            except (OSError, http.client.HTTPException) as error:
                self._pool.give_back(connection, reusable=False)
                if connection.fresh:
                    raise RetryableError(f"{origin}: {reason_of(error)}") from error
                # The server closed an idle connection: a new one may work.

    def _refusal(self, url: str, response: RangeResponse) -> CorralError:
        """The error for a response that another request will not change."""
        status, code = response.status, response.headers.get("X-Error-Code", "")
        what = shown(url)
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
                "the token in HF_TOKEN is not accepted"
                if self._hub.token
                else "it needs a token, and HF_TOKEN has none"
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


class RangeResponse:
    """The response to one request: its head, and its body in order.

    ``start`` is the offset of the first byte in the file (0 when the server ignored the range), ``total`` the size of
    the whole file as the server states it; None where it does not.
    """

    def __init__(self, pool: Pool, connection: Connection, response: Response) -> None:
        self._pool = pool
        self._connection = connection
        self._response = response
        self.status = response.status
        self.headers = response.headers
        self.start = 0
        self.total: int | None = None

    @property
    def left(self) -> int | None:
        """Bytes of the body that were not read yet; None where the server does not state its length."""
        return self._response.length

    def readinto(self, buffer: memoryview) -> int:
        """Fill the front of *buffer* with what has arrived; how many bytes, 0 at the end of the body, early or not."""
        try:
            return self._response.receive(buffer)
        except (OSError, http.client.HTTPException) as error:
            raise RetryableError(f"{self._connection.origin}: {reason_of(error)}") from error

    def close(self) -> None:
        """Return the connection to the pool; a short rest is read first, so that it can be used again."""
        end = time.monotonic() + _REST_SECONDS
        with contextlib.suppress(RetryableError):
            while self.left and self.left <= _REST_BYTES and time.monotonic() < end:
                if not self.readinto(memoryview(bytearray(self.left))):
                    break
        # First: from then on another thread may use the connection, or close it.
        self._response.close()
        self._pool.give_back(self._connection, reusable=self.left == 0 and not self._response.will_close)


def _range_of(response: RangeResponse, start: int, end: int, what: str) -> tuple[int, int | None]:
    """Where the part in *response*, which must be that from *start*, begins, and the stated size of the whole file."""
    value = response.headers.get("Content-Range")
    if value is None and response.left == end - start:
        return start, None  # HTTP requires the field; the length fits
    found = _CONTENT_RANGE.fullmatch((value or "").strip())
    if not found or int(found[1]) != start:
        raise RetryableError(f"{what} sent another range than the requested one")
    return start, None if found[2] in (None, "*") else int(found[2])


def _retry_after(value: str | None) -> float | None:
    """The seconds above 0 in a ``Retry-After`` header, a number or a date; None where there are none."""
    value = (value or "").strip()
    wait = 0.0
    if re.fullmatch(_NUMBER, value):
        wait = float(value)
    elif _DATE.fullmatch(value):
        with contextlib.suppress(ValueError, OverflowError):
            wait = email.utils.parsedate_to_datetime(value).timestamp() - time.time()
    return wait if wait > 0 else None


def reason_of(error: Exception) -> str:
    """Why a connection failed, as a clause that can be printed."""
    if isinstance(error, TimeoutError):
        return "no byte arrived in time"
    if isinstance(error, ConnectionRefusedError):
        return "connection refused"
    if isinstance(error, ConnectionResetError):
        return "the connection was reset"
    if isinstance(error, OSError) and error.strerror:
        return printable(error.strerror)
    return printable(str(error)) or type(error).__name__
