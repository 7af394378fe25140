"""A file that is being collected: its bytes, and a journal of which of them are safely on disk.

``<folder>/<sha256>.partial`` has its full length from the start; holes are what is missing.
``<folder>/<sha256>.journal`` has a first line that says which file this is, then a line ``<start> <end>`` for
each range, written only after the range was flushed.  A process may die at any moment: what the journal names
is there.

Bytes take three steps: ``write`` hands them to the kernel, ``arrived`` lets them be hashed, ``flush`` makes them
durable and says so in the journal.
"""

from __future__ import annotations

import errno
import json
import os
import threading
from collections.abc import Iterable
from pathlib import Path

from .lock_file import LockedFile
from .store import sync_folder
from .writeback import start_writing

Span = tuple[int, int]
"""Bytes from the first offset up to, without, the second."""

_BLOCK_BYTES = 4 << 20
"""Whole blocks of this size are written early: fewer, larger requests to the disk."""


def add_span(spans: list[Span], new: Span) -> list[Span]:
    """*spans* (sorted, apart from each other) with *new* joined in, the same way."""
    start, end = new
    before = [span for span in spans if span[1] < start]
    after = [span for span in spans if span[0] > end]
    touching = [span for span in spans if span[1] >= start and span[0] <= end]
    joined = (min([start, *(span[0] for span in touching)]), max([end, *(span[1] for span in touching)]))
    return [*before, joined, *after]


def gaps(spans: list[Span], size: int) -> list[Span]:
    """What *spans* leave out of ``(0, size)``."""
    edges = [0, *(offset for span in spans for offset in span), size]
    return [(start, end) for start, end in zip(edges[::2], edges[1::2], strict=True) if start < end]


