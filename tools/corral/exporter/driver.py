"""Reads the cards, and the processes on them, from NVIDIA's driver by ``nvidia-smi``.

The driver counts everything: an engine's buffers, its CUDA context, and pools that grew with use.  Its pids are those
outside of all containers (https://github.com/NVIDIA/nvidia-docker/issues/1483).  It lists processes that compute; what
a process holds that only draws, and what the driver itself holds, is in the card's sum alone.
"""

from __future__ import annotations

import contextlib
import os
import re
import selectors
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .errors import DriverFault, DriverUnknown

PROGRAM = "nvidia-smi"
LIMIT_S = 1.0
"""Seconds for an answer: a driver that hangs costs one scrape no more."""
_MIB = 1 << 20
_CARD_FIELDS = ("uuid", "memory.total", "memory.free", "name")
_PROCESS_FIELDS = ("gpu_uuid", "gpu_name", "pid", "used_memory", "process_name")
_NUMBER = re.compile(r"[0-9]{1,12}")  # int() raises for thousands of digits
_NO_FIGURE = re.compile(r"\[[A-Za-z/ ]+\]")  # "[N/A]", "[Insufficient Permissions]"
_UUID = re.compile(r"(GPU|MIG)-[0-9A-Za-z/-]+")
_PROBLEM_CHARACTERS = 300
_MOST_BYTES, _PIECE = 1 << 20, 64 << 10
FIRST_PID_NAMESPACE = 0xEFFFFFFC
"""PROC_PID_INIT_INO in Linux' include/linux/proc_ns.h"""
_KILLED_S = 0.1  # for a process to be gone after SIGKILL, unless the kernel holds it


@dataclass(frozen=True)
class Card:
    """One card of this machine.

    Attributes:
        uuid: the driver's identity of the card; names repeat, and the order of cards changes.
        name: its model, e.g. ``Tesla T4``.
        total: bytes of memory; None: the driver does not report it.
        free: bytes that a process could still get; None: unknown.
    """

    uuid: str
    name: str
    total: int | None
    free: int | None

    @property
    def used(self) -> int | None:
        """Bytes that are taken, by processes and by the driver itself; None: unknown."""
        return None if self.total is None or self.free is None else self.total - self.free


@dataclass(frozen=True)
class Process:
    """One process on one card.

    Attributes:
        card: the uuid of the card.
        card_name: the card's model.
        pid: outside of all containers.
        used: bytes; None: the driver does not report them.
        reported: the driver's own word for ``used``, in MiB where it is a figure.
        program: the path of its program, as the driver reports it.
    """

    card: str
    card_name: str
    pid: int
    used: int | None
    reported: str
    program: str


_unkillable: dict[int, subprocess.Popen[bytes]] = {}
_lock = threading.Lock()


def is_installed() -> bool:
    """Whether there is an ``nvidia-smi``; it may still have no card."""
    return shutil.which(PROGRAM) is not None


def sees_its_pids(of: int = FIRST_PID_NAMESPACE) -> bool:
    """Whether this process counts pids as the driver does: outside of all containers, or in a pod with ``hostPID``.

    Inside of a container another process may have the number that the driver reports.  *of* is the number of the pid
    namespace whose pids that are.
    """
    return sys.platform != "linux" or pid_namespace() == of


def pid_namespace() -> int:
    """The number of this process's pid namespace."""
    return Path("/proc/self/ns/pid").stat().st_ino


def cards(*, limit_s: float | None = None) -> tuple[Card, ...]:
    """The cards of this machine, in the driver's order.

    Raises:
        DriverUnknown: nvidia-smi gave no such table within *limit_s* seconds (default: ``LIMIT_S``), or two rows have
            the same uuid.
    """
    table = _ask(f"--query-gpu={','.join(_CARD_FIELDS)}", limit_s)
    rows = _rows(table, len(_CARD_FIELDS), "cards")
    found = tuple(Card(uuid, name, _bytes(total, table), _bytes(free, table)) for uuid, total, free, name in rows)
    if len({card.uuid for card in found}) < len(found):
        raise _unreadable("cards", table)
    if any(card.used is not None and card.used < 0 for card in found):
        raise _unreadable("cards", table)
    return found


def processes(*, limit_s: float | None = None) -> tuple[Process, ...]:
    """The processes that compute on the cards of this machine; a process on two cards comes twice.

    Raises:
        DriverUnknown: nvidia-smi gave no such table within *limit_s* seconds (default: ``LIMIT_S``).
    """
    table = _ask(f"--query-compute-apps={','.join(_PROCESS_FIELDS)}", limit_s)
    found = []
    for card, card_name, pid, used, program in _rows(table, len(_PROCESS_FIELDS), "processes"):
        if not _NUMBER.fullmatch(pid):
            raise _unreadable("processes", table)
        found.append(Process(card, card_name, int(pid), _bytes(used, table), used, program))
    return tuple(found)


