"""The engine: brings all bytes of one file to disk, and knows that they are the right ones.

Several connections ask for ranges of the file; what arrives is written where it belongs, flushed, and noted in
the journal, so that a later process goes on from there.  One more thread follows behind and hashes the part that
is complete.  ``transfer`` is all that the rest of the agent calls.
"""

from __future__ import annotations

import errno
import hashlib
import queue
import random
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from .errors import CannotRun, Failed
from .lock_file import LockedFile
from .partial import Partial, Span
from .progress import Downloading, Event, Hashing, Report, Retrying, StartedOver
from .source import Body, Hiccup, Source
from .stopping import Stopped

_MIB = 1 << 20
_BUFFER_BYTES = 256 << 10
_MAX_CONTRADICTIONS = 8
_TICK_SECONDS = 0.2
_JOIN_SECONDS = 1.5


@dataclass(frozen=True)
class Settings:
    """How hard to try.

    Attributes:
        connections: ranges under way at a time.
        patience: seconds without one new byte before giving up.
        obedience: seconds more that a server may ask to wait (Retry-After) without one new byte.
        slowest_retry: the longest pause between two tries that the server did not ask for, in seconds.
    """

    connections: int = 4
    patience: float = 60.0
    obedience: float = 900.0
    slowest_retry: float = 8.0


