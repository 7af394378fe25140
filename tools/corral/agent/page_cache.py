"""The kernel's page cache: how much of a file is in it, how much may be, and when it is written to disk."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import mmap
import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from .errors import CannotRun, Code

_libc: Any = ctypes.CDLL(None, use_errno=True)

# -- what is in memory -----------------------------------------------------------------------------------------------

_WINDOW_BYTES = 1 << 30
_PROT_NONE = 0
_MAP_FAILED = ctypes.c_void_p(-1).value
_CAP_FOWNER = 1 << 3
_LOWEST_BIT = bytes(value & 1 for value in range(256))
"""The other bits of what mincore returns have no meaning."""


def cached_bytes(path: Path) -> int:
    """How many bytes of *path* are in this machine's page cache, in whole pages, by ``mincore``; nothing is read.

    ``CannotRun`` where the file cannot be opened, or the system does not give this measurement to this user.
    """
    try:
        with path.open("rb", buffering=0) as file:
            status = os.fstat(file.fileno())
            _require_permission(path, status.st_uid)
            pages = sum(
                _resident_pages(file.fileno(), start, min(_WINDOW_BYTES, status.st_size - start))
                for start in range(0, status.st_size, _WINDOW_BYTES)
            )
    except OSError as error:
        raise CannotRun(
            f"What of {path} is in memory cannot be measured: {error.strerror}.",
            next_step="Run this on the Linux machine that serves the model",
            code=Code.CACHE_UNREADABLE,
            fields={"path": str(path)},
        ) from error
    return min(status.st_size, pages * mmap.PAGESIZE)


def drop(path: Path) -> None:
    """Ask the kernel to drop *path* from this machine's page cache; pages that a process has mapped stay.

    ``CannotRun`` where the file cannot be opened, or the system has no such request.
    """
    try:
        with path.open("rb", buffering=0) as file:
            os.fsync(file.fileno())  # pages that are not written yet stay
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    except (OSError, AttributeError) as error:
        raise CannotRun(
            f"{path} cannot be dropped from memory: {getattr(error, 'strerror', None) or error}.",
            next_step="Run this on the Linux machine that serves the model",
            code=Code.CACHE_UNREADABLE,
            fields={"path": str(path)},
        ) from error


def _require_permission(path: Path, owner: int) -> None:
    # To other users Linux reports every page as resident, whatever is true (mm/mincore.c, since 5.2).
    if os.geteuid() == owner or _effective_capabilities() & _CAP_FOWNER or os.access(path, os.W_OK):
        return
    raise CannotRun(
        f"The kernel reports what of {path} is in memory to its owner, and to users who may write it; "
        f"user {os.geteuid()} is neither.",
        next_step=f"Run this as user {owner}, the one who fetched it",
        code=Code.CACHE_UNREADABLE,
        fields={"path": str(path), "owner": owner},
    )


def _effective_capabilities() -> int:
    return next(
        (int(line.split()[1], 16) for line in _lines(Path("/proc/self/status")) if line.startswith("CapEff:")), 0
    )


def _resident_pages(descriptor: int, start: int, length: int) -> int:
    map_file = getattr(_libc, "mmap64", _libc.mmap)  # its offset has 64 bits everywhere
    map_file.restype = ctypes.c_void_p
    map_file.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_int64)
    address = map_file(None, length, _PROT_NONE, mmap.MAP_SHARED, descriptor, start)
    if address == _MAP_FAILED:
        raise _last_error()
    pages = (ctypes.c_ubyte * -(-length // mmap.PAGESIZE))()
    try:
        if _libc.mincore(ctypes.c_void_p(address), ctypes.c_size_t(length), pages):
            raise _last_error()
    finally:
        _libc.munmap(ctypes.c_void_p(address), ctypes.c_size_t(length))
    return bytes(pages).translate(_LOWEST_BIT).count(1)


def _last_error() -> OSError:
    number = ctypes.get_errno() or errno.EINVAL
    return OSError(number, os.strerror(number))


# -- what may be in memory -------------------------------------------------------------------------------------------

_LIMIT_FILES = {"cgroup": ("memory.limit_in_bytes",), "cgroup2": ("memory.max", "memory.high")}
_INHERITED = "hierarchical_memory_limit"


class Limit(NamedTuple):
    """The tightest limit in bytes, and what sets it, as words for a sentence."""

    size: int
    where: str


def memory_limit(*, root: Path = Path("/")) -> Limit | None:
    """The smallest of the machine's memory and the limits of this process's memory cgroup and all around it.

    The kernel charges cached pages to the memory cgroup that reads them first, and drops them when that cgroup, or any
    around it, is full.  ``proc/self``, and the cgroups that it names, are below *root*; None when nothing is known.
    """
    limits = list(_cgroup_limits(root))
    with contextlib.suppress(ValueError, OSError):
        limits.append(Limit(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"), "this machine's memory"))
    return min(limits, default=None)


def _cgroup_limits(root: Path) -> Iterator[Limit]:
    for kind, mounted_part, mount in _mounts(root):
        own = _own_path(root, kind)
        if own is None:
            continue
        folder = mount
        if own.is_relative_to(mounted_part):  # else the mount shows our own group alone, as inside a container
            folder = mount / own.relative_to(mounted_part)
        for group in (folder, *folder.parents):
            for name in _LIMIT_FILES[kind]:
                with contextlib.suppress(OSError, ValueError):  # "max": none
                    yield Limit(int((group / name).read_text(encoding="ascii")), f"the memory cgroup {group}")
            for line in _lines(group / "memory.stat"):  # includes groups that are not visible inside a container
                if line.startswith(_INHERITED):
                    yield Limit(int(line.split()[1]), f"a memory cgroup around {group}")
            if group == mount:
                break


def _mounts(root: Path) -> Iterator[tuple[str, PurePosixPath, Path]]:
    """Of each hierarchy that limits memory: its kind, which part of it is mounted, and where."""
    for line in _lines(root / "proc/self/mountinfo"):
        before, _, after = line.partition(" - ")
        kind, *_, options = after.split(" ")
        if kind == "cgroup2" or (kind == "cgroup" and "memory" in options.split(",")):
            part, mount = before.split(" ")[3:5]
            yield kind, PurePosixPath(part), root / mount.lstrip("/")


def _own_path(root: Path, kind: str) -> PurePosixPath | None:
    """The cgroup of this process in the hierarchy of *kind*."""
    for line in _lines(root / "proc/self/cgroup"):
        _, controllers, path = line.split(":", 2)
        if not controllers if kind == "cgroup2" else "memory" in controllers.split(","):
            return PurePosixPath(path)
    return None


def _lines(path: Path) -> list[str]:
    with contextlib.suppress(OSError):
        return path.read_text(encoding="utf-8", errors="replace").splitlines()
    return []


# -- writing to disk -------------------------------------------------------------------------------------------------

_SYNC_FILE_RANGE_WRITE = 2  # start, do not wait
_sync_file_range: Any = getattr(_libc, "sync_file_range", None)  # only Linux has it
if _sync_file_range is not None:
    _sync_file_range.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)


def start_writing(descriptor: int, start: int, end: int) -> None:
    """Start writing the bytes from *start* to *end* of *descriptor* to disk, without waiting for it.

    Without it gigabytes of dirty pages accumulate, and the flush at the end waits for all of them.  It is a hint:
    nothing is durable before ``fdatasync``, and a file system may ignore it.
    """
    if _sync_file_range is not None:
        _sync_file_range(descriptor, start, end - start, _SYNC_FILE_RANGE_WRITE)
