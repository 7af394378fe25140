"""Asking the kernel to start writing now, where there is a way to ask.

Without it gigabytes of dirty pages pile up, and the flush at the end waits for all of them.  It is a hint: nothing
is durable before ``fdatasync``, and a file system may do nothing about it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable

_WRITE = 2  # SYNC_FILE_RANGE_WRITE: start, do not wait


def _find() -> Callable[[int, int, int, int], int] | None:
    try:
        call = ctypes.CDLL(None).sync_file_range
    except (OSError, AttributeError):  # only Linux has it
        return None
    call.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)
    call.restype = ctypes.c_int
    found: Callable[[int, int, int, int], int] = call
    return found


_sync_file_range = _find()


def start_writing(descriptor: int, start: int, end: int) -> None:
    """Start bringing the bytes from *start* to *end* of *descriptor* to disk, without waiting for it."""
    if _sync_file_range is not None:
        _sync_file_range(descriptor, start, end - start, _WRITE)
