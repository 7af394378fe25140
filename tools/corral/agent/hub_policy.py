"""What corral accepts from a hub: which addresses it contacts, who gets the token, how much it waits for and prints.

Everything that reads a hub follows these rules: `corral lock`, and the agent.

* A request goes to an https address, or to a host that the operator allowed by name (``CORRAL_ALLOW_HTTP``), or, where
  the hub itself is on this machine, to loopback.  An address with a user name or password is refused.
* The token is for the origin of the hub's endpoint, as long as no other origin redirected there.  The one that
  `hf auth login` stored is for huggingface.co: another endpoint gets a token only where the operator names one.
* All answers about a repository have a size, a number and a time, and a file arrives at a least rate (``Budgets``).
* Text from elsewhere reaches a message through ``printable``, an address through ``shown``.
"""

from __future__ import annotations

import contextlib
import ipaddress
import math
import os
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Self
from urllib.parse import quote, urljoin, urlsplit

from .errors import CannotRun, Code, Refused

DEFAULT_ENDPOINT = "https://huggingface.co"
DEFAULT_PORTS = {"http": 80, "https": 443}

LEAST_RATE = "CORRAL_HUB_MIN_KIB_PER_SECOND"
"""The environment variable with the lowest permitted rate in KiB/s; 0: one byte in the window is enough."""

_ENDPOINT = re.compile(r"((?![?#])[!-~])*")  # ASCII without blanks and control characters, and no query
_HOST_NAME = re.compile(r"(?!-)[a-z0-9_-]{1,63}(\.[a-z0-9_-]{1,63})*\.?", re.ASCII)
_LONGEST_HOST_NAME = 254
_SAFE_IN_ADDRESSES = "%/:?#[]@!$&'()*+,;=~"


class Origin(NamedTuple):
    """The server that a connection, and a token, belongs to."""

    scheme: str
    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == DEFAULT_PORTS[self.scheme] else f"{host}:{self.port}"


class Address(NamedTuple):
    """Where a request may be sent; *url* is ASCII without blanks, control characters, user name and fragment."""

    url: str
    origin: Origin
    trusted: bool  # this is the hub's origin, and no other one redirected here


@dataclass(frozen=True)
class Budgets:
    """The most that is accepted from a hub; sizes in bytes, after inflation, times in seconds."""

    listing_bytes: int = 8 << 20  # of all answers about one repository: enough for 20,000 files
    listing_requests: int = 100
    listing_seconds: float = 120.0
    least_rate: float = 64 << 10  # bytes a second, of all connections of a transfer together
    window_seconds: float = 60.0  # what the rate is an average over

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Self:
        """The defaults, with the rate that ``CORRAL_HUB_MIN_KIB_PER_SECOND`` names; ``Refused`` where it names none."""
        text = environment.get(LEAST_RATE, "").strip()
        if not text:
            return cls()
        try:
            rate = float(text)
        except ValueError:
            rate = math.nan
        if not 0 <= rate < math.inf:
            raise Refused(
                f"{LEAST_RATE} is {printable(text)!r}; it must be a number of KiB/s, at least 0.",
                next_step=f"Correct it, or unset it: the default is {cls.least_rate / 1024:g}",
                code=Code.OTHER,
                fields={"variable": LEAST_RATE},
            )
        return cls(least_rate=rate * 1024)


