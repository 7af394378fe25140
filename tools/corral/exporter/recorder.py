"""The flight recorder: what was held, loaded and refused, a line of JSON every 15 s, in segments of bounded size.

A line repeats nothing: the head of a segment has the promises, a sample what the driver and llama-swap report, and a
line that has only the time stands for a sample that is the same as the one before.  What follows from these (who was
over its promise, what lacked room) is computed when they are read, by the rules of ``account``::

    {"version": 1, "at": 1.5, "is_start": true, "seal": "…", "promises": {"<card>": …}}
    {"version": 1, "at": 1.6, "reading": {…}, "models": {"<id>": "ready"}, "failures": […], "changes": […],
     "alerts": […], "yields": […]}
    {"version": 1, "at": 16.6}

``models`` is null while llama-swap does not answer, and "not-read" where none is read; ``changes`` (loads and unloads
since the sample before) is null while its events are not followed, ``alerts`` while no Alertmanager answers.  A line is
one write; one that was torn is no JSON, and the next exporter begins on a line of its own.
"""

from __future__ import annotations

import errno
import fcntl
import io
import json
import os
import shlex
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO, Literal

from .account import FOREIGN, MOST_FOREIGN, OTHER, CardPromise
from .alertmanager import Alertmanager
from .errors import AlertsUnknown, LlamaSwapUnknown
from .holders import CardReading, Holder, Reading
from .llama_swap import LISTED, Change, LlamaSwap, News, Request
from .rounds import repeating
from .yields import Yielded

EVERY_S = 15.0
"""Seconds between two samples."""
SEGMENT_BYTES = 1 << 20
MOST_BYTES = 64 << 20
"""All segments together; the oldest is removed first.

Seven days are 40,320 samples: they stay where each differs from the one before and has no more than 1,600 bytes, which
is a card with a dozen holders.
"""
NotRead = Literal["not-read"]
NOT_READ: NotRead = "not-read"
"""The states of models, for an exporter that reads no llama-swap."""
_SUFFIX = ".jsonl"
LATEST = 253402300799
"""No time of a record is later: the end of the year 9999."""
DAMAGED = (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError)
"""What a line raises that is none of the recorder's."""


@dataclass(frozen=True)
class Failure:
    """Requests since the last sample that failed alike.

    Attributes:
        status: of the HTTP answer.
        load_failure: one of ``llama_swap.LOAD_FAILURES``, where the model's load failed; else empty.
    """

    model: str
    status: int
    load_failure: str
    count: int


