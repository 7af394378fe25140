"""Which process works on a blob: of two processes one downloads and the other waits for it.

A lease is a small file that its owner touches repeatedly.  It only saves work: locks are unreliable on network file
systems, and an owner may be suspended for longer than its lease.  The store stays right because each owner collects
bytes in a folder of its own and publishes with one rename.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
import time
from pathlib import Path
from typing import NamedTuple, Self

from .hub_policy import printable

DEFAULT_LEASE_TTL = 60.0

_SETTLE_SECONDS = 0.2
_TYPES = (str, str, str, int, str)  # of a Holder
_MOST_BYTES = 4096
# Other users may write in a shared store: neither a link nor a FIFO of theirs leads out of it or makes a process wait.
_AS_IT_IS = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class LeaseLost(Exception):
    """Another process holds the lease now: it took this one for dead."""


class Holder(NamedTuple):
    """The content of a lease file.

    ``place`` names the machine, its boot and the process name space: within one place, ``pid`` and ``born`` decide
    whether the owner is alive.
    """

    owner: str
    host: str
    place: str
    pid: int
    born: str

    def __str__(self) -> str:
        return f"process {self.pid} on {printable(self.host)}"

    @property
    def is_gone(self) -> bool:
        """Whether the owner is certainly dead; False also when it cannot be known from here."""
        return self.place == _place() and self.born != _born(self.pid)


class Lease:
    """The lease at *path*, whose owner counts as dead after *ttl* silent seconds; once taken, a context manager."""

    def __init__(self, path: Path, ttl: float) -> None:
        self.owner = os.urandom(4).hex()
        self._path = path
        self._ttl = ttl
        self._ended = threading.Event()
        self._heart = threading.Thread(target=self._beat, name=f"lease {path.name}", daemon=True)

    def take(self) -> bool:
        """Try to become the owner, also in place of one that is dead."""
        content = json.dumps(Holder(self.owner, socket.gethostname(), _place(), os.getpid(), _born(os.getpid())))
        try:
            with self._path.open("x", encoding="utf-8") as file:
                file.write(content)
        except FileExistsError:
            if not self.is_dead():
                return False
            mine = self._path.with_name(f"{self._path.name}.{self.owner}")
            mine.write_text(content, encoding="utf-8")
            mine.replace(self._path)
            # Other processes may do the same: the last one to write keeps the lease, the others find that here.
            self._ended.wait(_SETTLE_SECONDS)
        return self.is_mine()

    def holder(self) -> Holder | None:
        """The holder of the lease; None when no process holds it, or it cannot be read."""
        with contextlib.suppress(OSError, ValueError, TypeError, RecursionError):
            holder = Holder(*json.loads(_content(self._path)))
            if all(type(value) is kind for value, kind in zip(holder, _TYPES, strict=True)):
                return holder
        return None

    def is_mine(self) -> bool:
        """Whether this object holds the lease."""
        holder = self.holder()
        return holder is not None and holder.owner == self.owner

    def is_dead(self) -> bool:
        """Whether the holder is certainly gone, or has not touched the lease for its TTL."""
        holder = self.holder()
        if holder and holder.is_gone:
            return True
        now = server_time(self._path.parent)
        with contextlib.suppress(FileNotFoundError):
            return now - self._path.lstat().st_mtime > self._ttl
        return False

    def check(self) -> None:
        """Raise ``LeaseLost`` when another process holds the lease."""
        if not self.is_mine():
            raise LeaseLost

    def __enter__(self) -> Self:
        self._heart.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._heart.join()
        if self.is_mine():
            self._path.unlink(missing_ok=True)

    def _beat(self) -> None:
        while not self._ended.wait(min(5.0, self._ttl / 4)):
            with contextlib.suppress(OSError):
                if self.is_mine():
                    os.utime(self._path)


def server_time(folder: Path) -> float:
    """Now, as seconds since 1970, by the clock of the file server of *folder*; touches the file ``clock`` in it.

    Ages in a store are measured by this clock alone, so a machine with a wrong clock finds the same ages as any other.
    Where the folder cannot be written it is the time of this machine.
    """
    clock = folder / "clock"
    with contextlib.suppress(OSError):
        descriptor = os.open(clock, os.O_WRONLY | os.O_CREAT | _AS_IT_IS, 0o666)
        try:
            os.utime(descriptor)
            return os.fstat(descriptor).st_mtime
        finally:
            os.close(descriptor)
    return time.time()


def _content(path: Path) -> bytes:
    """The first bytes of *path*, more than a lease has."""
    descriptor = os.open(path, os.O_RDONLY | _AS_IT_IS)
    try:
        return os.read(descriptor, _MOST_BYTES)
    finally:
        os.close(descriptor)


def _place() -> str:
    parts = [socket.gethostname()]
    with contextlib.suppress(OSError):
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip())
        parts.append(str(Path("/proc/self/ns/pid").readlink()))
    return " ".join(parts)


def _born(pid: int) -> str:
    """When the process *pid* started, in the kernel's own count; "alive" without /proc, empty when there is none."""
    with contextlib.suppress(OSError, IndexError):
        # The program's name, in parentheses, may hold anything: fields are counted after it.
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[19]
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return ""
    except PermissionError:
        pass
    return "alive"