class ThroughputMeter:
    """Whether bytes arrive at *least_rate* a second, on average over *window* seconds; for one thread at a time.

    A transfer may wait for *window* seconds.  Each byte adds the time that it takes at *least_rate*, up to the whole
    window again: a byte a second does not keep a transfer alive, and neither does a burst at its beginning.

    ::

        meter = ThroughputMeter(budgets.least_rate, budgets.window_seconds)
        while part := read():
            meter.received(len(part))
            if meter.left <= 0: ...
    """

    def __init__(self, least_rate: float, window: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._least_rate = least_rate
        self._window = window
        self._clock = clock
        self._left = window
        self._at = clock()  # when that was left; in the future during a pause

    @property
    def left(self) -> float:
        """Seconds that may pass without a byte; 0 or less when the hub was too slow."""
        return self._left - max(0.0, self._clock() - self._at)

    def received(self, count: int) -> None:
        """Note *count* bytes, just now."""
        if count:
            self._gain(count / self._least_rate if self._least_rate else self._window)

    def exclude(self, seconds: float) -> None:
        """Do not count the last *seconds*: something else than the hub was waited for."""
        self._gain(seconds)

    def pause(self, seconds: float) -> None:
        """Do not count the next *seconds*: the hub asked for them."""
        self._gain(0)
        self._at = max(self._at, self._clock() + seconds)

    def _gain(self, seconds: float) -> None:
        self._left = min(self._window, self.left + seconds)
        self._at = max(self._at, self._clock())

    def __str__(self) -> str:
        """The rule, as the end of a sentence: ``at least 64 KiB/s over 60 s``."""
        if not self._least_rate:
            return f"at least one byte in {self._window:g} s"
        return f"at least {self._least_rate / 1024:g} KiB/s over {self._window:g} s"


@dataclass(frozen=True)
class HubPolicy:
    """One hub: where requests for its files may go, and what they carry."""

    endpoint: str = DEFAULT_ENDPOINT  # https://host, with an optional path
    token: str | None = field(default=None, repr=False)  # sent to the endpoint's origin only
    plain_http_hosts: frozenset[str] = frozenset()  # besides loopback
    budgets: Budgets = field(default_factory=Budgets)

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Self:
        """The hub of ``HF_ENDPOINT``, ``HF_TOKEN``, ``HF_TOKEN_PATH``, ``CORRAL_ALLOW_HTTP`` and ``LEAST_RATE``.

        Raises:
            Refused: the endpoint is not permitted (``first``), or the token or the rate is not usable.
        """
        allowed = environment.get("CORRAL_ALLOW_HTTP", "").split(",")
        endpoint = (environment.get("HF_ENDPOINT") or DEFAULT_ENDPOINT).rstrip("/")
        hub = cls(
            endpoint=endpoint,
            token=_find_token(environment, logged_in=origin_of(endpoint) == origin_of(DEFAULT_ENDPOINT)),
            plain_http_hosts=frozenset(host.strip().lower() for host in allowed if host.strip()),
            budgets=Budgets.from_environment(environment),
        )
        hub.first()
        return hub

    def first(self, path: str = "") -> Address:
        """Where a request for *path* (quoted, it follows the endpoint) is sent first.

        Raises:
            Refused: the endpoint is no address, holds a user name, or is plain HTTP to a host not allowed by name.
        """
        url = self.endpoint + path
        origin = origin_of(url)
        if origin is None or not _ENDPOINT.fullmatch(self.endpoint):
            raise Refused(
                f"{shown(url)!r} is not the address of a hub.",
                next_step=f"Set HF_ENDPOINT to an address like {DEFAULT_ENDPOINT}, or unset it",
                code=Code.HUB_ADDRESS,
                fields={"address": shown(url)},
            )
        if "@" in urlsplit(url).netloc:
            raise Refused(
                f"HF_ENDPOINT holds a user name or a password for {shown(url)}.",
                next_step="Remove it from the address; a hub is accessed with a token: HF_TOKEN",
                code=Code.HUB_ADDRESS,
                fields={"address": shown(url)},
            )
        self._require_permitted(origin, home=origin)
        return Address(url, origin, trusted=True)

    def next(self, address: Address, location: str) -> Address:
        """Where a redirect from *address*, or a link in its answer, leads.

        *location* is as ``http.client`` reads it, in Latin-1; it may be relative.

        Raises:
            Refused: it is plain HTTP to a host that is not allowed by name.
            CannotRun: it is no address that a hub redirects to.
        """
        try:
            url = urljoin(address.url, quote(location.strip().encode("latin-1"), safe=_SAFE_IN_ADDRESSES))
            origin = origin_of(url)
        except ValueError:
            url, origin = location, None
        if origin is None or "@" in urlsplit(url).netloc:
            what = "an address with a user name" if origin else f"{shown(url)!r}, which is no address of a file"
            raise CannotRun(
                f"{shown(address.url)} redirects to {what}.",
                next_step="Check HF_ENDPOINT.",
                code=Code.HUB_ANSWER,
                fields={"address": shown(address.url)},
            )
        home = self.first().origin
        self._require_permitted(origin, home=home)
        return Address(url.partition("#")[0], origin, trusted=address.trusted and origin == home)

    def authorization(self, address: Address) -> dict[str, str]:
        """The header fields that prove access; none where the token must not be sent."""
        return {"Authorization": f"Bearer {self.token}"} if self.token and address.trusted else {}

    def _require_permitted(self, origin: Origin, *, home: Origin) -> None:
        """Refuse plain HTTP, except to the hosts allowed by name, and from loopback to loopback.

        No hub elsewhere may redirect to loopback: other programs of this machine are there, and a GET may change them.
        """
        on_loopback = is_loopback(origin.host) and is_loopback(home.host)
        if origin.scheme == "http" and not on_loopback and origin.host not in self.plain_http_hosts:
            raise Refused(
                f"http://{origin} is plain HTTP: anyone on the way can read and change what it carries.",
                next_step=f"Use https, or allow this one host by name: CORRAL_ALLOW_HTTP={origin.host}",
                code=Code.HUB_ADDRESS,
                fields={"address": f"http://{origin}"},
            )


def is_loopback(host: str) -> bool:
    """Whether *host*, a name or an address, is this machine."""
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost"


def origin_of(url: str) -> Origin | None:
    """The origin of an http or https address; None for anything else."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        return None
    if parts.scheme not in DEFAULT_PORTS or port == 0 or not _is_host(host):
        return None
    return Origin(parts.scheme, host, port or DEFAULT_PORTS[parts.scheme])


def printable(text: str, longest: int = 300) -> str:
    r"""*text* from elsewhere for a message: cut after *longest* characters, no line end, no terminal or bidi control.

    What Unicode calls not printable is escaped: ``\n``, ``\x1b``, ``\u202e``.
    """
    cut = f"{text[:longest]}…" if len(text) > longest else text
    if cut.isprintable():
        return cut
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in cut)


def shown(url: str) -> str:
    """*url* for a message: no user name, no password, no query (which may hold a signature), and ``printable``."""
    origin = origin_of(url)
    if origin is not None:
        return printable(f"{origin.scheme}://{origin}{urlsplit(url).path}")
    if "@" in url:  # not to be parsed, and something before an @ may be a password
        return "…"
    return printable(re.split(r"[?#]", url, maxsplit=1)[0])


def _is_host(host: str) -> bool:
    """Whether *host* is a name that can be looked up, or an address; names of other scripts are in their ASCII form."""
    if ":" not in host:
        return len(host) <= _LONGEST_HOST_NAME and _HOST_NAME.fullmatch(host) is not None
    try:
        return not ipaddress.IPv6Address(host).scope_id
    except ValueError:
        return False


def _find_token(environment: Mapping[str, str], *, logged_in: bool) -> str | None:
    """``HF_TOKEN``, else the file that ``HF_TOKEN_PATH`` names; else, if *logged_in*, what ``hf auth login`` stored."""
    token = environment.get("HF_TOKEN", "").strip()
    named = environment.get("HF_TOKEN_PATH")
    if not token and (named or logged_in):
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
    if not (token.isascii() and token.isprintable()):
        raise Refused(
            "The hub token holds characters that no token has.",
            next_step="Set HF_TOKEN again",
            code=Code.TOKEN_UNUSABLE,
        )
    return token or None
