"""How much memory this process may fill, page cache included.

The kernel charges cached pages to the memory cgroup of whoever reads them first, and drops them when that cgroup,
or any around it, is full.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import NamedTuple

_LIMIT_FILES = {"cgroup": ("memory.limit_in_bytes",), "cgroup2": ("memory.max", "memory.high")}
_INHERITED = "hierarchical_memory_limit"


class Limit(NamedTuple):
    """The tightest limit: bytes, and what sets it, as words for a sentence."""

    size: int
    where: str


def memory_limit(*, root: Path = Path("/")) -> Limit | None:
    """The smallest of the machine's memory and of the limits of this process's memory cgroup and all around it.

    Args:
        root: where ``proc/self`` is found, and the cgroups under the paths that it names.

    Returns:
        None when nothing of it can be told.
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
            with contextlib.suppress(OSError):  # also knows of groups that cannot be seen from inside a container
                for line in (group / "memory.stat").read_text(encoding="ascii").splitlines():
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
    """Where this process is in the hierarchy of *kind*."""
    for line in _lines(root / "proc/self/cgroup"):
        _, controllers, path = line.split(":", 2)
        if not controllers if kind == "cgroup2" else "memory" in controllers.split(","):
            return PurePosixPath(path)
    return None


def _lines(path: Path) -> list[str]:
    with contextlib.suppress(OSError):
        return path.read_text(encoding="utf-8", errors="replace").splitlines()
    return []
