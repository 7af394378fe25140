"""The process of a model's engine: which one it is, what it listens on, and whether it does any work."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeVar

import httpx2
import psutil

from corral.agent.progress import duration
from corral.engine import ports
from corral.engine.processes import Mark

FAILED = frozenset({"failed", "hanging", "silent"})
"""The states of a model that does not serve."""

_T = TypeVar("_T")
_SEAT = "CORRAL_SEAT"
_REACHED = ("127.0.0.1", "0.0.0.0", "::", "::ffff:127.0.0.1")
_BETWEEN_SLOTS_S = 0.3
_BETWEEN_TIMES_S = 0.02
_LEAST_S = 0.05  # for a request that is sent late


@dataclass(frozen=True)
class Engine:
    """The process of a model's engine."""

    pid: int
    is_stopped: bool  # by SIGSTOP or a debugger: it is alive, and does nothing


@dataclass(frozen=True)
class Probe:
    """An engine's response on its own port, and whether it does any work."""

    problem: str = ""  # what is wrong with the response; empty when nothing is, or there is none
    late_s: float = 0.0  # seconds without a response; 0 when there is one.  An engine without a free thread gives none
    busy: int = 0  # requests that it works on, as far as it reports them
    progresses: bool = True  # its tokens or its processor time grew meanwhile

    @property
    def is_silent(self) -> bool:
        """Whether nothing shows that it serves: no response of an engine, and where there is none, no work either."""
        return bool(self.problem or (self.late_s and not self.progresses))

    @property
    def sentence(self) -> str:
        """Its response, in a sentence."""
        if self.late_s:
            return f"its engine gives no response within {duration(self.late_s)}."
        return f"{self.problem}." if self.problem else "its engine responds, and does not work."


def trouble(engine: Engine | None, probe: Probe | None) -> tuple[str, str]:
    """The state of a resident model whose engine does not serve, and why; both empty when nothing shows that.

    ``hanging`` is certain; an engine that is ``silent`` may be late only.
    """
    if engine and engine.is_stopped:
        return "hanging", f"its engine (pid {engine.pid}) is stopped (SIGSTOP)"
    return ("silent", probe.sentence.rstrip(".")) if probe and probe.is_silent else ("", "")


def _of(pid: int, read: Callable[[psutil.Process], _T], otherwise: _T) -> _T:
    """What *read* gives for process *pid*; *otherwise* when it has ended, or may not be read."""
    with contextlib.suppress(psutil.Error, OSError):
        return read(psutil.Process(pid))
    return otherwise


def find(model: str, port: int, members: Sequence[Mark]) -> Engine | None:
    """The engine of *model*, or the preflight that will become it, among the processes of the stack."""
    pids = (one.pid for one in members)
    pid = next((pid for pid in pids if _of(pid, lambda one: _serves(one, model, port), otherwise=False)), None)
    return None if pid is None else Engine(pid, is_stopped(pid))


def _serves(process: psutil.Process, model: str, port: int) -> bool:
    # The engine has its seat in the environment; the preflight has it in its command line.
    seated = _seated(process)
    named = seated == model if seated else ("--model", model) in pairwise(process.cmdline())
    return named or ports.is_listening(process.pid, port)


def _seated(process: psutil.Process) -> str:
    return str(process.environ().get(_SEAT, "")).partition(":")[0]


def seated_model(pid: int) -> str:
    """The model that a preflight has seated process *pid* for; empty: none, or it may not be read."""
    return _of(pid, _seated, "")


def is_stopped(pid: int) -> bool:
    """Whether process *pid* is alive and was stopped."""
    return _of(pid, lambda one: one.status() in (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP), otherwise=False)


def family(pid: int) -> set[int]:
    """Process *pid* and its descendants; empty when it has ended."""
    return _of(pid, lambda one: {pid, *(child.pid for child in one.children(recursive=True))}, set())


def variable(pid: int, name: str) -> str:
    """The variable *name* in the environment of process *pid*; empty when it is not set, or may not be read."""
    return _of(pid, lambda one: str(one.environ().get(name, "")), "")


def cpu_seconds(pid: int | None) -> float:
    """The processor time that process *pid* has used; 0 when it is not known."""
    return 0.0 if pid is None else _of(pid, lambda one: float(sum(one.cpu_times()[:2])), 0.0)  # user, system


def listeners() -> dict[int, frozenset[int]]:
    """The pids that listen on each port of this machine's own addresses; 0 for a pid that may not be read."""
    try:
        connections = psutil.net_connections(kind="tcp")
    except psutil.AccessDenied:  # macOS requires root
        return {}
    found: dict[int, frozenset[int]] = {}
    for one in connections:
        if one.status == psutil.CONN_LISTEN and one.laddr and one.laddr.ip in _REACHED:
            found[one.laddr.port] = found.get(one.laddr.port, frozenset()) | {one.pid or 0}
    return found


def probe(
    proxy: str, pid: int | None, *, limit_s: float, through: str = "", headers: Mapping[str, str] | None = None
) -> Probe:
    """Query the engine at *proxy* itself, in *limit_s* seconds at most; llama-swap neither loads nor keeps it for that.

    *through* is an address of this machine that leads to *proxy*; of a process elsewhere, *pid* is None.  *headers*
    have the engine's key; without it an engine that has one reports no work.  An engine progresses when its tokens or
    its processor time grow: one that reads a long prompt reports no token, and works.
    """
    began, worked = time.monotonic(), cpu_seconds(pid)

    def get(path: str) -> httpx2.Response:
        return _get(f"{through or proxy}{path}", max(_LEAST_S, limit_s - (time.monotonic() - began)), headers)

    problem, late_s = "", 0.0
    before: list[dict[str, Any]] = []
    after: list[dict[str, Any]] = []
    try:
        if (status := get("/health").status_code) != 200:
            problem = f"its /health has the status {status}"
        elif not (before := _slots(get)):
            return Probe()
        else:
            time.sleep(max(0.0, min(_BETWEEN_SLOTS_S, limit_s - (time.monotonic() - began))))
            after = _slots(get)
    except httpx2.TimeoutException:
        late_s = time.monotonic() - began
    except (httpx2.HTTPError, ValueError, KeyError, TypeError, RecursionError) as error:
        problem = f"it does not respond at {proxy} as an engine does ({type(error).__name__})"
    progresses = not (late_s or problem) and after != before
    while not (progresses := progresses or cpu_seconds(pid) != worked) and time.monotonic() - began < limit_s:
        time.sleep(_BETWEEN_TIMES_S)
    return Probe(problem, late_s, len(before), progresses)


def _slots(get: Callable[[str], httpx2.Response]) -> list[dict[str, Any]]:
    """The progress of each slot at work; none where the engine does not report it (``--no-slots``)."""
    response = get("/slots")
    if response.status_code != 200:
        return []
    kept = ("id", "id_task", "n_prompt_tokens_processed", "next_token")
    return [{key: slot.get(key) for key in kept} for slot in response.json() if slot["is_processing"]]


def _get(url: str, limit_s: float, headers: Mapping[str, str] | None) -> httpx2.Response:
    # Loopback: no proxy, and no certificates, which take 30 ms to read.
    with httpx2.Client(timeout=limit_s, trust_env=False, verify=False) as client:
        return client.get(url, headers=headers)