class Partial:
    """The collected part of one file; safe to use from several threads.

    Args:
        folder: exists, and belongs to this process alone.
        file: what is being collected.
    """

    def __init__(self, folder: Path, file: LockedFile) -> None:
        self.path = folder / f"{file.sha256}.partial"
        self._file = file
        self._flushing = threading.Lock()
        self._changed = threading.Condition()  # guards the spans
        kept = read_journal(folder, file)
        self._descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o644)
        self._journal = os.open(folder / f"{file.sha256}.journal", os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        self._there: list[Span] = kept or []  # may be read again
        self._unflushed: list[Span] = []  # of these, what a power failure would lose
        if kept is None:
            self.clear()
            sync_folder(folder)

    @property
    def done(self) -> int:
        """How many bytes are on disk."""
        with self._changed:
            return length(self._there) - length(self._unflushed)

    @property
    def unflushed(self) -> int:
        """How many bytes have arrived and are not yet on disk."""
        with self._changed:
            return length(self._unflushed)

    @property
    def frontier(self) -> int:
        """Up to where all bytes from the start on have arrived."""
        with self._changed:
            return self._frontier()

    def missing(self) -> list[Span]:
        """What has not arrived yet, in order."""
        with self._changed:
            return gaps(self._there, self._file.size)

    def write(self, offset: int, data: memoryview) -> None:
        """Put *data* at *offset*; it counts only after ``arrived``."""
        while data:
            count = os.pwrite(self._descriptor, data, offset)
            offset, data = offset + count, data[count:]

    def arrived(self, start: int, end: int) -> None:
        """The bytes from *start* to *end* were written: they may be hashed, and are to be flushed."""
        if start >= end:
            return
        block_end = end - end % _BLOCK_BYTES
        if block_end > start:
            start_writing(self._descriptor, block_end - _BLOCK_BYTES, block_end)
        with self._changed:
            self._there = add_span(self._there, (start, end))
            self._unflushed = add_span(self._unflushed, (start, end))
            self._changed.notify_all()

    def flush(self) -> None:
        """Make what has arrived durable, then say so in the journal."""
        with self._flushing:
            with self._changed:
                spans = self._unflushed
            if not spans:
                return
            os.fdatasync(self._descriptor)
            # The line end comes first, so that a line which a crash cut short does not swallow the next one;
            # cut short itself, a line names no byte that is not there.
            os.write(self._journal, "".join(f"\n{start} {end}" for start, end in spans).encode())
            with self._changed:
                self._unflushed = [rest for span in self._unflushed for rest in _without(span, spans)]
                self._changed.notify_all()

    def wait_for_frontier(self, beyond: int, seconds: float) -> int:
        """The frontier, once it is *beyond* that or *seconds* are over."""
        with self._changed:
            self._changed.wait_for(lambda: self._frontier() > beyond, seconds)
            return self._frontier()

    def wait_for_unflushed(self, least: int, seconds: float) -> bool:
        """Until so many bytes wait to be flushed, or *seconds* are over; whether they do."""
        with self._changed:
            return self._changed.wait_for(lambda: length(self._unflushed) >= least, seconds)

    def wait_for_flushed(self, most: int, seconds: float) -> bool:
        """Until at most so many bytes wait to be flushed, or *seconds* are over; whether that is so."""
        with self._changed:
            return self._changed.wait_for(lambda: length(self._unflushed) <= most, seconds)

    def read(self, offset: int, buffer: memoryview) -> int:
        """Fill the front of *buffer* from *offset* on; how many bytes that were.

        Raises:
            OSError: the file cannot be read, or has become shorter.
        """
        count = os.preadv(self._descriptor, [buffer], offset)
        if buffer and not count:
            raise OSError(errno.EIO, f"the file ends before byte {offset}")
        return count

    def clear(self) -> None:
        """Begin anew: nothing is there."""
        with self._flushing, self._changed:
            # The journal goes first, so that it never names bytes that are gone.
            os.ftruncate(self._journal, 0)
            os.fsync(self._journal)
            os.ftruncate(self._descriptor, 0)
            # A hole of the right size.  Reserving its blocks would write every one of them where the file system knows
            # no fallocate (older NFS); free space was summed up before, and this shows by blocks what has arrived.
            os.ftruncate(self._descriptor, self._file.size)
            os.fsync(self._descriptor)
            os.write(self._journal, _header(self._file).encode())
            os.fsync(self._journal)
            self._there, self._unflushed = [], []

    def sync(self) -> None:
        """Make content and length durable."""
        os.fsync(self._descriptor)

    def close(self) -> None:
        """Let go of both files; what is there stays."""
        os.close(self._descriptor)
        os.close(self._journal)

    def _frontier(self) -> int:
        return self._there[0][1] if self._there and self._there[0][0] == 0 else 0


def read_journal(folder: Path, file: LockedFile) -> list[Span] | None:
    """The ranges of *file* that an earlier process left in *folder*, sorted and apart from each other.

    Returns:
        None when there is nothing, it is about another file, or the bytes are not there.
    """
    try:
        text = (folder / f"{file.sha256}.journal").read_bytes().decode(errors="replace")
        found = (folder / f"{file.sha256}.partial").stat().st_size
    except OSError:
        return None
    header, *lines = text.split("\n")
    if header != _header(file) or found != file.size:
        return None
    spans: list[Span] = []
    for line in lines:
        words = line.split(" ")
        if len(words) == 2 and all(word.isascii() and word.isdigit() for word in words):
            start, end = int(words[0]), int(words[1])
            if start < end <= file.size:
                spans = add_span(spans, (start, end))
    return spans


def length(spans: Iterable[Span]) -> int:
    """How many bytes *spans* cover."""
    return sum(end - start for start, end in spans)


def _without(span: Span, others: list[Span]) -> list[Span]:
    """What of *span* lies in none of *others* (sorted, apart from each other)."""
    start, end = span
    rest = []
    for other_start, other_end in others:
        if other_start >= end:
            break
        if other_end > start:
            rest.append((start, other_start))
            start = other_end
    return [(start, end) for start, end in [*rest, (start, end)] if start < end]


def _header(file: LockedFile) -> str:
    return json.dumps({"version": 1, "sha256": file.sha256, "size": file.size})
