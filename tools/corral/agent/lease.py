"""Who is working on a blob: so that of two processes one downloads and the other waits for it.

A lease is a small file that its owner touches again and again.  It saves work and nothing else: network file
systems lie about locks, and an owner may sleep through its own lease.  What keeps the store right is that each
owner collects bytes in a folder of its own and publishes with one rename.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
from pathlib import Path
from typing import NamedTuple, Self

from .clock import server_time

DEFAULT_LEASE_TTL = 60.0

_SETTLE_SECONDS = 0.2


class LeaseLost(Exception):
    """Another process holds the lease now: it thought that we were dead."""


class Holder(NamedTuple):
    """The content of a lease file.

    ``place`` tells apart machines, boots and process name spaces: within one place, ``pid`` and ``born`` say
    whether the owner is alive.
    """

    owner: str
    host: str
    place: str
    pid: int
    born: str

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"

    @property
    def is_gone(self) -> bool:
        """Whether the owner is certainly dead; False also when it cannot be known from here."""
        return self.place == _place() and self.born != _born(self.pid)


class Lease:
    """The lease at *path*.  Use it as a context manager once ``take`` returned True.

    Args:
        path: the lease file; its folder exists.
        ttl: seconds without a sign of life after which an owner counts as dead.
    """

    def __init__(self, path: Path, ttl: float) -> None:
        self.owner = os.urandom(4).hex()
        self._path = path
        self._ttl = ttl
        self._ended = threading.Event()
        self._heart = threading.Thread(target=self._beat, name=f"lease {path.name}", daemon=True)

    def take(self) -> bool:
        """Try to become the owner; takes the place of an owner that is dead."""
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
            # Others may have judged the same: the last to write keeps it, the earlier ones see that here.
            self._ended.wait(_SETTLE_SECONDS)
        return self.is_mine()

    def holder(self) -> Holder | None:
        """Who holds the lease; None when nobody does, or it cannot be read."""
        with contextlib.suppress(OSError, ValueError, TypeError):
            return Holder(*json.loads(self._path.read_text(encoding="utf-8")))
        return None

    def is_mine(self) -> bool:
        """Whether this object holds the lease."""
        holder = self.holder()
        return holder is not None and holder.owner == self.owner

    def is_dead(self) -> bool:
        """Whether whoever holds the lease is gone for certain, or has shown no sign of life for its TTL."""
        holder = self.holder()
        if holder and holder.is_gone:
            return True
        now = server_time(self._path.parent)
        with contextlib.suppress(FileNotFoundError):
            return now - self._path.stat().st_mtime > self._ttl
        return False

    def check(self) -> None:
        """Go on only as the owner.

        Raises:
            LeaseLost: another process holds the lease.
        """
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


def _place() -> str:
    parts = [socket.gethostname()]
    with contextlib.suppress(OSError):
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip())
        parts.append(str(Path("/proc/self/ns/pid").readlink()))
    return " ".join(parts)


def _born(pid: int) -> str:
    """When the process *pid* started, in the kernel's own count; empty when there is none."""
    try:
        # The program's name, in parentheses, may hold anything: fields are counted after it.
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return _alive(pid)


def _alive(pid: int) -> str:
    """The same without /proc: only whether there is such a process."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return ""
    except PermissionError:
        pass
    return "alive"
