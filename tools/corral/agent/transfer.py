"""Downloads one file and verifies it while it arrives.

Several connections request ranges of the file and write them in place.  One thread hashes the part from the start that
has no hole; another one makes what has arrived durable and records it in the journal, from which a later process
resumes.
"""

from __future__ import annotations

import hashlib
import queue
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from enum import Enum, auto
from pathlib import Path

from .errors import Code, CorralError, Failed
from .hub_client import HubFile, RangeResponse, RetryableError
from .lock_file import LockedFile
from .partial import Partial, Span
from .progress import Downloading, Event, Hashing, Report, Retrying, StartedOver
from .scheduling import USUAL_PART, RetryBudget, TransferSettings, Worklist, part_size
from .stopping import Stopped
from .store import disk_error

_KIB, _MIB = 1 << 10, 1 << 20
_BUFFER_BYTES = 256 * _KIB
"""Small enough to stay in a core's own cache between the network, the page cache and the hash."""

_MAX_UNHASHED_BYTES = 16 * _MIB
_MAX_SKIPPED, _MAX_SKIPPED_OF_SMALL = 3, 64 * _MIB
"""Times the file's size, or bytes, that a server which ignores ranges may send before the bytes that are missing."""
_FLUSH_SECONDS = 1.0
_TICK_SECONDS = 0.2
_LONG_TICK_SECONDS = 2.0
_JOIN_SECONDS = 1.5


class Damaged(Failed):
    """The content does not match the lock."""

    def __init__(self, name: str, *, expected: str, actual: str) -> None:
        super().__init__(
            f"{name} does not match the lock: expected sha256 {expected}, got {actual}.",
            next_step="If upstream replaced the file, resolve it again with: corral lock --upgrade",
            code=Code.CONTENT_DIFFERS,
            fields={"file": name, "expected": expected, "actual": actual},
        )


def transfer(
    file: LockedFile,
    source: Callable[[], HubFile],
    folder: Path,
    *,
    name: str,
    report: Report,
    stop: threading.Event,
    check: Callable[[], None],
    settings: TransferSettings,
) -> tuple[Path, int]:
    """Collect *file* from *source* in *folder*, resuming from what an earlier call left there.

    *source* opens the file on the hub, again for a second attempt.  *folder* belongs to this caller alone: *check* is
    called before bytes count as arrived, and raises when it no longer does.  *report* gets the events of the file
    *name*, from this thread only.  *stop* ends the call soon, with ``Stopped``.  Returns the path of the verified,
    durable file, and the bytes that were received for it.

    Raises:
        Damaged: all bytes arrived and are wrong, twice; nothing is left of them.
        CorralError: they could not be fetched; what has arrived is kept.
    """
    partial = Partial(folder, file)
    moved = 0
    lingering = False
    try:
        for last in (False, True):
            attempt = _Attempt(file, source(), partial, name, report, check, settings, moved_before=moved)
            try:
                actual = attempt.run(stop)
            finally:
                lingering = attempt.lingering
            moved += attempt.moved
            if actual == file.sha256:
                partial.sync()
                break
            partial.clear()
            if last:
                raise Damaged(name, expected=file.sha256, actual=actual)
            report(StartedOver(name, expected=file.sha256, actual=actual))
    finally:
        if not lingering:  # a thread that did not end in time must not use a descriptor that is another file's by then
            partial.close()
    return partial.path, moved


class _Waits(Enum):
    """What a connection waits for, or works on."""

    FOR_ITS_TURN = auto()
    FOR_THE_HUB = auto()
    FOR_THE_DISK = auto()


