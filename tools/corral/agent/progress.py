"""What the work reports while it runs: frozen events, and two ways to write them as lines of text.

The work calls ``report(event)`` from the thread that was asked to do it, never from two at a time.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Event:
    """Something worth telling; the subclasses are all there is."""


Report = Callable[[Event], None]


@dataclass(frozen=True)
class Planned(Event):
    """Sizes were summed, before the first byte moved."""

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
    """What is to be cached, *size* bytes, is more than *limit*, which *where* allows: it will not stay."""

    where: str
    limit: int
    size: int


@dataclass(frozen=True)
class Downloading(Event):
    """*done* bytes of *size* are on disk; *moved* of them came over the network in this run."""

    name: str
    sha256: str
    done: int
    size: int
    moved: int


@dataclass(frozen=True)
class Retrying(Event):
    """A request failed in a way that may pass; unless bytes come, trying ends in *patience_seconds* (None: unknown)."""

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
    """All bytes arrived and are wrong; the file is fetched once more, from nothing."""

    name: str
    expected: str
    actual: str


@dataclass(frozen=True)
class FoundDamaged(Event):
    """What lies in the store is not what the lock says; a good copy will take its place."""

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
    """A model's link points to the set that the lock names; *changed* says whether it did so before."""

    model: str
    set_name: str
    changed: bool


@dataclass(frozen=True)
class Finished(Event):
    """All is done.  ``bytes_total`` counts each file once, however many models share it."""

    models: int
    files: int
    bytes_total: int
    bytes_moved: int
    seconds: float

    @property
    def reused(self) -> float:
        """The part of all bytes that did not have to move, 0 to 1."""
        return max(0.0, 1 - self.bytes_moved / self.bytes_total) if self.bytes_total else 1.0


def as_json(event: Event) -> str:
    """*event* as one line of JSON: its kind under ``event``, then its fields."""
    kind = re.sub(r"(?<=[a-z])(?=[A-Z])", "-", type(event).__name__).lower()
    fields = asdict(event)
    if isinstance(event, Finished):
        fields["reused"] = round(event.reused, 4)
    return json.dumps({"event": kind, **fields}, ensure_ascii=False)


class Overall:
    """How much of everything that was missing has arrived, whatever arrived twice counted once."""

    def __init__(self) -> None:
        self.missing = 0
        self._kept: dict[str, int] = {}
        self._arrived: dict[str, int] = {}

    @property
    def arrived(self) -> int:
        """Bytes."""
        return sum(self._arrived.values())

    def note(self, event: Event) -> None:
        """Learn from *event*; to be called with all of them."""
        if isinstance(event, Planned):
            self.missing = event.bytes_missing
        elif isinstance(event, Downloading):
            kept = self._kept.setdefault(event.name, event.done - event.moved)
            self._arrived[event.name] = max(0, event.done - kept)


class Troubles:
    """Several connections meet the same trouble at once; for each try it is worth one sentence."""

    def __init__(self) -> None:
        self._told_until: dict[tuple[str, str], float] = {}

    def are_news(self, event: Retrying) -> bool:
        """Whether nothing like *event* was told since the last try."""
        now, trouble = time.monotonic(), (event.name, event.reason)
        if now < self._told_until.get(trouble, 0.0):
            return False
        self._told_until[trouble] = now + event.wait_seconds
        return True


class Lines:
    """Turns events into plain lines: one every few seconds while bytes move, one for each thing that happens.

    While nothing moves there is no progress to tell; what is in the way has a line of its own.  ``Finished`` is
    passed over: whoever asked for the work has it as the result.

    Args:
        write: gets each line, without its end.
        every: seconds between two lines about the same file's progress.
    """

    def __init__(self, write: Callable[[str], None], *, every: float = 5.0) -> None:
        self._write = write
        self._every = every
        self._overall = Overall()
        self._troubles = Troubles()
        self._name = ""
        self._since = 0.0
        self._from = 0
        self._told = 0
        self._next = 0.0

    def __call__(self, event: Event) -> None:
        self._overall.note(event)
        if isinstance(event, Hashing | Downloading | Warming):
            self._progress(event)
        elif isinstance(event, Retrying) and not self._troubles.are_news(event):
            return
        elif not isinstance(event, Finished):
            line = describe(event)
            if line:
                self._write(line)

    def _progress(self, event: Hashing | Downloading | Warming) -> None:
        now = time.monotonic()
        if event.name != self._name or event.done < self._from:
            self._name, self._since, self._next = event.name, now, now + self._every
            self._from = self._told = event.done
            if isinstance(event, Downloading):
                kept = event.done - event.moved
                found = f", {human(kept)} of it are here already" if kept > 0 else ""
                self._write(f"{event.name}: {human(event.size)} to fetch{found}")
            return
        if now < self._next or event.done >= event.size:
            return
        self._next = now + self._every
        if event.done == self._told:
            return
        self._told = event.done
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
    """One sentence for *event*; empty for what goes by too often to have one."""
    match event:
        case Planned():
            found = f"{count(event.files, 'file')}, {human(event.bytes_total)}"
            if not event.bytes_missing:
                return f"{found}; nothing to fetch"
            return f"{found}; {human(event.bytes_missing)} to fetch, {human(event.bytes_free)} free"
        case Retrying():
            patience = event.patience_seconds
            limit = "" if patience is None else f"; giving up in {duration(max(0.0, patience))} unless bytes come"
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
                f"the lock says {event.expected}; once more, from the start"
            )
        case FoundDamaged():
            return f"{event.name}: what lies in the store is damaged; a good copy takes its place"
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
