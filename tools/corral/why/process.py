"""The process of a model's engine, and what it answers on its own port."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import httpx2
import psutil

from corral.engine import ports
from corral.engine.llama_swap import Resident
from corral.engine.processes import Mark

_SEAT = "CORRAL_SEAT"
_REACHED = ("127.0.0.1", "0.0.0.0", "::", "::ffff:127.0.0.1")
_BETWEEN_LOOKS_S = 0.3
_BETWEEN_GLANCES_S = 0.02
_LEAST_S = 0.05  # for a question that comes late


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
    """What an engine answers, and whether it does anything.

    Attributes:
        problem: what is wrong with its answer; empty when nothing is, or there is none.
        late: in seconds, how long it was given and did not answer; 0 when it did.  One that works on as many requests
            as it has threads answers nobody else.
        busy: requests that it is working on, as far as it says.
        moves: whether it got on between two looks, by its tokens or its processor time.
    """

    problem: str = ""
    late: float = 0.0
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


def pulse(resident: Resident, pid: int | None, *, limit_s: float) -> Pulse:
    """Ask the engine itself, past llama-swap, which neither loads it nor keeps it loaded; takes *limit_s* at most.

    An engine does not move when neither its tokens nor its processor time do: one that reads a long prompt says no
    token, and works.
    """
    began, worked = time.monotonic(), cpu_seconds(pid)

    def ask(path: str) -> httpx2.Response:
        return _get(f"{resident.proxy}{path}", max(_LEAST_S, limit_s - (time.monotonic() - began)))

    problem, late = "", 0.0
    before: list[dict[str, Any]] = []
    after: list[dict[str, Any]] = []
    try:
        if (status := ask("/health").status_code) != 200:
            problem = f"its /health answers {status}"
        elif not (before := _slots(ask)):
            return Pulse()
        else:
            time.sleep(max(0.0, min(_BETWEEN_LOOKS_S, limit_s - (time.monotonic() - began))))
            after = _slots(ask)
    except httpx2.TimeoutException:
        late = time.monotonic() - began
    except (httpx2.HTTPError, ValueError, KeyError, TypeError) as error:
        problem = f"it does not answer at {resident.proxy} as an engine does ({type(error).__name__})"
    moves = not (late or problem) and after != before
    while not (moves := moves or cpu_seconds(pid) != worked) and time.monotonic() - began < limit_s:
        time.sleep(_BETWEEN_GLANCES_S)
    return Pulse(problem, late, len(before), moves)


def listeners() -> dict[int, frozenset[int]]:
    """The ports that somebody on this machine's own addresses listens on, each with the pids.

    A pid is 0 when it is not ours to know.
    """
    try:
        connections = psutil.net_connections(kind="tcp")
    except psutil.AccessDenied:  # macOS asks for root
        return {}
    found: dict[int, frozenset[int]] = {}
    for one in connections:
        if one.status == psutil.CONN_LISTEN and one.laddr and one.laddr.ip in _REACHED:
            found[one.laddr.port] = found.get(one.laddr.port, frozenset()) | {one.pid or 0}
    return found


def family(pid: int) -> set[int]:
    """The process *pid* and everything that it has started; empty when it has gone."""
    with contextlib.suppress(psutil.Error, OSError):
        return {pid, *(child.pid for child in psutil.Process(pid).children(recursive=True))}
    return set()


def setting(pid: int, name: str) -> str:
    """What the environment of process *pid* has for *name*; empty when it is not set, or not ours to know."""
    with contextlib.suppress(psutil.Error, OSError):
        return str(psutil.Process(pid).environ().get(name, ""))
    return ""


def _slots(ask: Callable[[str], httpx2.Response]) -> list[dict[str, Any]]:
    """The slots at work, and how far each is; none where the engine does not tell (``--no-slots``)."""
    answer = ask("/slots")
    if answer.status_code != 200:
        return []
    kept = ("id", "id_task", "n_prompt_tokens_processed", "next_token")
    return [{key: slot.get(key) for key in kept} for slot in answer.json() if slot["is_processing"]]


def cpu_seconds(pid: int | None) -> float:
    """The processor time that process *pid* has used; 0 when it is not known."""
    if pid is None:
        return 0.0
    with contextlib.suppress(psutil.Error, OSError):
        times = psutil.Process(pid).cpu_times()
        return float(times.user + times.system)
    return 0.0


def _get(url: str, limit_s: float) -> httpx2.Response:
    # Loopback: no proxy, and no certificates, which take 30 ms to read.
    with httpx2.Client(timeout=limit_s, trust_env=False, verify=False) as client:
        return client.get(url)
