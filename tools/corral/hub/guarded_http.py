"""The way of `corral lock` to a hub and to registries: bounded in size and time before anything else reads an answer.

The addresses and the token follow ``corral.agent.hub_policy``, the bytes go through the agent's own connections.  An
answer arrives whole and as it is: an encoding is refused, because what it inflates to is not known beforehand.
"""

from __future__ import annotations

import http.client
import ssl
import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from urllib.parse import urlsplit

from corral.agent.connection import Connection, Response, is_encoded
from corral.agent.hub_client import reason_of
from corral.agent.hub_policy import Address, HubPolicy, ThroughputMeter, printable, shown
from corral.errors import CannotRun, Refused

REDIRECTS = (301, 302, 303, 307, 308)

_MOST_REDIRECTS = 5
_TIMEOUT_SECONDS = 15.0
_READ_BYTES = 64 << 10


@dataclass(eq=False)
class NoAnswer(Exception):
    """A request failed on its way, which may pass; not even a connection was made when *unreachable*."""

    reason: str
    unreachable: bool


@dataclass(frozen=True)
class Answer:
    """An answer that arrived whole; *body* is empty unless the status is 200."""

    address: Address
    status: int
    headers: http.client.HTTPMessage
    body: bytes


class GuardedClient:
    """Sends the requests of one task, which share one budget of requests, of bytes and of time.

    Args:
        policy: where requests may go, and the budgets.
        elsewhere: other origins may answer too, without the token; else a redirect to one is refused.
        unusable: the error for a server that does not answer as it should, and
        next_step: what helps against that.
    """

    def __init__(self, policy: HubPolicy, *, elsewhere: bool, unusable: type[CannotRun], next_step: str) -> None:
        self.policy = policy
        self._elsewhere = elsewhere
        self._unusable = unusable
        self._next_step = next_step
        self._requests_left = policy.budgets.listing_requests
        self._bytes_left = policy.budgets.listing_bytes
        self._end = time.monotonic() + policy.budgets.listing_seconds

    def get(self, address: Address, headers: Mapping[str, str]) -> Answer:
        """The answer at *address*, or where its redirects lead.

        Raises:
            NoAnswer: none arrived.
            Refused: a redirect leads to where no request may go.
            CannotRun: of the class ``unusable``: the answer is none, or above a budget.
        """
        for _ in range(_MOST_REDIRECTS):
            answer = self.send("GET", address, headers)
            location = answer.headers.get("Location")
            if answer.status not in REDIRECTS or not location:
                return answer
            address = self.policy.next(address, location)
        raise self.unusable(address, f"redirects more than {_MOST_REDIRECTS} times")

    def send(self, method: str, address: Address, headers: Mapping[str, str]) -> Answer:
        """The answer to one request, a redirect too; the errors are those of ``get``."""
        if not (address.trusted or self._elsewhere):
            raise Refused(
                f"{self.policy.endpoint} leads to {shown(address.url)}: a hub is read at its own origin only.",
                next_step=f"Check HF_ENDPOINT; if you mean that hub: export HF_ENDPOINT=https://{address.origin}",
            )
        self._requests_left -= 1
        if self._requests_left < 0:
            raise self.unusable(address, f"requires more than {self.policy.budgets.listing_requests} requests")
        parts = urlsplit(address.url)
        target = f"{parts.path or '/'}{f'?{parts.query}' if parts.query else ''}"
        own = {"User-Agent": "corral", "Accept-Encoding": "identity", **self.policy.authorization(address)}
        connection = Connection(address.origin, min(_TIMEOUT_SECONDS, self._seconds_left(address)))
        try:
            with closing(connection.request(method, target, {**headers, **own})) as response:
                body = self._body(address, response) if response.status == 200 else b""
        except ssl.SSLCertVerificationError as error:
            reason = f"its certificate is not trusted: {printable(error.verify_message)} (see SSL_CERT_FILE)"
            raise NoAnswer(reason, unreachable=True) from None
        except (OSError, http.client.HTTPException) as error:
            raise NoAnswer(reason_of(error), unreachable=not connection.is_open) from None
        finally:
            connection.close()
        return Answer(address, response.status, response.headers, body)

    def unusable(self, address: Address, what: str) -> CannotRun:
        """The error for an answer at *address* that is none: *what* is a clause like ``answers HTTP 204``."""
        return self._unusable(f"{shown(address.url)} {what}.", next_step=self._next_step)

    def _body(self, address: Address, response: Response) -> bytes:
        if is_encoded(response.headers):
            raise self.unusable(address, "answers in an encoding that was not requested")
        body = bytearray()
        buffer = memoryview(bytearray(_READ_BYTES))
        meter = ThroughputMeter(self.policy.budgets.least_rate, self.policy.budgets.window_seconds)
        while count := response.receive(buffer):
            body += buffer[:count]
            meter.received(count)
            if meter.left <= 0:
                raise self.unusable(address, f"does not send {meter}")
            self._bytes_left -= count
            if self._bytes_left < 0:
                raise self.unusable(address, f"answers with more than {self.policy.budgets.listing_bytes >> 20} MiB")
            self._seconds_left(address)
        if response.chunked or response.length:
            raise http.client.HTTPException("its answer ended early")
        return bytes(body)

    def _seconds_left(self, address: Address) -> float:
        left = self._end - time.monotonic()
        if left <= 0:
            raise self.unusable(address, f"takes more than {self.policy.budgets.listing_seconds:g} s")
        return left
