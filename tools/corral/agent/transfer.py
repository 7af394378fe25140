"""The engine: brings all bytes of one file to disk, and knows that they are the right ones.

Several connections ask for ranges of the file, and what arrives is written where it belongs.  One thread follows
behind and hashes the part that has no hole; another one makes what has arrived durable and notes it in the
journal, so that a later process goes on from there.  ``transfer`` is all that the rest of the agent calls.
"""

from __future__ import annotations

import errno
import functools
import hashlib
import queue
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from .errors import CannotRun, Code, Failed
from .lock_file import LockedFile
from .partial import Partial, Span
from .patience import Patience, Settings
from .progress import Downloading, Event, Hashing, Report, Retrying, StartedOver
from .source import Body, Hiccup, Source
from .stopping import Stopped
from .worklist import Pace, Worklist

__all__ = ["Damaged", "Settings", "Transferred", "transfer"]

_KIB, _MIB = 1 << 10, 1 << 20
_BUFFER_BYTES = 256 * _KIB
"""What stays in a processor's own cache between the network, the page cache and the hash."""

_MAX_UNHASHED_BYTES = 16 * _MIB
_FLUSH_SECONDS = 1.0
_TICK_SECONDS = 0.2
_JOIN_SECONDS = 1.5


class Damaged(Failed):
    """Content is not what the lock says."""

    def __init__(self, name: str, *, expected: str, actual: str) -> None:
        super().__init__(
            f"{name} does not match the lock: expected sha256 {expected}, got {actual}.",
            next_step="If upstream replaced the file, resolve it again with: corral lock --upgrade",
            code=Code.CONTENT_DIFFERS,
            fields={"file": name, "expected": expected, "actual": actual},
        )


@dataclass(frozen=True)
class Transferred:
    """A finished transfer: the verified, durable file, and the bytes that came over the network for it."""

    path: Path
    moved: int


def transfer(
    file: LockedFile,
    source: Callable[[], Source],
    folder: Path,
    *,
    name: str,
    report: Report,
    stop: threading.Event,
    check: Callable[[], None],
    settings: Settings,
) -> Transferred:
    """Collect *file* from *source* in *folder*, going on from what an earlier call left there.

    Args:
        file: size and sha256 decide what is right.
        source: makes the source; called again for a second attempt.
        folder: belongs to this caller alone.
        name: for *report*.
        report: called from this thread only.
        stop: end soon, with ``Stopped``.
        check: called before bytes count as arrived; raises when *folder* no longer belongs to the caller.
        settings: how hard to try.

    Raises:
        Damaged: all bytes arrived and are wrong, twice; nothing is left of them.
        CorralError: they could not be brought; what has arrived is kept.
    """
    partial = Partial(folder, file)
    moved = 0
    lingering = False
    try:
        for last in (False, True):
            attempt = _Attempt(file, source(), partial, name=name, report=report, check=check, settings=settings)
            try:
                actual = attempt.run(stop, moved_before=moved)
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
        if not lingering:  # a thread that did not end in time must not find its file number given to another file
            partial.close()
    return Transferred(partial.path, moved)


