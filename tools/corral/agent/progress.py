"""Events that work reports while it runs, and two ways to write them as lines of text.

``report(event)`` is called from the thread that started the work, never from two at a time.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Event:
    """The base of all events."""


Report = Callable[[Event], None]


@dataclass(frozen=True)
class Planned(Event):
    """The sizes were summed, before the first byte was requested."""

    files: int
    bytes_total: int
    bytes_missing: int
    bytes_free: int


@dataclass(frozen=True)
class Hashing(Event):
    """A file on disk is read to compute its sha256; *done* bytes of *size* so far."""

    name: str
    done: int
    size: int


@dataclass(frozen=True)
class Warming(Event):
    """A file is read into the page cache; *done* bytes of *size* so far."""

    name: str
    done: int
    size: int


@dataclass(frozen=True)
class Cramped(Event):
    """The *size* bytes to cache are more than *limit*, which *where* allows: they will not stay."""

    where: str
    limit: int
    size: int


@dataclass(frozen=True)
class Downloading(Event):
    """*done* bytes of *size* are on disk; *moved* of them were received in this run."""

    name: str
    sha256: str
    done: int
    size: int
    moved: int


@dataclass(frozen=True)
class Retrying(Event):
    """A request failed in a way that may pass; without new bytes the last try is in *patience_seconds*, if known."""

    name: str
    reason: str
    wait_seconds: float
    patience_seconds: float | None = None


@dataclass(frozen=True)
class Waiting(Event):
    """Another process is downloading the same file."""

    name: str
    holder: str


@dataclass(frozen=True)
class StartedOver(Event):
    """All bytes arrived and are wrong; the file is fetched once more, from the start."""

    name: str
    expected: str
    actual: str


@dataclass(frozen=True)
class FoundDamaged(Event):
    """The file in the store does not match the lock; a good copy will replace it."""

    name: str


@dataclass(frozen=True)
class Published(Event):
    """A file is verified, durable and in its place."""

    name: str
    sha256: str
    size: int
    moved: int
    seconds: float


@dataclass(frozen=True)
class Linked(Event):
    """A model's link points to the set that the lock names; *changed* when it pointed elsewhere before."""

    model: str
    set_name: str
    changed: bool


@dataclass(frozen=True)
class Finished(Event):
    """The end of a fetch.  ``bytes_total`` counts each file once, however many models share it."""

    models: int
    files: int
    bytes_total: int
    bytes_moved: int
    seconds: float

    @property
    def reused(self) -> float:
        """The part of all bytes that was not received again, 0 to 1."""
        return max(0.0, 1 - self.bytes_moved / self.bytes_total) if self.bytes_total else 1.0


def as_json(event: Event) -> str:
    """*event* as one line of JSON: its kind under ``event``, then its fields."""
    kind = re.sub(r"(?<=[a-z])(?=[A-Z])", "-", type(event).__name__).lower()
    fields = asdict(event)
    if isinstance(event, Finished):
        fields["reused"] = round(event.reused, 4)
    return json.dumps({"event": kind, **fields}, ensure_ascii=False)


_LINE_SECONDS = 5.0  # between two lines about a file's progress


class Overall:
    """How many of all missing bytes have arrived; bytes that arrived twice count once."""

    def __init__(self) -> None:
        self.missing = 0
        self._kept: dict[str, int] = {}
        self._arrived: dict[str, int] = {}

    @property
    def arrived(self) -> int:
        """Bytes."""
        return sum(self._arrived.values())

    def update(self, event: Event) -> None:
        """Count *event*; to be called with every event."""
        if isinstance(event, Planned):
            self.missing = event.bytes_missing
        elif isinstance(event, Downloading):
            kept = self._kept.setdefault(event.name, event.done - event.moved)
            self._arrived[event.name] = max(0, event.done - kept)


class RetryFilter:
    """Reduces the retries of several connections for the same reason to one for each pause."""

    def __init__(self) -> None:
        self._silent_until: dict[tuple[str, str], float] = {}

    def passes(self, event: Retrying) -> bool:
        """Whether *event* is the first with its reason since the last pause ended."""
        now, key = time.monotonic(), (event.name, event.reason)
        if now < self._silent_until.get(key, 0.0):
            return False
        self._silent_until[key] = now + event.wait_seconds
        return True


