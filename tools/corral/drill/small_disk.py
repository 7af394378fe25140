"""A file system of a few MiB, which can really be full: a tmpfs in name spaces of its own, which need no root."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from corral.errors import CannotRun

UNSHARE = ("unshare", "--mount", *(() if os.geteuid() == 0 else ("--user", "--map-root-user")))
"""The command that gives a program a mount name space."""
_MOUNT = 'mount -t tmpfs -o "size=$2" corral "$1" && echo ready && exec cat'
_BLOCK = b"x" * 4096


@contextmanager
def small_disk(folder: Path, size: int) -> Iterator[Path]:
    """A tmpfs of *size* bytes on *folder*, which is made, as long as the block and this process run.

    Yields:
        The path that leads into it from everywhere, through /proc: its realpath leads elsewhere.

    Raises:
        CannotRun: the kernel permits no such mount here.
    """
    folder.mkdir()
    words = (*UNSHARE, "sh", "-c", _MOUNT, "sh", str(folder), str(size))
    try:
        holder = subprocess.Popen(
            words,
            stdin=subprocess.PIPE,  # its end is that of the mount
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,  # Ctrl-C is not for it
        )
    except OSError as error:
        raise _not_permitted(f"{words[0]}: {error.strerror}") from None
    with holder:
        assert holder.stdout is not None
        if holder.stdout.readline() != "ready\n":
            raise _not_permitted(holder.communicate()[1].strip())
        yield Path(f"/proc/{holder.pid}/root{folder}")
        holder.communicate()


def fill(folder: Path) -> Path:
    """Take all room that is left in *folder*; the file to remove for getting it back."""
    filler = folder / "filler"
    with filler.open("wb", buffering=0) as file:
        try:
            while file.write(_BLOCK):
                pass
        except OSError:
            return filler
    raise AssertionError("the disk has no end")


def _not_permitted(reason: str) -> CannotRun:
    step = "Run it as root, or where users may make name spaces: sysctl user.max_user_namespaces"
    return CannotRun(f"A small disk cannot be mounted here: {reason}.", next_step=step)