def busy(*, limit_s: float | None = None) -> tuple[int | None, ...]:
    """The share of the last moments in which each card computed, in per cent; None: the driver does not report it.

    Raises:
        DriverUnknown: nvidia-smi gave no such table within *limit_s* seconds (default: ``LIMIT_S``).
    """
    table = _ask("--query-gpu=uuid,utilization.gpu", limit_s)
    return tuple(int(share) if _NUMBER.fullmatch(share) else None for _, share in _rows(table, 2, "cards"))


def check(cards: Sequence[Card], processes: Sequence[Process]) -> None:
    """Compare the two tables with each other.

    Raises:
        DriverUnknown: one of *processes* is on none of *cards*, or holds more than its card has.
    """
    totals = {card.uuid: card.total for card in cards}
    for one in processes:
        if one.card not in totals:
            what = f"lists pid {one.pid} on a card that it does not list: {one.card!r}"
        elif one.used is not None and one.used > (totals[one.card] or one.used):
            what = f"gives pid {one.pid} more memory than its card has: {one.used // _MIB:,} MiB"
        else:
            continue
        raise DriverUnknown(DriverFault.UNREADABLE, f"{PROGRAM} {what}.")


def _ask(query: str, limit_s: float | None) -> str:
    """What nvidia-smi prints for *query*.

    One that cannot be killed (the kernel waits for the card) is left behind, and none is started beside it.
    """
    limit_s = LIMIT_S if limit_s is None else limit_s
    with _lock:
        for pid, left in list(_unkillable.items()):
            if left.poll() is None:
                raise DriverUnknown(DriverFault.HANGING, f"{PROGRAM} (pid {pid}) hangs and cannot be killed.")
            del _unkillable[pid]
    command = [PROGRAM, query, "--format=csv,noheader,nounits"]
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,  # a script in its place has children, which are killed with it
        )
    except FileNotFoundError:
        raise DriverUnknown(DriverFault.MISSING, f"There is no {PROGRAM} on PATH.") from None
    except OSError as error:
        raise DriverUnknown(DriverFault.NOT_STARTED, f"{PROGRAM} does not start: {error.strerror}.") from None
    try:
        out, err = _output(process, limit_s)
    except subprocess.TimeoutExpired:
        raise DriverUnknown(DriverFault.HANGING, f"{PROGRAM} did not respond within {limit_s:g} s.") from None
    finally:
        _end(process)
    if process.returncode != 0:
        printed = f"{out}\n{err}".strip()[:_PROBLEM_CHARACTERS] or "it printed nothing"
        raise DriverUnknown(DriverFault.FAILED, f"{PROGRAM} failed (exit code {process.returncode}): {printed}")
    return out


def _output(process: subprocess.Popen[bytes], limit_s: float) -> tuple[str, str]:
    """What *process* prints to stdout and to stderr until it ends."""
    ends, out, err = time.monotonic() + limit_s, bytearray(), bytearray()
    with selectors.DefaultSelector() as waiting:
        for stream, printed in ((process.stdout, out), (process.stderr, err)):
            assert stream
            waiting.register(stream, selectors.EVENT_READ, printed)
        while waiting.get_map():
            left_s = ends - time.monotonic()
            ready = waiting.select(left_s) if left_s > 0 else []
            if not ready:
                raise subprocess.TimeoutExpired(PROGRAM, limit_s)
            for key, _ in ready:
                piece = os.read(key.fd, _PIECE)
                key.data.extend(piece)
                if not piece:
                    waiting.unregister(key.fileobj)
            if len(out) + len(err) > _MOST_BYTES:
                raise DriverUnknown(DriverFault.UNREADABLE, f"{PROGRAM} prints more than {_MOST_BYTES >> 20} MiB.")
    process.wait(max(0.0, ends - time.monotonic()))
    return out.decode(errors="replace"), err.decode(errors="replace")


def _end(process: subprocess.Popen[bytes]) -> None:
    """Leave nothing of *process*, unless the kernel holds it."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_KILLED_S)
        with _lock:
            if process.returncode is None:
                _unkillable[process.pid] = process
    for stream in (process.stdout, process.stderr):
        if stream:
            stream.close()


def _rows(table: str, width: int, what: str) -> list[list[str]]:
    """The rows of *table*, *width* words each, a card's uuid first; the last may have commas.  No row is no fault."""
    rows = [[word.strip() for word in line.split(",", width - 1)] for line in table.splitlines() if line.strip()]
    if any(len(row) != width or not _UUID.fullmatch(row[0]) for row in rows):
        raise _unreadable(what, table)
    return rows


def _bytes(mib: str, table: str) -> int | None:
    if _NUMBER.fullmatch(mib):
        return int(mib) * _MIB
    if _NO_FIGURE.fullmatch(mib):
        return None
    raise _unreadable("figures", table)


def _unreadable(what: str, table: str) -> DriverUnknown:
    printed = table.strip()[:_PROBLEM_CHARACTERS]
    return DriverUnknown(DriverFault.UNREADABLE, f"{PROGRAM} printed no table of {what}: {printed!r}.")