class Recorder:
    """Writes the records of one exporter into *folder*.

    Args:
        folder: of this exporter alone; it is made.
        promises: of each card, by the lock with the seal *seal*.
        read: what the driver reports now.
        find_llama_swap: the llama-swap that runs now, None: none does; without it, this exporter reads none.
        is_expected: whether a llama-swap should run now, so that its absence is a fault.
        alertmanager: whose alerts are recorded; None: of none.
        take_yields: which models were unloaded for their neighbours since the last call.
    """

    def __init__(
        self,
        folder: Path,
        *,
        seal: str,
        promises: Mapping[str, CardPromise],
        read: Callable[[], Reading],
        find_llama_swap: Callable[[], LlamaSwap | None] | None,
        is_expected: Callable[[], bool] = lambda: True,
        alertmanager: Alertmanager | None = None,
        take_yields: Callable[[], Sequence[Yielded]] = tuple,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._is_expected, self._alertmanager, self._take_yields = is_expected, alertmanager, take_yields
        self._alert_problem = ""
        self._folder, self._clock = folder, clock
        self._head = {"seal": seal, "promises": {name: asdict(one) for name, one in promises.items()}}
        self._models = frozenset(model for card in promises.values() for model in card.models)
        self._read, self._find = read, find_llama_swap
        self._lock: int | None = None
        self._segment: io.FileIO | None = None
        self._is_start = True
        self._last: Mapping[str, Any] | None = None
        self._requests: News[Request] = News()
        self._changes: News[Change] = News()
        # What is not written yet; while nothing can be written the oldest are lost.
        self._changed: deque[Change] = deque(maxlen=LISTED)
        self._failed: Counter[tuple[str, int, str]] = Counter()
        self._yielded: deque[Yielded] = deque(maxlen=LISTED)

    def record(self) -> None:
        """Write one sample.

        Raises:
            OSError: it cannot be written, or another exporter has the folder; the next one tries again.
        """
        now, sample = self._clock(), self._sample()
        try:
            segment = self._current(now)
            once = sample["failures"] or sample["changes"] or sample["yields"]
            same = sample == self._last and not once
            _write(segment, now, {} if same else sample)
        except OSError:
            self._close_segment()
            raise
        self._last = sample
        self._failed.clear()
        self._yielded.clear()
        if sample["changes"] is not None:
            self._changed.clear()

    def open_since(self, since: float) -> list[BinaryIO]:
        """As the function ``open_since``; empty where another exporter has the folder."""
        return [] if self._lock is None else open_since(self._folder, since)

    def close(self) -> None:
        """Give the folder to another exporter, as the end of this process does."""
        self._close_segment()
        if self._lock is not None:
            os.close(self._lock)
        self._lock = None

    def running(self) -> AbstractContextManager[None]:
        """A sample every ``EVERY_S`` while the block lasts, the first one now."""
        return repeating(self.record, EVERY_S, f"Nothing is recorded in {self._folder}", begins_now=True)

    def _close_segment(self) -> None:
        if self._segment:
            self._segment.close()
        self._segment = self._last = None

    def _sample(self) -> dict[str, Any]:
        found = self._read()
        reading = asdict(replace(found, cards=tuple(map(_bounded, found.cards))))
        reading["certain"] = sorted(reading["certain"])
        models, is_followed = self._served(), self._take_changes()
        failures = [asdict(Failure(*key, count)) for key, count in sorted(self._failed.items())]
        self._yielded += self._take_yields()
        yields = [asdict(one) for one in self._yielded]
        changes = [asdict(replace(one, model=self._name(one.model))) for one in self._changed] if is_followed else None
        return {
            "reading": reading,
            "models": models,
            "failures": failures,
            "changes": changes,
            "alerts": self._alerts(),
            "yields": yields,
        }

    def _alerts(self) -> list[dict[str, Any]] | None:
        problem, found = "", None
        try:
            found = [asdict(one) for one in self._alertmanager.firing()] if self._alertmanager else None
        except AlertsUnknown as error:
            problem = str(error)
        if problem and not self._alert_problem:
            print(f"exporter: No alerts are recorded: {problem}", file=sys.stderr, flush=True)  # noqa: T201
        self._alert_problem = problem
        return found

    def _served(self) -> dict[str, str] | NotRead | None:
        """The state of each model that has a process, None while that is unknown; and counts what has failed."""
        if self._find is None:
            return NOT_READ
        client = self._find()
        try:
            if client is None:
                return None if self._is_expected() else {}
            residents, listed = client.residents(), client.requests()
        except LlamaSwapUnknown:
            return None
        fresh, _ = self._requests.take(listed)
        self._failed.update((self._name(one.model), one.status, one.load_failure) for one in fresh if one.status != 200)
        return {self._name(one.model): one.state for one in residents}

    def _take_changes(self) -> bool:
        """Whether the changes of models are followed now; adds the new ones."""
        client = self._find() if self._find else None
        try:
            if client:
                self._changed += self._changes.take(client.changes())[0]
        except LlamaSwapUnknown:
            return False
        return client is not None

    def _name(self, model: str) -> str:
        return model if model in self._models else OTHER

    def _current(self, now: float) -> io.FileIO:
        """The segment that the next line goes into."""
        if self._segment and not os.fstat(self._segment.fileno()).st_nlink:  # removed, with the folder or without it
            self.close()
        if self._segment is None:
            try:
                self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            except (FileExistsError, NotADirectoryError) as error:
                taken = shlex.quote(str(next(one for one in (self._folder, *self._folder.parents) if one.exists())))
                raise OSError(f"{error.strerror}. A folder belongs there: mv {taken} {taken}.old") from None
            if self._lock is None:
                self._lock = _exclusive(self._folder)
            newest = max(segments(self._folder), default=None)
            if newest and newest.stat().st_size < SEGMENT_BYTES:
                self._segment = self._opened(newest, now)
            else:
                self._segment = self._next(newest, now)
        elif self._segment.tell() >= SEGMENT_BYTES:
            self._segment.close()
            self._segment = self._next(Path(str(self._segment.name)), now)
        return self._segment

    def _next(self, before: Path | None, now: float) -> io.FileIO:
        """The segment after *before*, or the first one, after the removal of those that it needs the room of."""
        _make_room(self._folder)
        return self._opened(self._folder / f"{int(before.stem) + 1 if before else 1:08}{_SUFFIX}", now)

    def _opened(self, path: Path, now: float) -> io.FileIO:
        """The segment *path*, with a new head; what its last line may have lost ends there."""
        segment = io.FileIO(path, "ab", opener=lambda name, flags: os.open(name, flags, 0o600))
        segment.seek(0, os.SEEK_END)
        try:
            if segment.tell():
                segment.write(b"\n")
            _write(segment, now, self._head | {"is_start": self._is_start})
            self._is_start = False
        except OSError:
            segment.close()
            raise
        self._last = None
        return segment


def _bounded(card: CardReading) -> CardReading:
    """*card*, where all foreign holders but the largest, which come first, are one of each kind."""
    foreign = [one for one in card.holders if one.kind.value in FOREIGN]
    rest = foreign[MOST_FOREIGN:]
    sums = []
    for kind in dict.fromkeys(one.kind for one in rest):
        held = [one.held for one in rest if one.kind == kind]
        known = [one for one in held if one is not None]
        sums.append(Holder(kind, OTHER, (), sum(known) if len(known) == len(held) else None))
    return replace(card, holders=(*(one for one in card.holders if one not in rest), *sums))


def segments(folder: Path) -> list[Path]:
    """The segments in *folder*, the oldest first."""
    return sorted(path for path in folder.glob(f"*{_SUFFIX}") if path.stem.isdecimal() and path.is_file())


def open_since(folder: Path, since: float) -> list[BinaryIO]:
    """The segments in *folder* with all that was recorded from *since* (seconds since 1970) on, the oldest first.

    Raises:
        OSError: one cannot be opened.
    """
    found: list[BinaryIO] = []
    for path in reversed(segments(folder)):
        try:
            stream = path.open("rb")
        except FileNotFoundError:  # the recorder has just removed it
            break
        found.insert(0, stream)
        if _begins_before(stream, since):
            break
    return found


def _make_room(folder: Path) -> None:
    """Remove the oldest segments, until there is room for a new one."""
    present = segments(folder)
    sizes = {path: path.stat().st_size for path in present}
    while sizes and sum(sizes.values()) > MOST_BYTES - 2 * SEGMENT_BYTES:
        oldest = min(sizes)
        oldest.unlink()
        del sizes[oldest]


def _begins_before(stream: BinaryIO, since: float) -> bool:
    line = stream.readline(MOST_BYTES)
    stream.seek(0)
    try:
        return time_of(json.loads(line)) <= since
    except DAMAGED:
        return False


def time_of(read: Any) -> float:
    """When the line *read* was written.

    Raises:
        DAMAGED: the recorder has not written it.
    """
    at = float(read["at"])
    if not 0 <= at <= LATEST:
        raise ValueError(f"{at} is no time")
    return at


def _exclusive(folder: Path) -> int:
    """A descriptor that locks *folder* until this process ends."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise OSError("another exporter records there") from None
    return descriptor


def _write(segment: io.FileIO, now: float, content: Mapping[str, Any]) -> None:
    line = json.dumps({"version": 1, "at": round(now, 3), **content}, separators=(",", ":"), ensure_ascii=False)
    data = f"{line}\n".encode(errors="backslashreplace")
    if segment.write(data) != len(data):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
