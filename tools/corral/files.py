"""Files that several processes use: written atomically, folders locked exclusively."""

from __future__ import annotations

import errno
import fcntl
import os
import shlex
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from corral.errors import CannotRun, Refused

_POLL_SECONDS = 0.05


def write_atomically(path: Path, content: str | bytes, *, mode: int | None = None) -> None:
    """Replace *path* with *content* (text as UTF-8) atomically: a reader gets the old file or the new one.

    A link stays, and the file that it leads to is replaced.  Without *mode* the old file's stays; a new file has 0644.

    Raises:
        OSError: the folder is missing or not writable, or *path* is no regular file; the old file is untouched.
    """
    path = Path(os.path.realpath(path)) if path.is_symlink() else path
    if path.exists():
        if not path.is_file():
            raise OSError(errno.EINVAL, "It is no regular file")
        mode = stat.S_IMODE(path.stat().st_mode) if mode is None else mode
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(content.encode() if isinstance(content, str) else content)
            stream.flush()
            os.fsync(stream.fileno())
        Path(name).chmod(0o644 if mode is None else mode)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


@contextmanager
def refuse_unwritable(path: Path, *, next_step: str) -> Iterator[None]:
    """Refuse *path* when the block cannot write it.

    Raises:
        Refused: the block raised an OSError; *next_step* is for all but a full disk.
    """
    try:
        yield
    except OSError as error:
        next_step = _make_room(path) if _is_full(error) else next_step
        raise Refused(f"{path} cannot be written: {error.strerror}.", next_step=next_step) from None


@contextmanager
def exclusive_lock(folder: Path, *, timeout_s: float, remedy: str) -> Iterator[None]:
    """Make *folder* and be the only corral that uses it; for folders of this machine, not for a shared store.

    Args:
        folder: its file ``lock`` is what is locked; a process that dies releases it.
        timeout_s: seconds to wait for another corral.
        remedy: the next step when the folder cannot be used.

    Raises:
        CannotRun: the folder is not writable or full, or another corral uses it for longer than *timeout_s*.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        gate = (folder / "lock").open("w")
    except OSError as error:
        raise CannotRun(f"The folder {folder} cannot be used: {error.strerror}.", next_step=remedy) from None
    with gate:
        deadline = time.monotonic() + timeout_s
        while not _locked(gate.fileno()):
            if time.monotonic() > deadline:
                what = f"Another corral has been at work in {folder} for {timeout_s:.0f} s."
                raise CannotRun(what, next_step=remedy)
            time.sleep(_POLL_SECONDS)
        try:
            yield
        except OSError as error:
            if not _is_full(error):
                raise
            raise CannotRun(f"{folder} is full: {error.strerror}.", next_step=_make_room(folder)) from None


def _is_full(error: OSError) -> bool:
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


def _make_room(path: Path) -> str:
    return f"Make room there: df -h {shlex.quote(str(path if path.is_dir() else path.parent))}"


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
