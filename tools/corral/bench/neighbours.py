"""What computes and holds memory beside a model while it is measured: a stand-in for the other tenants of its card."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from subprocess import Popen

import psutil

from corral.errors import CannotRun, Refused

IDLE, FULL = "idle", "full"
_PROGRAM = Path(__file__).with_name("stand_in_tenant.py")
_SHARE = re.compile(r"([1-9]\d?|100)%")
_MIB = 1 << 20
_SPARE_MIB = 1024  # of the machine's memory, for what is measured


@dataclass(frozen=True)
class Neighbours:
    """A state of the tenants beside a model.

    Attributes:
        name: for people: ``idle``, a share as ``50%``, or ``full``.
        share: of each core's time that they compute, 0 to 1.
        mib: MiB that they hold.
    """

    name: str
    share: float
    mib: int


@dataclass
class Beside:
    """What the neighbours did during one level: *cores* that they kept busy on average, and MiB that they held."""

    cores: float = 0.0
    mib: float = 0.0


def parse(name: str, full_mib: int) -> Neighbours:
    """The state *name*; ``full`` computes all the time, and holds *full_mib* MiB.

    Raises:
        ValueError: it is no state.
    """
    if name == IDLE:
        return Neighbours(name, 0.0, 0)
    if name == FULL:
        return Neighbours(name, 1.0, full_mib)
    if found := _SHARE.fullmatch(name):
        return Neighbours(name, int(found[1]) / 100, 0)
    raise ValueError(f"{name!r} is no state of the neighbours: {IDLE}, 1% to 100%, {FULL}")


def require_room(mib: int, *, next_step: str) -> None:
    """Refuse to hold *mib* MiB where the machine itself would have too little left.

    Raises:
        Refused: it would.
    """
    available = psutil.virtual_memory().available // _MIB
    if mib + _SPARE_MIB > available:
        message = f"The neighbours would hold {mib} MiB, and this machine has {available} MiB available"
        raise Refused(f"{message}, of which {_SPARE_MIB} MiB are kept free.", next_step=next_step)


@contextmanager
def running(state: Neighbours) -> Iterator[Beside]:
    """Run stand-ins for tenants in *state* during the block; what they did is known after it.

    One process computes on each core; the first of them holds the memory.

    Raises:
        CannotRun: one of them ended by itself.
    """
    cores, found = os.cpu_count() or 1, Beside()
    started: list[Popen[bytes]] = []
    try:
        started.extend(_start(state.share, 0 if core else state.mib) for core in range(cores))
        for process in started:
            _require_line(process)
        watched = [psutil.Process(process.pid) for process in started]
        began, before = time.perf_counter(), _seconds(started, watched)
        yield found
        found.cores = (_seconds(started, watched) - before) / (time.perf_counter() - began)
        found.mib = watched[0].memory_info().rss / _MIB if state.mib else 0.0
    finally:
        for process in started:
            process.kill()
            process.communicate()


def _start(share: float, mib: int) -> Popen[bytes]:
    command = [sys.executable, "-I", str(_PROGRAM), str(share), str(mib)]
    # In a group of its own: Ctrl-C is for the bench, which then ends them.
    return Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={}, process_group=0)


def _require_line(process: Popen[bytes]) -> None:
    assert process.stdout
    if not process.stdout.readline():
        raise _ended(process)


def _seconds(started: Sequence[Popen[bytes]], watched: Sequence[psutil.Process]) -> float:
    """Processor seconds of all of them."""
    found = 0.0
    for process, measured in zip(started, watched, strict=True):
        if process.poll() is not None:
            raise _ended(process)
        times = measured.cpu_times()
        found += times.user + times.system
    return found


def _ended(process: Popen[bytes]) -> CannotRun:
    message = f"A stand-in for the neighbours ended by itself, with exit code {process.wait()}"
    return CannotRun(
        f"{message}: it may have had too little memory.", next_step="Let them hold less: --neighbours-hold MIB"
    )