@dataclass
class _Attempt:
    """One try to collect and hash a file; made for a single ``run``."""

    _file: LockedFile
    _source: HubFile
    _partial: Partial
    _name: str
    _report: Report
    _check: Callable[[], None]
    _settings: TransferSettings
    moved_before: int
    moved: int = 0
    lingering: bool = False
    _error: BaseException | None = None
    _actual: str | None = None
    _hashed: int = 0
    _halt: threading.Event = field(default_factory=threading.Event)
    _events: queue.SimpleQueue[Event] = field(default_factory=queue.SimpleQueue)
    _lock: threading.Lock = field(default_factory=threading.Lock)  # guards moved and _error

    def __post_init__(self) -> None:
        self._worklist = Worklist(self._partial.missing(), self._settings.connections)
        self._kept = self._partial.frontier
        self._budget = RetryBudget(self._settings, self._source.budgets.least_rate)
        self._waits_for = [_Waits.FOR_ITS_TURN] * self._worklist.workers
        self._skipped = 0
        # What a kill can lose is a step of each connection and what waits to be flushed: a small part of the file.
        size = self._file.size
        self._step = _between(64 * _KIB, size // 1024, _MIB)
        self._batch = _between(256 * _KIB, size // 128, 16 * _MIB)
        self._most_unflushed = _between(16 * _MIB, size // 32, 128 * _MIB)

    def run(self, stop: threading.Event) -> str:
        """Collect what is missing; the sha256 of the whole."""
        workers = [self._thread(self._work, number) for number in range(self._worklist.workers)]
        follower = self._thread(self._follow)
        flusher = self._thread(self._flush_behind, workers)
        threads = [follower, flusher, *workers]
        self._report_progress()
        checked_at = time.monotonic()
        for thread in threads:
            thread.start()
        try:
            # The file is complete when these two have ended: a worker that waits for another try is not needed.
            # The kernel reports a failed write once, to the flusher: without waiting for it the error would be lost.
            while running := [thread for thread in (follower, flusher) if thread.is_alive()]:
                running[0].join(_TICK_SECONDS)
                self._report_progress()
                if self._error:
                    raise self._error
                if stop.is_set():
                    raise Stopped
                now = time.monotonic()
                self._require_rate(now - checked_at)
                checked_at = now
            if self._error:
                raise self._error
        finally:
            self._halt.set()
            self._source.abort()
            end = time.monotonic() + _JOIN_SECONDS
            for thread in threads:
                thread.join(max(0.0, end - time.monotonic()))
            self.lingering = any(thread.is_alive() for thread in threads)
        assert self._actual is not None  # the follower has ended, without an error
        return self._actual

    def _report_progress(self) -> None:
        while not self._events.empty():
            self._report(self._events.get())
        done = self._partial.done
        if done < self._file.size or not self._hashed:
            moved = self.moved_before + self.moved
            self._report(Downloading(self._name, self._file.sha256, done, self._file.size, moved))
        else:
            self._report(Hashing(self._name, self._hashed, self._file.size))

    def _require_rate(self, passed: float) -> None:
        """Raise a ``CorralError`` when the hub was too slow; the last *passed* seconds were not counted yet."""
        waits = set(self._waits_for)
        if _Waits.FOR_THE_HUB not in waits or _Waits.FOR_THE_DISK in waits:
            self._budget.exclude(passed)
        elif passed > _LONG_TICK_SECONDS:  # this process did not run
            self._budget.exclude(passed - _TICK_SECONDS)
        if failure := self._budget.too_slow():
            raise self._gave_up(failure)

    def _thread(self, job: Callable[..., None], *args: object) -> threading.Thread:
        return threading.Thread(target=self._guarded, args=(job, *args), daemon=True)

    def _guarded(self, job: Callable[..., None], *args: object) -> None:
        try:
            job(*args)
        except BaseException as error:  # noqa: BLE001 - raised again by run()
            with self._lock:  # an OSError is the disk's: those of the network are a RetryableError
                self._error = self._error or (
                    disk_error(error, self._partial.path) if isinstance(error, OSError) else error
                )
            self._halt.set()

    def _work(self, number: int) -> None:
        buffer = memoryview(bytearray(_BUFFER_BYTES))
        failures = 0
        wanted = USUAL_PART
        while spans := self._claim(number, wanted):
            self._waits_for[number] = _Waits.FOR_THE_HUB
            left = deque(spans)
            moved = self.moved
            try:
                wanted = self._receive(number, left, buffer)
                failures = 0
            except RetryableError as error:
                failures = 1 if self.moved > moved else failures + 1
                self._worklist.release(left)
                self._pause(error, failures)
            else:
                self._worklist.release(left)

    def _claim(self, number: int, wanted: int) -> list[Span]:
        """The next ranges of one request, about *wanted* bytes; empty when this worker is done."""
        self._waits_for[number] = _Waits.FOR_ITS_TURN
        wait = self._budget.server_wait()
        if wait > 0:
            self._halt.wait(wait)
        # One connection more helps only while the hash waits for bytes; otherwise it takes the processor from it.
        while (
            number
            and self._partial.frontier - max(self._hashed, self._kept) > _MAX_UNHASHED_BYTES
            and not self._halt.is_set()
        ):
            self._halt.wait(_TICK_SECONDS / 10)
        return [] if self._halt.is_set() else self._worklist.claim(wanted)

    def _receive(self, number: int, left: deque[Span], buffer: memoryview) -> int:
        """Request the ranges *left*, and take out what arrives, also on an error; the size of the next part."""
        sent_at = time.monotonic()
        with closing(self._source.open(left[0][0], left[-1][1])) as body:
            head_at = time.monotonic()
            self._check_head(body, left[0][0])
            position = first = body.start
            while left:
                start, end = left[0]
                if position < start:
                    count = self._read(body, buffer[: start - position])
                    self._skip(count)
                    position += count
                    continue
                noted, noted_at = start, time.monotonic()
                try:
                    while position < end:
                        count = self._read(body, buffer[: end - position])
                        self._waits_for[number] = _Waits.FOR_THE_DISK
                        self._partial.write(position, buffer[:count])
                        self._waits_for[number] = _Waits.FOR_THE_HUB
                        position += count
                        now = time.monotonic()
                        if position - noted >= self._step or now - noted_at >= _FLUSH_SECONDS:
                            self._arrived(number, noted, position)
                            noted, noted_at = position, now
                finally:
                    self._arrived(number, noted, position)
                    left.popleft()
                    if position < end:
                        left.appendleft((position, end))
            return part_size(head_at - sent_at, position - first, time.monotonic() - head_at)

    def _check_head(self, body: RangeResponse, requested: int) -> None:
        if body.total is not None and body.total != self._file.size:
            raise RetryableError(
                f"the hub has {body.total} bytes of it, the lock {self._file.size}",
                becomes=Failed,
                code=Code.CONTENT_DIFFERS,
            )
        if body.start != requested and not self._worklist.in_one_piece:
            self._worklist.note_ignored_range()
            raise RetryableError("the hub sent the whole file instead of a part of it", wait=0)

    def _read(self, body: RangeResponse, buffer: memoryview) -> int:
        count = body.readinto(buffer)
        if self._halt.is_set():
            raise RetryableError("stopped")
        if not count:
            raise RetryableError("the connection ended early")
        with self._lock:
            self.moved += count
        return count

    def _skip(self, count: int) -> None:
        """Note *count* bytes that are here already: the server ignores ranges and begins at the start each time."""
        self._budget.received(count)
        with self._lock:
            self._skipped += count
        if self._skipped > max(_MAX_SKIPPED * self._file.size, _MAX_SKIPPED_OF_SMALL):
            raise self._gave_up(RetryableError("the hub ignores ranges and sends the same bytes again and again"))

    def _arrived(self, number: int, start: int, end: int) -> None:
        if start < end:
            self._partial.arrived(start, end)
            self._budget.received(end - start)
            self._waits_for[number] = _Waits.FOR_THE_DISK
            while self._partial.unflushed > self._most_unflushed and not self._halt.is_set():
                # The disk is slower than the network: continue when it has caught up.
                self._partial.wait_until(lambda: self._partial.unflushed <= self._most_unflushed, _TICK_SECONDS)
            self._waits_for[number] = _Waits.FOR_THE_HUB

    def _pause(self, failure: RetryableError, failures: int) -> None:
        """Wait before the next try; raises a ``CorralError`` after the last."""
        if self._halt.is_set():
            return
        try:
            wait = self._budget.pause_after(failure, failures)
        except failure.becomes:
            raise self._gave_up(failure) from None
        if wait:
            self._events.put(Retrying(self._name, failure.reason, wait))
            self._halt.wait(wait)

    def _gave_up(self, failure: RetryableError) -> CorralError:
        return failure.becomes(
            f"{self._name} could not be fetched: {failure.reason}.",
            next_step="What has arrived is kept; run the same command again when the cause is gone.",
            code=failure.code,
            fields={"file": self._name},
        )

    def _follow(self) -> None:
        """Hash the file behind the workers, as far as it has no hole."""
        digest = hashlib.sha256()
        buffer = memoryview(bytearray(_BUFFER_BYTES))
        while self._hashed < self._file.size:
            if self._halt.is_set():
                return
            self._partial.wait_until(lambda: self._partial.frontier > self._hashed, _TICK_SECONDS)
            frontier = self._partial.frontier
            while self._hashed < frontier and not self._halt.is_set():
                count = self._partial.read(self._hashed, buffer[: frontier - self._hashed])
                digest.update(buffer[:count])
                self._hashed += count
        self._actual = digest.hexdigest()

    def _flush_behind(self, workers: list[threading.Thread]) -> None:
        """Make durable what has arrived, repeatedly, and once more when nothing is left to receive."""
        flushed_at = time.monotonic()
        while not self._halt.is_set() and self._partial.done < self._file.size:
            enough = min(self._batch, self._file.size - self._partial.done)
            self._partial.wait_until(lambda: self._partial.unflushed >= enough, _TICK_SECONDS)  # noqa: B023
            if self._partial.unflushed >= enough or time.monotonic() > flushed_at + _FLUSH_SECONDS:
                self._flush()
                flushed_at = time.monotonic()
        end = time.monotonic() + _JOIN_SECONDS / 3
        while self._partial.done < self._file.size and workers:
            workers.pop().join(max(0.0, end - time.monotonic()))
        self._flush()

    def _flush(self) -> None:
        if self._partial.unflushed:
            self._check()
            self._partial.flush()


def _between(least: int, wanted: int, most: int) -> int:
    return max(least, min(wanted, most))
