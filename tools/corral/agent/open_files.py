"""Which files the processes of this machine have open or mapped, as far as the kernel shows them to this user."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")


@dataclass(frozen=True)
class OpenFiles:
    """The open files, by device and inode; the mapped ones by inode and name: maps have another device on some disks.

    Paths are no help: a container has its own.
    """

    opened: frozenset[tuple[int, int]]
    mapped: frozenset[tuple[int, str]]

    def has(self, path: Path) -> bool:
        """Whether a process has the file at the end of *path* open; False where there is none."""
        end = Path(os.path.realpath(path))
        try:
            found = end.stat()
        except OSError:
            return False
        return (found.st_dev, found.st_ino) in self.opened or (found.st_ino, end.name) in self.mapped


def open_files() -> OpenFiles:
    """What is open now; root is shown all processes, another user their own, and nothing is shown without /proc."""
    processes = [path for path in _entries(_PROC) if path.name.isdecimal()]
    return OpenFiles(
        opened=frozenset(one for process in processes for one in _opened(process)),
        mapped=frozenset(one for process in processes for one in _mapped(process)),
    )


def _entries(folder: Path) -> list[Path]:
    with contextlib.suppress(OSError):  # the process has ended, or is another user's
        return list(folder.iterdir())
    return []


def _opened(process: Path) -> Iterator[tuple[int, int]]:
    for descriptor in _entries(process / "fd"):
        with contextlib.suppress(OSError):
            found = descriptor.stat()
            if stat.S_ISREG(found.st_mode):
                yield found.st_dev, found.st_ino


def _mapped(process: Path) -> Iterator[tuple[int, str]]:
    lines: list[str] = []  # https://man7.org/linux/man-pages/man5/proc_pid_maps.5.html
    with contextlib.suppress(OSError):
        lines = (process / "maps").read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    for line in lines:
        fields = line.split(maxsplit=5)
        if len(fields) == 6 and fields[4] != "0":
            yield int(fields[4]), fields[5].rpartition("/")[2]
