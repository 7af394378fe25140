"""Files that several processes use: written atomically, folders that only this user changes, locked exclusively."""

from __future__ import annotations

import errno
import fcntl
import os
import shlex
import signal
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
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
def only_writer(folder: Path) -> Iterator[None]:
    """Let no other process be in this block for *folder*: it waits.  No file is left there.

    Where the file system has no such lock (a network's may need a file that can be written), none excludes another.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


@contextmanager
def kept_closed(file: Path) -> Iterator[bool]:
    """Let no process open *file* while the block lasts, 45 s at most; False: this process may not have a lease on it.

    Who opens the file waits.  A lease needs Linux, this user's own file on a local file system, and no one who has it
    open: https://man7.org/linux/man-pages/man2/F_GETLEASE.2const.html
    """
    descriptor = os.open(file, os.O_RDONLY)
    try:
        try:
            # The usual signal of a lease, SIGIO, would end this process.
            fcntl.fcntl(descriptor, fcntl.F_SETSIG, signal.SIGURG)
            fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        except (OSError, AttributeError):  # no such command of fcntl on this system
            is_leased = False
        else:
            is_leased = True
        yield is_leased
    finally:
        os.close(descriptor)


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


def require_writable(path: Path, *, next_step: str) -> None:
    """Refuse the file *path* where it could not be written, before minutes of work for it.

    Raises:
        Refused: its folder is missing or not writable, or it is no regular file; *next_step* as above.
    """
    if not path.parent.is_dir():
        missing = f"There is no folder {path.parent} to write {path.name} to."
        raise Refused(missing, next_step=f"mkdir -p {shlex.quote(str(path.parent))}")
    with refuse_unwritable(path, next_step=next_step):
        if path.exists() and not path.is_file():
            raise OSError(errno.EINVAL, "It is no regular file")
        folder = Path(os.path.realpath(path)).parent  # as write_atomically
        with tempfile.TemporaryFile(dir=folder):
            pass


@dataclass(frozen=True)
class OwnFolder:
    """A folder of this machine in which only this user can change anything; *variable* chooses another one.

    Programs are run from it, and pids in it are sent signals: what another user writes there would act as this one.
    """

    path: Path
    variable: str

    def prepare(self, folder: Path | None = None) -> None:
        """Make *folder* (default: this one), and all that is missing above it, as 0700 whatever the umask is.

        Raises:
            Refused: another user owns this folder, one on the way to *folder*, or *folder*, or may write there.
            CannotRun: it cannot be made.
        """
        folder = folder or self.path
        try:
            _make(folder)
            for one in (folder, *folder.parents):
                if one.is_relative_to(self.path):
                    self._require_ours(one, one.stat())
        except OSError as error:
            raise self._unusable(folder, error) from None

    @contextmanager
    def exclusive_lock(
        self, folder: Path, *, timeout_s: float, waiting: Callable[[str], None] = lambda _: None
    ) -> Iterator[None]:
        """Prepare *folder* below this one, close it to other users, and be the only corral that uses it.

        Args:
            folder: its file ``lock`` is what is locked; a process that dies releases it.
            timeout_s: seconds to wait for another corral.
            waiting: is called once with that corral, in words, before the wait.

        Raises:
            Refused: as ``prepare``.
            CannotRun: the folder is not writable or full, or another corral uses it for longer than *timeout_s*.
        """
        self.prepare(folder)
        try:
            folder.chmod(0o700)  # who can open the file can also lock it
            gate = _open_gate(folder / "lock")
        except OSError as error:
            raise self._unusable(folder, error) from None
        try:
            self._wait(gate, folder, timeout_s, waiting)
            yield
        except OSError as error:
            if not _is_full(error):
                raise
            raise disk_full(folder) from None
        finally:
            os.close(gate)

    def _wait(self, gate: int, folder: Path, timeout_s: float, waiting: Callable[[str], None]) -> None:
        deadline, is_reported = time.monotonic() + timeout_s, False
        while not _locked(gate):
            pid = os.pread(gate, 20, 0).decode(errors="replace")
            name, step = (f" (process {pid})", f"ps -fp {pid}; ") if pid.isdigit() else ("", "")
            if time.monotonic() > deadline:
                raise CannotRun(
                    f"Another corral{name} has been at work in {folder} for {timeout_s:.0f} s.",
                    next_step=f"{step}wait for it, or choose {self._another}",
                )
            if not is_reported:
                waiting(f"another corral{name}")
                is_reported = True
            time.sleep(_POLL_SECONDS)
        with suppress(OSError):  # a full disk must not keep the stack from being stopped
            os.ftruncate(gate, 0)
            os.pwrite(gate, str(os.getpid()).encode(), 0)

    def _require_ours(self, folder: Path, found: os.stat_result) -> None:
        path = shlex.quote(str(self.path))
        if found.st_uid not in (os.geteuid(), 0):
            raise Refused(
                f"{folder} belongs to another user (uid {found.st_uid}), who could change what this one runs from it.",
                next_step=f"sudo mv {path} {path}.old, or choose {self._another}",
            )
        if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise Refused(
                f"Other users can write in {folder} (mode {stat.S_IMODE(found.st_mode):04o}), and so change what this "
                "one runs from it.",
                next_step=f"chmod -R go-w {path}, or choose {self._another}",
            )

    def _unusable(self, folder: Path, error: OSError) -> CannotRun:
        message = f"The folder {folder} cannot be used: {error.strerror}."
        return CannotRun(message, next_step=f"Choose {self._another}")

    @property
    def _another(self) -> str:
        return f"another folder: {self.variable}=DIR"


def _make(folder: Path) -> None:
    if not folder.is_dir():
        _make(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)


def _open_gate(file: Path) -> int:
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    gate = os.open(file, flags, 0o600)
    found = os.fstat(gate)
    if stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid():
        return gate
    os.close(gate)
    raise OSError(errno.EINVAL, "lock is no regular file of this user")


def disk_full(folder: Path) -> CannotRun:
    """The error for a disk that has no room left for *folder*."""
    return CannotRun(f"{folder} is full: {os.strerror(errno.ENOSPC)}.", next_step=_make_room(folder))


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