class _Attempt:
    """One try to collect and hash a file; made for a single ``run``."""

    def __init__(
        self,
        file: LockedFile,
        source: Source,
        partial: Partial,
        *,
        name: str,
        report: Report,
        check: Callable[[], None],
        settings: Settings,
    ) -> None:
        self.moved = 0
        self.lingering = False
        self._file = file
        self._source = source
        self._partial = partial
        self._name = name
        self._report = report
        self._check = check
        self._worklist = Worklist(partial.missing(), settings.connections)
        self._kept = partial.frontier
        self._patience = Patience(settings)

        # What a kill can lose is a step of each connection and what waits to be flushed: a small part of the file.
        self._step = _between(64 * _KIB, file.size // 1024, _MIB)
        self._batch = _between(256 * _KIB, file.size // 128, 16 * _MIB)
        self._most_unflushed = _between(16 * _MIB, file.size // 32, 128 * _MIB)
        self._halt = threading.Event()
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._error: BaseException | None = None
        self._actual: str | None = None
        self._hashed = 0
        self._lock = threading.Lock()  # guards moved and _error

    def run(self, stop: threading.Event, *, moved_before: int) -> str:
        """Collect what is missing; the sha256 of the whole."""
        workers = [self._thread(functools.partial(self._work, number)) for number in range(self._worklist.workers)]
        follower = self._thread(self._follow)
        flusher = self._thread(functools.partial(self._flush_behind, workers))
        threads = [follower, flusher, *workers]
        self._tell(moved_before)
        for thread in threads:
            thread.start()
        try:
            # All is there when these two are done: a worker that still waits for another try is not needed.
            # The kernel tells of a failed write once; were the flusher not waited for, nobody would hear of it.
            while waited_for := [thread for thread in (follower, flusher) if thread.is_alive()]:
                waited_for[0].join(_TICK_SECONDS)
                self._tell(moved_before)
                if self._error:
                    raise self._error
                if stop.is_set():
                    raise Stopped
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

    def _tell(self, moved_before: int) -> None:
        while not self._events.empty():
            self._report(self._events.get())
        done = self._partial.done
        if done < self._file.size or not self._hashed:
            moved = moved_before + self.moved
            self._report(Downloading(self._name, self._file.sha256, done, self._file.size, moved))
        else:
            self._report(Hashing(self._name, self._hashed, self._file.size))

    def _thread(self, job: Callable[[], None]) -> threading.Thread:
        return threading.Thread(target=self._guarded, args=(job,), daemon=True)

    def _guarded(self, job: Callable[[], None]) -> None:
        try:
            job()
        except OSError as error:  # the network's come as Hiccup: this is the disk's
            self._fail(_disk_error(error, self._partial.path))
        except BaseException as error:  # noqa: BLE001 - raised again by run()
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        with self._lock:
            self._error = self._error or error
        self._halt.set()

    # -- moving -------------------------------------------------------------------------------------------

    def _work(self, number: int) -> None:
        buffer = memoryview(bytearray(_BUFFER_BYTES))
        failures = 0
        pace = Pace()
        while spans := self._claim(number, pace.part):
            left = deque(spans)
            moved = self.moved
            try:
                self._receive(left, buffer, pace)
                failures = 0
            except Hiccup as hiccup:
                failures = 1 if self.moved > moved else failures + 1
                self._worklist.release(left)
                self._pause(hiccup, failures)
            else:
                self._worklist.release(left)

    def _claim(self, number: int, wanted: int) -> list[Span]:
        """The next ranges to ask for in one request, about *wanted* bytes; empty when this worker is done."""
        hold = self._patience.hold()
        if hold > 0:
            self._halt.wait(hold)
        # One connection more helps only while the hash waits for bytes; otherwise it takes the processor from it.
        while number and self._unhashed() > _MAX_UNHASHED_BYTES and not self._halt.is_set():
            self._halt.wait(_TICK_SECONDS / 10)
        return [] if self._halt.is_set() else self._worklist.claim(wanted)

    def _unhashed(self) -> int:
        """How far the hash is behind what this attempt has brought."""
        return self._partial.frontier - max(self._hashed, self._kept)

    def _receive(self, left: deque[Span], buffer: memoryview, pace: Pace) -> None:
        """Ask for the ranges *left*; what arrived is taken out of it, also when this ends with a ``Hiccup``."""
        pace.asked()
        with closing(self._source.open(left[0][0], left[-1][1])) as body:
            pace.answered()
            self._check_head(body, left[0][0])
            position = first = body.start
            while left:
                start, end = left[0]
                if position < start:
                    position += self._read(body, buffer[: start - position])
                    continue
                noted, noted_at = start, time.monotonic()
                try:
                    while position < end:
                        count = self._read(body, buffer[: end - position])
                        self._partial.write(position, buffer[:count])
                        position += count
                        now = time.monotonic()
                        if position - noted >= self._step or now - noted_at >= _FLUSH_SECONDS:
                            self._arrived(noted, position)
                            noted, noted_at = position, now
                finally:
                    self._arrived(noted, position)
                    left.popleft()
                    if position < end:
                        left.appendleft((position, end))
            pace.received(position - first)

    def _check_head(self, body: Body, asked: int) -> None:
        if body.total is not None and body.total != self._file.size:
            raise Hiccup(
                f"the hub says that it has {body.total} bytes, the lock says {self._file.size}",
                becomes=Failed,
                code=Code.CONTENT_DIFFERS,
            )
        if body.start != asked and not self._worklist.in_one_piece:
            self._worklist.note_ignored_range()
            raise Hiccup("the whole file came instead of a part of it", wait=0)

    def _read(self, body: Body, buffer: memoryview) -> int:
        count = body.readinto(buffer)
        if self._halt.is_set():
            raise Hiccup("stopped")
        if not count:
            raise Hiccup("the connection ended early")
        with self._lock:
            self.moved += count
        return count

    def _arrived(self, start: int, end: int) -> None:
        if start < end:
            self._partial.arrived(start, end)
            self._patience.renew()
            while not (self._halt.is_set() or self._partial.wait_for_flushed(self._most_unflushed, _TICK_SECONDS)):
                pass  # the disk is slower than the network: go on when it has caught up

    def _pause(self, hiccup: Hiccup, failures: int) -> None:
        """Wait before the next try.

        Raises:
            CorralError: there is no next try.
        """
        if self._halt.is_set():
            return
        try:
            wait = self._patience.pause_after(hiccup, failures)
        except hiccup.becomes as error:
            raise hiccup.becomes(
                f"{self._name} could not be fetched: {error.message}.",
                next_step="What has arrived is kept; run the same command again when the cause is gone.",
                code=error.code,
                fields={"file": self._name},
            ) from None
        if wait:
            self._events.put(Retrying(self._name, hiccup.reason, wait))
            self._halt.wait(wait)

    # -- following behind ---------------------------------------------------------------------------------

    def _follow(self) -> None:
        """Hash the file behind the workers, as far as it has no hole."""
        digest = hashlib.sha256()
        buffer = memoryview(bytearray(_BUFFER_BYTES))
        while self._hashed < self._file.size:
            if self._halt.is_set():
                return
            frontier = self._partial.wait_for_frontier(self._hashed, _TICK_SECONDS)
            while self._hashed < frontier and not self._halt.is_set():
                count = self._partial.read(self._hashed, buffer[: frontier - self._hashed])
                digest.update(buffer[:count])
                self._hashed += count
        self._actual = digest.hexdigest()

    def _flush_behind(self, workers: list[threading.Thread]) -> None:
        """Make durable what has arrived, again and again, and once more when no more is to come."""
        flushed_at = time.monotonic()
        while not self._halt.is_set() and self._partial.done < self._file.size:
            enough = min(self._batch, self._file.size - self._partial.done)
            if (
                self._partial.wait_for_unflushed(enough, _TICK_SECONDS)
                or time.monotonic() > flushed_at + _FLUSH_SECONDS
            ):
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


def _disk_error(error: OSError, path: Path) -> CannotRun:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return CannotRun(
            f"There is no room left for {path}; what has arrived is kept.",
            next_step="Make room on that file system, then run the same command again: it goes on from here.",
            code=Code.STORE_FULL,
            fields={"path": str(path)},
        )
    return CannotRun(
        f"{path} cannot be written: {error}.",
        next_step="Check the file system under the store.",
        code=Code.STORE_UNUSABLE,
        fields={"path": str(path)},
    )
