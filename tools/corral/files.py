"""Files that several processes use: written atomically, folders locked exclusively."""

from __future__ import annotations

import fcntl
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from corral.errors import CannotRun, Refused

_POLL_SECONDS = 0.05


def write_atomically(path: Path, content: str | bytes, *, mode: int = 0o644) -> None:
    """Replace *path* with *content* (text as UTF-8) atomically: a reader gets the old file or the new one.

    Raises:
        OSError: the folder is missing or not writable; the old file is untouched.
    """
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(content.encode() if isinstance(content, str) else content)
            stream.flush()
            os.fsync(stream.fileno())
        Path(name).chmod(mode)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


@contextmanager
def refuse_unwritable(path: Path, *, next_step: str) -> Iterator[None]:
    """Refuse *path* when the block cannot write it.

    Raises:
        Refused: the block raised an OSError.
    """
    try:
        yield
    except OSError as error:
        raise Refused(f"{path} cannot be written: {error.strerror}.", next_step=next_step) from None


@contextmanager
def exclusive_lock(folder: Path, *, timeout_s: float, remedy: str) -> Iterator[None]:
    """Make *folder* and be the only corral that uses it; for folders of this machine, not for a shared store.

    Args:
        folder: its file ``lock`` is what is locked; a process that dies releases it.
        timeout_s: seconds to wait for another corral.
        remedy: the next step when the folder cannot be used.

    Raises:
        CannotRun: the folder is not writable, or another corral uses it for longer than *timeout_s*.
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
        yield


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
