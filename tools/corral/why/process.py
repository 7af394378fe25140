"""The process of a model's engine, and what it answers on its own port."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import httpx2
import psutil

from corral.engine import ports
from corral.engine.llama_swap import Resident
from corral.engine.processes import Mark

_SEAT = "CORRAL_SEAT"
_HEALTH_LIMIT_S = 0.9
_BETWEEN_LOOKS_S = 0.3


@dataclass(frozen=True)
class Engine:
    """The process of a model's engine.

    Attributes:
        pid: its id.
        is_stopped: somebody stopped it (SIGSTOP, a debugger): it is alive, and does nothing.
    """

    pid: int
    is_stopped: bool


@dataclass(frozen=True)
class Pulse:
    """What an engine answers.

    Attributes:
        problem: why it gave no answer; empty when it did.
        busy: requests that it is working on.
        moves: whether it got on with them between two looks; True when there are none.
    """

    problem: str = ""
    busy: int = 0
    moves: bool = True


def find(model: str, port: int, members: Sequence[Mark]) -> Engine | None:
    """The engine of *model*, or the preflight that will become it, among the processes of the stack, if it has one."""
    for one in members:
        with contextlib.suppress(psutil.Error, OSError):
            if _is_of(psutil.Process(one.pid), model) or ports.is_listening(one.pid, port):
                return Engine(one.pid, is_stopped(one.pid))
    return None


def _is_of(process: psutil.Process, model: str) -> bool:
    # The engine has its seat in the environment; the preflight has it in its command line.
    seat = process.environ().get(_SEAT, "")
    return seat.partition(":")[0] == model if seat else ("--model", model) in pairwise(process.cmdline())


def is_stopped(pid: int) -> bool:
    """Whether process *pid* is alive and was stopped."""
    with contextlib.suppress(psutil.Error, OSError):
        return psutil.Process(pid).status() in (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP)
    return False


def pulse(resident: Resident, pid: int | None) -> Pulse:
    """Ask the engine itself, past llama-swap, which neither loads it nor keeps it loaded.

    An engine does not move when neither its tokens nor its processor time do: one that reads a long prompt says no
    token, and works.
    """
    try:
        if (status := _get(f"{resident.proxy}/health").status_code) != 200:
            return Pulse(f"its /health answers {status}")
        before = _slots(resident)
        if not before:
            return Pulse()
        worked = _cpu_seconds(pid)
        time.sleep(_BETWEEN_LOOKS_S)
        moves = _slots(resident) != before or _cpu_seconds(pid) != worked
    except (httpx2.HTTPError, ValueError, KeyError, TypeError) as error:
        return Pulse(f"it does not answer at {resident.proxy} within {_HEALTH_LIMIT_S:g} s ({type(error).__name__})")
    return Pulse(busy=len(before), moves=moves)


def listeners() -> dict[int, int]:
    """The ports that somebody listens on, each with the pid: 0 when it is not ours to know."""
    try:
        found = psutil.net_connections(kind="tcp")
    except psutil.AccessDenied:  # macOS asks for root
        return {}
    return {one.laddr.port: one.pid or 0 for one in found if one.status == psutil.CONN_LISTEN and one.laddr}


def _slots(resident: Resident) -> list[dict[str, Any]]:
    """The slots at work, and how far each is; none where the engine does not tell (``--no-slots``)."""
    answer = _get(f"{resident.proxy}/slots")
    if answer.status_code != 200:
        return []
    kept = ("id", "id_task", "n_prompt_tokens_processed", "next_token")
    return [{key: slot.get(key) for key in kept} for slot in answer.json() if slot["is_processing"]]


def _cpu_seconds(pid: int | None) -> float:
    with contextlib.suppress(psutil.Error, OSError):
        times = psutil.Process(pid).cpu_times()
        return float(times.user + times.system)
    return 0.0


def _get(url: str) -> httpx2.Response:
    # Loopback: no proxy, and no certificates, which take 30 ms to read.
    with httpx2.Client(timeout=_HEALTH_LIMIT_S, trust_env=False, verify=False) as client:
        return client.get(url)
