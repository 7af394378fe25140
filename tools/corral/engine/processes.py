"""Processes that are known for certain: by pid and birth, never by name.

A pid is used again; a pid with its moment of birth is not.  Signals go out only after that moment was read again.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import psutil

_POLL_S = 0.02


@dataclass(frozen=True)
class Mark:
    """One process of one boot of the machine.

    Attributes:
        pid: its process id.
        birth: when it was started: on Linux clock ticks since the boot, elsewhere seconds since 1970.
        boot: which boot; empty where the system does not number its boots.
    """

    pid: int
    birth: float
    boot: str


@dataclass(frozen=True)
class _Seen:
    mark: Mark
    session: int
    alive: bool


def mark(pid: int) -> Mark | None:
    """The mark of the process that has *pid* now; None when there is none."""
    seen = _look(pid)
    return seen.mark if seen and seen.alive else None


def is_alive(process: Mark) -> bool:
    """Whether exactly this process still runs (one that only waits to be reaped does not)."""
    return mark(process.pid) == process


def of_session(leader: Mark, marker: Mapping[str, str]) -> list[Mark]:
    """The living processes that *leader* started in its session, itself included.

    A session outlives its leader and keeps the number, which a stranger's session may get later.  So a member
    must also be born after the leader and carry *marker* in its environment, which children inherit.
    """
    found = []
    for pid in psutil.pids():
        seen = _look(pid)
        if seen is None or not seen.alive or seen.session != leader.pid:
            continue
        if seen.mark.boot == leader.boot and seen.mark.birth >= leader.birth and _carries(pid, marker):
            found.append(seen.mark)
    return found


def end(processes: Collection[Mark], *, grace_s: float) -> list[Mark]:
    """TERM every process, KILL what is left after *grace_s* seconds; returns those that even then did not go."""
    for process in processes:
        send(process, signal.SIGTERM)
    left = _wait(processes, grace_s)
    for process in left:
        send(process, signal.SIGKILL)
    return _wait(left, 5.0)


def wait_for_end(process: Mark, limit_s: float, *, hurry: Callable[[], bool] = lambda: False) -> bool:
    """Wait until *process* has gone, at most *limit_s* seconds or until *hurry* says so; whether it has gone."""
    return not _wait([process], limit_s, hurry=hurry)


def send(process: Mark, number: signal.Signals) -> bool:
    """Signal *process* if it is still the same; whether it was.

    Raises:
        PermissionError: it belongs to another user.
    """
    try:
        if sys.platform == "linux":
            # A pid file descriptor cannot come to mean another process between the look and the signal.
            handle = os.pidfd_open(process.pid)
            try:
                if not is_alive(process):
                    return False
                signal.pidfd_send_signal(handle, number)
            finally:
                os.close(handle)
        else:
            if not is_alive(process):
                return False
            os.kill(process.pid, number)
    except ProcessLookupError:
        return False
    return True


def _wait(processes: Collection[Mark], limit_s: float, *, hurry: Callable[[], bool] = lambda: False) -> list[Mark]:
    deadline = time.monotonic() + limit_s
    while left := [process for process in processes if is_alive(process)]:
        if time.monotonic() >= deadline or hurry():
            return left
        time.sleep(_POLL_S)
    return []


def _carries(pid: int, marker: Mapping[str, str]) -> bool:
    try:
        environment = psutil.Process(pid).environ()
    except (psutil.Error, OSError):
        return False
    return all(environment.get(name) == value for name, value in marker.items())


if sys.platform == "linux":

    def _look(pid: int) -> _Seen | None:
        try:
            stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return None
        # "pid (name) state ppid pgrp session …": the name may hold anything, also parentheses.
        fields = stat.rpartition(")")[2].split()
        return _Seen(Mark(pid, float(fields[19]), _boot()), int(fields[3]), alive=fields[0] not in "ZX")

    @cache
    def _boot() -> str:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()

else:

    def _look(pid: int) -> _Seen | None:
        try:
            process = psutil.Process(pid)
            alive = process.status() != psutil.STATUS_ZOMBIE
            return _Seen(Mark(pid, process.create_time(), ""), os.getsid(pid), alive)
        except (psutil.Error, OSError):
            return None
