"""Reads models into the page cache of this machine, and measures how much of them is there.

A server that reads its model over the network while it starts is slow to its first answer.  So the files are read
before, on the machine that serves and inside the server's own memory limit.  The kernel may drop the beginning while it
reads the end: the result is what it reports as in memory afterwards.
"""

from __future__ import annotations

import mmap
import os
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .errors import Code, Refused
from .lock_file import Lock, LockedModel
from .page_cache import cached_bytes, memory_limit
from .progress import Cramped, Report, Warming, duration, human
from .stopping import Stopped
from .store import Store, disk_error

ENOUGH = 0.99  # the part of a file that must be in memory for it to count as warm

_WEIGHTS = (".gguf", ".safetensors")
_MIB = 1 << 20
_READ_BYTES = 4 * _MIB
_SAMPLE_READS = 32


@dataclass(frozen=True)
class WarmedFile:
    """One file, read into the page cache; sizes in bytes."""

    model: str
    file: str  # as servers call it: model.gguf
    size: int
    cached_before: int  # in memory before it was read
    cached: int  # in memory after all files were read
    seconds: float  # for reading it
    again_seconds: float | None  # for reading it from memory, by a sample of at most 128 MiB; None when it is not there

    @property
    def is_warm(self) -> bool:
        """Whether it is in memory."""
        return self.cached >= ENOUGH * self.size


def warm(
    lock: Lock,
    store: Store,
    *,
    models: Sequence[str] = (),
    report: Report = lambda _event: None,
    stop: threading.Event | None = None,
) -> tuple[WarmedFile, ...]:
    """Read what servers open for *models* (all of *lock* when empty) into memory.

    Raises:
        Refused: an unknown model, or one that is not in the store.
        CannotRun: a file cannot be read, the kernel does not report to this user what is in memory, or ``Stopped``.
    """
    paths = {path: model for model in lock.select(models) for path in files_of(store, model)}
    sizes = {path: path.stat().st_size for path in paths}
    limit = memory_limit()
    total = sum(sizes.values())
    if limit and total > limit.size:
        report(Cramped(limit.where, limit.size, total))
    before = {path: cached_bytes(path) for path in paths}
    seconds = {}
    for path, model in paths.items():
        began = time.monotonic()
        _read(path, f"{model.id}/{path.name}", sizes[path], report, stop)
        seconds[path] = time.monotonic() - began
    found = []
    for path, model in paths.items():
        size, cached = sizes[path], cached_bytes(path)
        again = _seconds_from_memory(path, size) if cached >= ENOUGH * size else None
        found.append(WarmedFile(model.id, path.name, size, before[path], cached, seconds[path], again))
    return tuple(found)


def files_of(store: Store, model: LockedModel) -> list[Path]:
    """The files to which the link of *model* leads, of whichever version.

    Raises:
        Refused: they are not there.
    """
    link = store.root / model.id
    found = sorted(link.iterdir()) if store.linked_set(model.id) and link.is_dir() else []
    files = [path for path in found if path.suffix in _WEIGHTS]
    gone = [path for path in files if not path.is_file()]
    if not files or gone:
        raise Refused(
            f"{gone[0] if gone else link} is not there: nothing to warm.",
            next_step=f"Bring it with: corral fetch {model.id}",
            code=Code.NOT_IN_STORE,
            fields={"model": model.id},
        )
    return files


def _read(path: Path, name: str, size: int, report: Report, stop: threading.Event | None) -> None:
    """Read all of *path*, front to back: the kernel reads ahead by itself, in large pieces."""
    done = 0
    try:
        # A buffer that starts on a page: the kernel copies into it faster than into any other.
        with path.open("rb", buffering=0) as file, mmap.mmap(-1, _READ_BYTES) as buffer:
            if hasattr(os, "posix_fadvise"):
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_SEQUENTIAL)
            while count := file.readinto(buffer):
                done += count
                report(Warming(name, done, size))
                if stop and stop.is_set():
                    raise Stopped
    except OSError as error:
        raise disk_error(error, path) from error


def _seconds_from_memory(path: Path, size: int) -> float:
    """The time for reading *size* bytes from memory, by reads spread over the file."""
    buffer = bytearray(_READ_BYTES)
    step = max(_READ_BYTES, size // _SAMPLE_READS)
    done = 0
    with path.open("rb", buffering=0) as file:
        began = time.monotonic()
        for offset in range(0, size, step):
            done += os.preadv(file.fileno(), [buffer], offset)
        taken = time.monotonic() - began
    return taken * size / done if done else taken


def total(files: Sequence[WarmedFile]) -> WarmedFile:
    """All *files* as if they were one."""
    size, before, now = (
        sum(sizes) for sizes in zip(*((one.size, one.cached_before, one.cached) for one in files), strict=True)
    )
    again = [one.again_seconds for one in files if one.again_seconds is not None]
    seconds = sum(one.seconds for one in files)
    return WarmedFile("total", "", size, before, now, seconds, sum(again) if len(again) == len(files) else None)


def describe_warmth(file: WarmedFile) -> str:
    """One sentence about *file*."""
    again = "" if file.again_seconds is None else f"; from memory {duration(file.again_seconds)}"
    name = f"{file.model}/{file.file}".rstrip("/")
    return (
        f"{name}: {human(file.size)}, {_percent(file.cached, file.size)} in memory, "
        f"{_percent(file.cached_before, file.size)} before; read in {duration(file.seconds)}{again}"
    )


def _percent(part: int, whole: int) -> str:
    return f"{100 * part // whole if whole else 100} %"