class Lines:
    """Writes events as plain lines: one every few seconds while bytes move, and one for each event of another kind.

    *write* gets each line, without its end.  ``Finished`` has no line: it is the result of the work.
    """

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write
        self._overall = Overall()
        self._retries = RetryFilter()
        self._name = ""
        self._since = 0.0
        self._from = 0
        self._reported = 0
        self._next = 0.0

    def __call__(self, event: Event) -> None:
        self._overall.update(event)
        if isinstance(event, Hashing | Downloading | Warming):
            self._progress(event)
        elif isinstance(event, Finished) or (isinstance(event, Retrying) and not self._retries.passes(event)):
            return
        elif line := describe(event):
            self._write(line)

    def _progress(self, event: Hashing | Downloading | Warming) -> None:
        now = time.monotonic()
        if event.name != self._name or event.done < self._from:
            self._name, self._since, self._next = event.name, now, now + _LINE_SECONDS
            self._from = self._reported = event.done
            if isinstance(event, Downloading):
                kept = event.done - event.moved
                found = f", {human(kept)} of it are here already" if kept > 0 else ""
                self._write(f"{event.name}: {human(event.size)} to fetch{found}")
            return
        if now < self._next or event.done >= event.size:
            return
        self._next = now + _LINE_SECONDS
        if event.done == self._reported:
            return
        self._reported = event.done
        rate = (event.done - self._from) / (now - self._since)
        verb = {Hashing: "checking", Downloading: "fetching", Warming: "reading"}[type(event)]
        line = f"{event.name}: {verb}, {100 * event.done // event.size} %, {human(rate)}/s"
        line += f", {duration((event.size - event.done) / rate)} left"
        overall = self._overall
        if isinstance(event, Downloading) and overall.missing - overall.arrived > event.size - event.done:
            left = (overall.missing - overall.arrived) / rate
            line += f"; of all, {100 * overall.arrived // overall.missing} %, {duration(left)} left"
        self._write(line)


def describe(event: Event) -> str:
    """One sentence for *event*; empty for progress, which is too frequent."""
    match event:
        case Planned():
            found = f"{count(event.files, 'file')}, {human(event.bytes_total)}"
            if not event.bytes_missing:
                return f"{found}; nothing to fetch"
            return f"{found}; {human(event.bytes_missing)} to fetch, {human(event.bytes_free)} free"
        case Retrying():
            left = event.patience_seconds
            limit = "" if left is None else f"; giving up in {duration(max(0.0, left))} unless bytes arrive"
            return f"{event.name}: {event.reason}; again in {event.wait_seconds:.1f} s{limit}"
        case Cramped():
            return (
                f"warning: {human(event.size)} are to be cached and {event.where} allows {human(event.limit)}: "
                "the beginning will be gone when the end is read"
            )
        case Waiting():
            return f"{event.name}: waiting for {event.holder}, which is fetching it"
        case StartedOver():
            return (
                f"{event.name}: what arrived has sha256 {event.actual}, "
                f"{event.expected} in the lock; once more, from the start"
            )
        case FoundDamaged():
            return f"{event.name}: the file in the store is damaged; a good copy replaces it"
        case Published():
            return f"{event.name}: verified, {human(event.moved)} in {duration(event.seconds)}"
        case Linked():
            return f"{event.model}: {'now' if event.changed else 'still'} {event.set_name}"
        case Finished():
            return (
                f"{count(event.models, 'model')}, {count(event.files, 'file')}: {human(event.bytes_moved)} moved in "
                f"{duration(event.seconds)}, {100 * event.reused:.0f} % reused of {human(event.bytes_total)}"
            )
    return ""


def count(number: int, noun: str) -> str:
    """``1 file``, ``2 files``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def human(size: float) -> str:
    """*size* in bytes with a unit that reads well: ``4.7 GB`` (powers of 1000, as the hub and disks count)."""
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"


def duration(seconds: float) -> str:
    """*seconds* as ``0.4 s``, ``12 s``, ``3 min 20 s`` or ``2 h 05 min``."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def seconds_of(text: str) -> float:
    """The seconds in a duration such as ``90s``, ``15m`` or ``7d``; any other text is an ``ArgumentTypeError``."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?) ?([smhd]?)", text.strip())
    if not found:
        raise argparse.ArgumentTypeError(f"{text!r} is no duration such as 90s, 15m, 24h or 7d")
    return float(found[1]) * {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}[found[2]]


def positive_seconds(text: str) -> float:
    """The number above 0 in *text*; any other text is an ``ArgumentTypeError``."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (0 < value < math.inf):
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds above 0")
    return value
