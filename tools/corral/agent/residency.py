"""Asking the kernel which part of a file is in memory (``mincore``); nothing is read for it.

``posix_fadvise`` and the like report success whatever happens; this is a measurement.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
from pathlib import Path

from .errors import CannotRun, Code

_WINDOW_BYTES = 1 << 30
_PROT_NONE = 0
_MAP_SHARED = 1
_MAP_FAILED = ctypes.c_void_p(-1).value
_CAP_FOWNER = 1 << 3
_LOWEST_BIT = bytes(value & 1 for value in range(256))
"""The other bits of what mincore fills in have no meaning."""


def cached_bytes(path: Path) -> int:
    """How many bytes of *path* are in this machine's page cache, in whole pages.

    Raises:
        CannotRun: this user may not know.
        OSError: the file cannot be opened, or this system has no such measurement.
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        size = os.fstat(descriptor).st_size
        _require_the_truth(path, descriptor)
        pages = sum(
            _resident_pages(descriptor, start, min(_WINDOW_BYTES, size - start))
            for start in range(0, size, _WINDOW_BYTES)
        )
    finally:
        os.close(descriptor)
    return min(size, pages * mmap.PAGESIZE)


def _require_the_truth(path: Path, descriptor: int) -> None:
    # To anybody else Linux answers "all of it", whatever is true (mm/mincore.c, since 5.2).
    owner = os.fstat(descriptor).st_uid
    if os.geteuid() == owner or _effective_capabilities() & _CAP_FOWNER or os.access(path, os.W_OK):
        return
    raise CannotRun(
        f"What of {path} is in memory is told to its owner, and to who may write it; user {os.geteuid()} is neither.",
        next_step=f"Run this as user {owner}, the one who fetched it",
        code=Code.CACHE_UNREADABLE,
        fields={"path": str(path), "owner": owner},
    )


def _effective_capabilities() -> int:
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
    except OSError:
        return 0
    return next((int(line.split()[1], 16) for line in status.splitlines() if line.startswith("CapEff:")), 0)


def _resident_pages(descriptor: int, start: int, length: int) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    map_file = getattr(libc, "mmap64", libc.mmap)  # its offset has 64 bits everywhere
    map_file.restype = ctypes.c_void_p
    map_file.argtypes = [
        ctypes.c_void_p,
        ctypes.c_size_t,
        ctypes.c_int,
        ctypes.c_int,
        ctypes.c_int,
        ctypes.c_int64,
    ]
    address = map_file(None, length, _PROT_NONE, _MAP_SHARED, descriptor, start)
    if address == _MAP_FAILED:
        raise _last_error()
    pages = (ctypes.c_ubyte * -(-length // mmap.PAGESIZE))()
    try:
        if libc.mincore(ctypes.c_void_p(address), ctypes.c_size_t(length), pages):
            raise _last_error()
    finally:
        libc.munmap(ctypes.c_void_p(address), ctypes.c_size_t(length))
    return bytes(pages).translate(_LOWEST_BIT).count(1)


def _last_error() -> OSError:
    number = ctypes.get_errno() or errno.EINVAL
    return OSError(number, os.strerror(number))
