"""A partly downloaded file: its bytes, and a journal of which of them are durable.

``<folder>/<sha256>.partial`` has its full length from the start; holes are what is missing.
``<folder>/<sha256>.journal`` has a first line that names the file, then a line ``<start> <end>`` for each range,
written only after the range was flushed.  A process may die at any moment: what the journal names is on disk.

Bytes take three steps: ``write`` passes them to the kernel, ``arrived`` lets them be hashed, ``flush`` makes them
durable and records them in the journal.
"""

from __future__ import annotations

import errno
import json
import os
import re
import threading
from collections.abc import Callable, Iterable
from pathlib import Path

from .lock_file import LockedFile
from .page_cache import start_writing
from .store import sync_folder

Span = tuple[int, int]
"""Bytes from the first offset up to, without, the second."""

_OFFSET = re.compile(r"[0-9]{1,18}")

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
    """The parts of ``(0, size)`` that *spans* leave out."""
    edges = [0, *(offset for span in spans for offset in span), size]
    return [(start, end) for start, end in zip(edges[::2], edges[1::2], strict=True) if start < end]


class Partial:
    """The partial *file* in *folder*, which belongs to this process alone; safe to use from several threads."""

    def __init__(self, folder: Path, file: LockedFile) -> None:
        self.path = folder / f"{file.sha256}.partial"
        self._file = file
        self._flushing = threading.Lock()
        self._changed = threading.Condition()  # guards the spans; reentrant
        kept = read_journal(folder, file)
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW  # an earlier owner of the folder may be another user
        self._descriptor = os.open(self.path, flags, 0o644)
        self._journal = os.open(folder / f"{file.sha256}.journal", flags | os.O_APPEND, 0o644)
        self._arrived: list[Span] = kept or []  # may be read
        self._unflushed: list[Span] = []  # the part of it that a power failure would lose
        if kept is None:
            self.clear()
            sync_folder(folder)

    @property
    def done(self) -> int:
        """How many bytes are durable."""
        with self._changed:
            return length(self._arrived) - length(self._unflushed)

    @property
    def unflushed(self) -> int:
        """How many bytes have arrived and are not yet durable."""
        with self._changed:
            return length(self._unflushed)

    @property
    def frontier(self) -> int:
        """The offset up to which all bytes have arrived."""
        with self._changed:
            return self._arrived[0][1] if self._arrived and self._arrived[0][0] == 0 else 0

    def missing(self) -> list[Span]:
        """What has not arrived yet, in order."""
        with self._changed:
            return gaps(self._arrived, self._file.size)

    def write(self, offset: int, data: memoryview) -> None:
        """Put *data* at *offset*; it counts only after ``arrived``."""
        while data:
            count = os.pwrite(self._descriptor, data, offset)
            offset, data = offset + count, data[count:]

    def arrived(self, start: int, end: int) -> None:
        """Count the bytes from *start* to *end*, which were written: they may be hashed, and need a flush."""
        if start >= end:
            return
        block_end = end - end % _BLOCK_BYTES
        if block_end > start:
            start_writing(self._descriptor, block_end - _BLOCK_BYTES, block_end)
        with self._changed:
            self._arrived = add_span(self._arrived, (start, end))
            self._unflushed = add_span(self._unflushed, (start, end))
            self._changed.notify_all()

    def flush(self) -> None:
        """Make what has arrived durable, then record it in the journal."""
        with self._flushing:
            with self._changed:
                spans = self._unflushed
            if not spans:
                return
            os.fdatasync(self._descriptor)
            # Each line begins with its line end, so that a line cut short by a crash does not merge with the next one;
            # a line cut short names no byte that is missing.
            os.write(self._journal, "".join(f"\n{start} {end}" for start, end in spans).encode())
            with self._changed:
                self._unflushed = [rest for span in self._unflushed for rest in _without(span, spans)]
                self._changed.notify_all()

    def wait_until(self, condition: Callable[[], bool], seconds: float) -> None:
        """Wait until *condition* of this object's figures holds, or for *seconds*."""
        with self._changed:
            self._changed.wait_for(condition, seconds)

    def read(self, offset: int, buffer: memoryview) -> int:
        """Fill the front of *buffer* from *offset* on; the number of bytes.  A shorter file is an ``OSError``."""
        count = os.preadv(self._descriptor, [buffer], offset)
        if buffer and not count:
            raise OSError(errno.EIO, f"the file ends before byte {offset}")
        return count

    def clear(self) -> None:
        """Forget all bytes."""
        with self._flushing, self._changed:
            # The journal is emptied first, so that it never names bytes that are gone.
            os.ftruncate(self._journal, 0)
            os.fsync(self._journal)
            os.ftruncate(self._descriptor, 0)
            # A hole of the right size.  Reserving its blocks would write every one of them where the file system has no
            # fallocate (older NFS); free space was compared before, and the allocated blocks show what has arrived.
            os.ftruncate(self._descriptor, self._file.size)
            os.fsync(self._descriptor)
            os.write(self._journal, _header(self._file).encode())
            os.fsync(self._journal)
            self._arrived, self._unflushed = [], []

    def sync(self) -> None:
        """Make content and length durable."""
        os.fsync(self._descriptor)

    def close(self) -> None:
        """Close both files."""
        os.close(self._descriptor)
        os.close(self._journal)


def read_journal(folder: Path, file: LockedFile) -> list[Span] | None:
    """The ranges of *file* that an earlier process left in *folder*, sorted and apart from each other.

    None when there is no journal, it is of another file, or the bytes are missing.
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
        if len(words) == 2 and all(map(_OFFSET.fullmatch, words)):
            start, end = int(words[0]), int(words[1])
            if start < end <= file.size:
                spans = add_span(spans, (start, end))
    return spans


def length(spans: Iterable[Span]) -> int:
    """How many bytes *spans* cover."""
    return sum(end - start for start, end in spans)


def _without(span: Span, others: list[Span]) -> list[Span]:
    """The parts of *span* that lie in none of *others* (sorted, apart from each other)."""
    start, end = span
    inside = [
        (max(start, left) - start, min(end, right) - start) for left, right in others if left < end and right > start
    ]
    return [(start + left, start + right) for left, right in gaps(inside, end - start)]


def _header(file: LockedFile) -> str:
    return json.dumps({"version": 1, "sha256": file.sha256, "size": file.size})
