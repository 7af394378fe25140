"""Processes that are known for certain: by pid and birth, never by name.

A pid is used again; a pid with its moment of birth is not.  A signal is sent only after that moment was read again.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import psutil

_POLL_S = 0.02
_BEGINNING_S = 1.0  # for a program to begin on a busy machine


@dataclass(frozen=True)
class Mark:
    """One process of one boot of the machine."""

    pid: int
    birth: float  # on Linux clock ticks since the boot, elsewhere seconds since 1970
    boot: str  # which boot; empty where the system does not number its boots


def mark(pid: int) -> Mark | None:
    """The mark of the process that has *pid* now; None when there is none, or one that only waits to be reaped."""
    found = _inspect(pid)
    return found[0] if found else None


def is_alive(process: Mark) -> bool:
    """Whether exactly this process still runs."""
    return mark(process.pid) == process


def of_session(leader: Mark, marker: Mapping[str, str]) -> list[Mark]:
    """The living processes that *leader* started in its session, itself included.

    A session outlives its leader and keeps the number, which another program's session may get later.  So a member
    must also be born after the leader and carry *marker* in its environment, which children inherit.
    """
    found = []
    for pid in psutil.pids():
        process, session = _inspect(pid) or (leader, None)
        if (
            session == leader.pid
            and process.boot == leader.boot
            and process.birth >= leader.birth
            and _has(pid, marker, _BEGINNING_S)
        ):
            found.append(process)
    return found


def carrying(marker: Mapping[str, str], *, since: Mark | None = None) -> list[Mark]:
    """The living processes, of any session, that have *marker* in their environment, which children inherit.

    A process that was born after *since* may be about to begin its program: for its environment there is a second.
    """
    found = []
    for pid in psutil.pids():
        process, session = _inspect(pid) or (None, 0)
        if process and session:  # a kernel's threads have none
            may_begin = since is not None and process.boot == since.boot and process.birth >= since.birth
            if _has(pid, marker, _BEGINNING_S if may_begin else 0.0):
                found.append(process)
    return found


def end(processes: Collection[Mark], *, grace_s: float) -> list[Mark]:
    """TERM every process, KILL what is left after *grace_s* seconds; returns those that even then run."""
    for process in processes:
        send(process, signal.SIGTERM)
    left = wait(processes, grace_s)
    for process in left:
        send(process, signal.SIGKILL)
    return wait(left, 5.0)


def wait(processes: Collection[Mark], limit_s: float, *, hurry: Callable[[], bool] = lambda: False) -> list[Mark]:
    """Wait until *processes* have ended, at most *limit_s* seconds or until *hurry*; returns those that still run."""
    deadline = time.monotonic() + limit_s
    while left := [process for process in processes if is_alive(process)]:
        if time.monotonic() >= deadline or hurry():
            return left
        time.sleep(_POLL_S)
    return []


def send(process: Mark, number: signal.Signals) -> bool:
    """Signal *process* if it is still the same; whether it was.

    Raises:
        PermissionError: it belongs to another user.
    """
    try:
        if sys.platform != "linux":
            if alive := is_alive(process):
                os.kill(process.pid, number)
            return alive
        handle = os.pidfd_open(process.pid)  # cannot come to mean another process between the check and the signal
        try:
            if alive := is_alive(process):
                signal.pidfd_send_signal(handle, number)
            return alive
        finally:
            os.close(handle)
    except ProcessLookupError:
        return False


@contextmanager
def signals_to_stop() -> Iterator[list[int]]:
    """The signals to stop that this process has received while the block runs; none of them does anything else."""
    received: list[int] = []
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, lambda got, _frame: received.append(got)) for number in numbers}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _has(pid: int, marker: Mapping[str, str], limit_s: float) -> bool:
    """Whether the environment of *pid* has *marker*; while its program begins, the kernel has none of it yet."""
    deadline = time.monotonic() + limit_s
    try:
        while not (found := psutil.Process(pid).environ()) and time.monotonic() < deadline:
            time.sleep(_POLL_S)
        return marker.items() <= found.items()
    except (psutil.Error, OSError):
        return False


if sys.platform == "linux":

    def _inspect(pid: int) -> tuple[Mark, int] | None:
        """The mark and the session of a living process."""
        try:
            stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return None
        # "pid (name) state ppid pgrp session …": the name may hold anything, also parentheses.
        fields = stat.rpartition(")")[2].split()
        return (Mark(pid, float(fields[19]), _boot()), int(fields[3])) if fields[0] not in "ZX" else None

    @cache
    def _boot() -> str:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()

else:

    def _inspect(pid: int) -> tuple[Mark, int] | None:
        try:
            process = psutil.Process(pid)
            if process.status() == psutil.STATUS_ZOMBIE:
                return None
            return Mark(pid, process.create_time(), ""), os.getsid(pid)
        except (psutil.Error, OSError):
            return None
