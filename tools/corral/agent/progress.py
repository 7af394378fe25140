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


@dataclass(frozen=True)
class Hashing(Event):
    """A file on disk is read to compute its sha256; *done* bytes of *size* so far."""

    name: str
    done: int
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
    """A request failed in a way that may pass."""

    name: str
    reason: str
    wait_seconds: float


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


class Lines:
    """Turns events into plain lines: one every few seconds while bytes move, one for each thing that happens.

    ``Finished`` is passed over: whoever asked for the work has it as the result.

    Args:
        write: gets each line, without its end.
        every: seconds between two lines about the same file's progress.
    """

    def __init__(self, write: Callable[[str], None], *, every: float = 5.0) -> None:
        self._write = write
        self._every = every
        self._name = ""
        self._since = 0.0
        self._from = 0
        self._next = 0.0

    def __call__(self, event: Event) -> None:
        if isinstance(event, Hashing | Downloading):
            self._progress(event)
        elif not isinstance(event, Finished):
            line = describe(event)
            if line:
                self._write(line)

    def _progress(self, event: Hashing | Downloading) -> None:
        now = time.monotonic()
        if event.name != self._name or event.done < self._from:
            self._name, self._since, self._from, self._next = event.name, now, event.done, now + self._every
            if isinstance(event, Downloading):
                kept = event.done - event.moved
                found = f", {human(kept)} of it are here already" if kept > 0 else ""
                self._write(f"{event.name}: {human(event.size)} to fetch{found}")
            return
        if now < self._next or event.done >= event.size:
            return
        self._next = now + self._every
        rate = (event.done - self._from) / (now - self._since)
        left = f", {duration((event.size - event.done) / rate)} left" if rate > 0 else ""
        verb = "checking" if isinstance(event, Hashing) else "fetching"
        self._write(f"{event.name}: {verb}, {100 * event.done // event.size} %, {human(rate)}/s{left}")


def describe(event: Event) -> str:
    """One sentence for *event*; empty for what goes by too often to have one."""
    match event:
        case Planned():
            return (
                f"{count(event.files, 'file')}, {human(event.bytes_total)}; "
                f"{human(event.bytes_missing) if event.bytes_missing else 'nothing'} to fetch"
            )
        case Retrying():
            return f"{event.name}: {event.reason}; again in {event.wait_seconds:.1f} s"
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