class Damaged(Failed):
    """Content is not what the lock says."""

    def __init__(self, name: str, *, expected: str, actual: str) -> None:
        super().__init__(
            f"{name} does not match the lock: expected sha256 {expected}, got {actual}.",
            next_step="If upstream replaced the file, resolve it again with: corral lock --upgrade",
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
        self._settings = settings

        # What a kill can lose is at most one step a connection; what a request costs is spread over its span.
        self._step = _between(_MIB // 2, file.size // 256, 8 * _MIB)
        span = _between(_MIB, file.size // (4 * settings.connections), 64 * _MIB)
        self._halt = threading.Event()
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._error: BaseException | None = None
        self._actual: str | None = None
        self._hashed = 0
        self._grown = threading.Event()

        self._lock = threading.Lock()  # guards everything below
        self._todo = deque(_cut(partial.missing(), span))
        self._at_work = 0
        self._whole_file = False
        self._ranges_ignored = 0
        self._contradictions = 0
        self._news_at = time.monotonic()
        self._hold_until = 0.0
        self._ordered = 0.0

    def run(self, stop: threading.Event, *, moved_before: int) -> str:
        """Collect what is missing; the sha256 of the whole."""
        workers = [self._work] * min(self._settings.connections, len(self._todo))
        threads = [threading.Thread(target=self._guarded, args=(job,), daemon=True) for job in (self._follow, *workers)]
        follower = threads[
            0
        ]  # done when all is there and hashed; a worker that still waits for another try is not needed
        self._tell(moved_before)
        for thread in threads:
            thread.start()
        try:
            while follower.is_alive():
                follower.join(_TICK_SECONDS)
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

    def _work(self) -> None:
        buffer = memoryview(bytearray(_BUFFER_BYTES))
        failures = 0
        while spans := self._claim():
            left = deque(spans)
            moved = self.moved
            try:
                self._receive(left, buffer)
                failures = 0
            except Hiccup as hiccup:
                failures = 1 if self.moved > moved else failures + 1
                self._release(left)
                self._pause(hiccup, failures)
            else:
                self._release(left)

    def _claim(self) -> list[Span]:
        """The next ranges to ask for in one request; empty when this worker is done."""
        with self._lock:
            hold = self._hold_until - time.monotonic()
        if hold > 0:
            self._halt.wait(hold)
        with self._lock:
            if self._halt.is_set() or not self._todo:
                return []
            if not self._whole_file:
                spans = [self._todo.popleft()]
            elif self._at_work:
                return []  # whoever is the last to give its ranges back goes on alone
            else:
                spans = sorted(self._todo)
                self._todo.clear()
            self._at_work += 1
            return spans

    def _release(self, left: deque[Span]) -> None:
        """Give back what was claimed and did not arrive."""
        with self._lock:
            self._todo.extendleft(reversed(left))
            self._at_work -= 1

    def _receive(self, left: deque[Span], buffer: memoryview) -> None:
        """Ask for the ranges *left*; what arrived is taken out of it, also when this ends with a ``Hiccup``."""
        with closing(self._source.open(left[0][0], left[-1][1])) as body:
            self._check_head(body, left[0][0])
            position = body.start
            while left:
                start, end = left[0]
                if position < start:
                    position += self._read(body, buffer[: start - position])
                    continue
                flushed = start
                try:
                    while position < end:
                        count = self._read(body, buffer[: end - position])
                        self._partial.write(position, buffer[:count])
                        position += count
                        if position - flushed >= self._step:
                            self._finish(flushed, position)
                            flushed = position
                finally:
                    self._finish(flushed, position)
                    left.popleft()
                    if position < end:
                        left.appendleft((position, end))

    def _check_head(self, body: Body, asked: int) -> None:
        if body.total is not None and body.total != self._file.size:
            raise Hiccup(
                f"the hub says that it has {body.total} bytes, the lock says {self._file.size}", becomes=Failed
            )
        if body.start != asked and not self._whole_file:
            with self._lock:
                self._ranges_ignored += 1
                # Once may be an accident.  A server that knows no ranges gets one request for everything.
                self._whole_file = self._ranges_ignored > 1
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

    def _finish(self, start: int, end: int) -> None:
        if start < end:
            self._check()
            self._partial.finish(start, end)
            with self._lock:
                self._news_at, self._ordered = time.monotonic(), 0.0
            self._grown.set()

    def _pause(self, hiccup: Hiccup, failures: int) -> None:
        """Wait before the next try.

        Raises:
            CorralError: there is no next try.
        """
        if self._halt.is_set():
            return
        settings = self._settings
        wait = hiccup.wait
        if wait is None:
            wait = min(settings.slowest_retry, 0.25 * 2 ** min(failures, 16)) * random.uniform(0.5, 1)  # noqa: S311
        now = time.monotonic()
        with self._lock:
            if hiccup.wait:
                self._ordered += max(0.0, now + wait - max(now, self._hold_until))
                self._hold_until = max(self._hold_until, now + wait)
            self._contradictions += hiccup.becomes is Failed
            deadline = self._news_at + settings.patience + min(self._ordered, settings.obedience)
            hopeless = now + wait > deadline or self._contradictions >= _MAX_CONTRADICTIONS
        if hopeless:
            raise hiccup.becomes(
                f"{self._name} could not be fetched: {hiccup.reason}.",
                next_step="What has arrived is kept; run the same command again when the cause is gone.",
            )
        if wait:
            self._events.put(Retrying(self._name, hiccup.reason, wait))
            self._halt.wait(wait)

    # -- hashing ------------------------------------------------------------------------------------------

    def _follow(self) -> None:
        """Hash the file behind the workers, as far as it has no hole."""
        digest = hashlib.sha256()
        buffer = memoryview(bytearray(_MIB))
        while self._hashed < self._file.size:
            if self._halt.is_set():
                return
            ready = self._partial.frontier - self._hashed
            if not ready:
                self._grown.wait(_TICK_SECONDS)
                self._grown.clear()
                continue
            count = self._partial.read(self._hashed, buffer[:ready])
            digest.update(buffer[:count])
            self._hashed += count
        self._actual = digest.hexdigest()


def _between(least: int, wanted: int, most: int) -> int:
    return max(least, min(wanted, most))


def _cut(spans: list[Span], step: int) -> list[Span]:
    """*spans* in pieces of at most *step* bytes."""
    return [(at, min(at + step, end)) for start, end in spans for at in range(start, end, step)]


def _disk_error(error: OSError, path: Path) -> CannotRun:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return CannotRun(
            f"There is no room left for {path}; what has arrived is kept.",
            next_step="Make room on that file system, then run the same command again: it goes on from here.",
        )
    return CannotRun(f"{path} cannot be written: {error}.", next_step="Look at the file system under the store.")
