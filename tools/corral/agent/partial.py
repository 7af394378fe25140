"""A file that is being collected: its bytes, and a journal of which of them are safely on disk.

``<folder>/<sha256>.partial`` has its full length from the start; holes are what is missing.
``<folder>/<sha256>.journal`` has a first line that says which file this is, then a line ``<start> <end>`` for
each range, written only after the range was flushed.  A process may die at any moment: what the journal names
is there.
"""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path

from .lock_file import LockedFile
from .store import sync_folder

Span = tuple[int, int]
"""Bytes from the first offset up to, without, the second."""


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
        self._lock = threading.Lock()
        spans = read_journal(folder, file)
        self._descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o644)
        self._journal = os.open(folder / f"{file.sha256}.journal", os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        self._spans = spans or []
        if spans is None:
            self.clear()
            sync_folder(folder)

    @property
    def done(self) -> int:
        """How many bytes are on disk."""
        with self._lock:
            return length(self._spans)

    @property
    def frontier(self) -> int:
        """Up to where all bytes from the start on are there."""
        with self._lock:
            return self._spans[0][1] if self._spans and self._spans[0][0] == 0 else 0

    def missing(self) -> list[Span]:
        """What is not there yet, in order."""
        with self._lock:
            return gaps(self._spans, self._file.size)

    def write(self, offset: int, data: memoryview) -> None:
        """Put *data* at *offset*; it counts only after ``finish``."""
        while data:
            count = os.pwrite(self._descriptor, data, offset)
            offset, data = offset + count, data[count:]

    def read(self, offset: int, buffer: memoryview) -> int:
        """Fill the front of *buffer* from *offset* on; how many bytes that were."""
        return os.preadv(self._descriptor, [buffer], offset)

    def finish(self, start: int, end: int) -> None:
        """The bytes from *start* to *end* were written: flush them, then say so in the journal."""
        if start >= end:
            return
        os.fdatasync(self._descriptor)
        with self._lock:
            # The line end comes first, so that a line which a crash cut short does not swallow the next one;
            # cut short itself, a line names no byte that is not there.
            os.write(self._journal, f"\n{start} {end}".encode())
            self._spans = add_span(self._spans, (start, end))

    def clear(self) -> None:
        """Begin anew: nothing is there."""
        with self._lock:
            os.ftruncate(self._journal, 0)
            os.ftruncate(self._descriptor, 0)
            # A hole of the right size: reserving blocks would write all of them on file systems without fallocate.
            os.ftruncate(self._descriptor, self._file.size)
            os.write(self._journal, _header(self._file).encode())
            os.fsync(self._descriptor)
            os.fsync(self._journal)
            self._spans = []

    def sync(self) -> None:
        """Make content and length durable."""
        os.fsync(self._descriptor)

    def close(self) -> None:
        """Let go of both files; what is there stays."""
        os.close(self._descriptor)
        os.close(self._journal)


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


def length(spans: list[Span]) -> int:
    """How many bytes *spans* cover."""
    return sum(end - start for start, end in spans)


def _header(file: LockedFile) -> str:
    return json.dumps({"version": 1, "sha256": file.sha256, "size": file.size})
