"""The flight recorder: what was held, loaded and refused, a line of JSON every 15 s, in segments of bounded size.

A line repeats nothing: the head of a segment has the promises, a sample what the driver and llama-swap report, and a
line that has only the time stands for a sample that is the same as the one before.  What follows from these (who was
over its promise, what lacked room) is computed when they are read, by the rules of ``account``::

    {"version": 1, "at": 1.5, "is_start": true, "seal": "…", "promises": {"<card>": …}}
    {"version": 1, "at": 1.6, "reading": {…}, "models": {"<id>": "ready"}, "failures": [{"model": "<id>", …}]}
    {"version": 1, "at": 16.6}

``models`` is null while llama-swap does not answer.  A line is one write; one that was torn is no JSON, and the next
exporter begins on a line of its own.
"""

from __future__ import annotations

import errno
import fcntl
import io
import json
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO

from . import llama_swap
from .account import OTHER, CardPromise
from .errors import LlamaSwapUnknown
from .holders import Reading
from .llama_swap import LlamaSwap, Request

EVERY_S = 15.0
"""Seconds between two samples."""
SEGMENT_BYTES = 1 << 20
MOST_BYTES = 64 << 20
"""All segments together; the oldest is removed first.

Seven days are 40,320 samples: they stay where each differs from the one before and has no more than 1,600 bytes, which
is a card with a dozen holders.
"""
_SUFFIX = ".jsonl"


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
        find_llama_swap: the llama-swap that runs now, None: none does.
    """

    def __init__(
        self,
        folder: Path,
        *,
        seal: str,
        promises: Mapping[str, CardPromise],
        read: Callable[[], Reading],
        find_llama_swap: Callable[[], LlamaSwap | None],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._folder, self._clock = folder, clock
        self._head = {"seal": seal, "promises": {name: asdict(one) for name, one in promises.items()}}
        self._models = frozenset(model for card in promises.values() for model in card.models)
        self._read, self._find = read, find_llama_swap
        self._lock: int | None = None
        self._segment: io.FileIO | None = None
        self._last: Mapping[str, Any] | None = None
        self._last_request: Request | None = None
        self._has_begun = False

    def record(self) -> None:
        """Write one sample.

        Raises:
            OSError: it cannot be written, or another exporter has the folder; the next one tries again.
        """
        now, sample = self._clock(), self._sample()
        try:
            if self._segment is None:
                self._segment = self._continued(now)
            elif self._segment.tell() >= SEGMENT_BYTES:
                self._segment.close()
                self._segment = self._rotated(now)
            same = sample == self._last and not sample["failures"]
            _write(self._segment, now, {} if same else sample)
            self._last = sample
        except OSError:
            self._close_segment()
            raise

    def close(self) -> None:
        """Give the folder to another exporter, as the end of this process does."""
        self._close_segment()
        if self._lock is not None:
            os.close(self._lock)
        self._lock = None

    @contextmanager
    def running(self) -> Iterator[None]:
        """A sample every ``EVERY_S`` while the block lasts, the first one now."""
        ended = threading.Event()

        def repeat() -> None:
            before = ""
            while True:
                problem = ""
                try:
                    self.record()
                except OSError as error:  # the cards are served all the same
                    problem = f"exporter: {self._folder} cannot be written, so nothing is recorded: {error}."
                if problem and problem != before:
                    print(problem, file=sys.stderr, flush=True)  # noqa: T201 - a program of its own
                before = problem
                if ended.wait(EVERY_S):
                    return

        thread = threading.Thread(target=repeat, daemon=True)  # a driver that hangs does not delay the end
        thread.start()
        try:
            yield
        finally:
            ended.set()

    def _close_segment(self) -> None:
        if self._segment:
            self._segment.close()
        self._segment = self._last = None

    def _sample(self) -> dict[str, Any]:
        reading = asdict(self._read())
        reading["certain"] = sorted(reading["certain"])
        models, failures = self._served()
        return {"reading": reading, "models": models, "failures": failures}

    def _served(self) -> tuple[dict[str, str] | None, list[dict[str, Any]]]:
        """The state of each model that has a process, None while that is unknown; and what has failed since."""
        client = self._find()
        try:
            if client is None:
                return None, []
            residents, listed = client.residents(), client.requests()
        except LlamaSwapUnknown:
            return None, []
        fresh = llama_swap.new(listed, self._last_request)[0] if self._has_begun else ()
        self._last_request, self._has_begun = listed[-1] if listed else None, True
        failed = Counter((self._name(one.model), one.status, one.load_failure) for one in fresh if one.status != 200)
        states = {self._name(one.model): one.state for one in residents}
        return states, [asdict(Failure(*key, count)) for key, count in sorted(failed.items())]

    def _name(self, model: str) -> str:
        return model if model in self._models else OTHER

    def _continued(self, now: float) -> io.FileIO:
        """The newest segment, or a first one, with a new head."""
        self._folder.mkdir(parents=True, exist_ok=True)
        if self._lock is None:
            self._lock = _exclusive(self._folder)
        newest = max(segments(self._folder), default=self._folder / f"{1:08}{_SUFFIX}")
        segment = _open(newest)
        if segment.tell():
            segment.write(b"\n")  # the last line may have been torn
        _write(segment, now, self._head | {"is_start": True})
        return segment

    def _rotated(self, now: float) -> io.FileIO:
        """The next segment, after the removal of the oldest ones that it needs the room of."""
        present = segments(self._folder)
        segment = _open(self._folder / f"{int(present[-1].stem) + 1:08}{_SUFFIX}")
        size = sum(path.stat().st_size for path in present)
        while present and size > MOST_BYTES - 2 * SEGMENT_BYTES:
            oldest = present.pop(0)
            size -= oldest.stat().st_size
            oldest.unlink()
        _write(segment, now, self._head | {"is_start": False})
        return segment


def segments(folder: Path) -> list[Path]:
    """The segments in *folder*, the oldest first."""
    return sorted(path for path in folder.glob(f"*{_SUFFIX}") if path.stem.isdecimal())


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


def _begins_before(stream: BinaryIO, since: float) -> bool:
    line = stream.readline(MOST_BYTES)
    stream.seek(0)
    try:
        return float(json.loads(line)["at"]) <= since
    except (ValueError, KeyError, TypeError):
        return False


def _exclusive(folder: Path) -> int:
    """A descriptor that locks *folder* until this process ends."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise OSError("another exporter records there") from None
    return descriptor


def _open(path: Path) -> io.FileIO:
    """*path*, to be appended to."""
    segment = io.FileIO(path, "ab")
    segment.seek(0, os.SEEK_END)
    return segment


def _write(segment: io.FileIO, now: float, content: Mapping[str, Any]) -> None:
    line = json.dumps({"version": 1, "at": round(now, 3), **content}, separators=(",", ":"), ensure_ascii=False)
    data = f"{line}\n".encode()
    if segment.write(data) != len(data):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
