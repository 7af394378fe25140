"""The local stack: one llama-swap and the engines it starts, as processes of this user.

llama-swap leads a session of its own.  It gives each engine its own process group, but they stay in that session: what
a killed llama-swap leaves behind is found there, and no other process is ever touched.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path

from corral.engine import environment, ports, processes
from corral.engine.binaries import Program
from corral.engine.go_build import Report
from corral.engine.llama_swap import LlamaSwap
from corral.engine.processes import Mark
from corral.engine.stack_folder import StackFolder
from corral.errors import CannotRun, Refused
from corral.files import write_atomically

DRAIN_LIMIT_S = 36.0
"""llama-swap lets running requests finish for 30 s, and gives up on itself after 35 s."""

_START_LIMIT_S = 30.0
_SILENT_S = 1.0  # a longer wait is reported
_ENGINE_GRACE_S = 3.0  # an engine without llama-swap has no client
_ROUNDS = 3  # a process may start another one while the first list of them is being ended
_POLL_S = 0.02
_MARKER = "CORRAL_STACK"
# An engine that cannot use a card needs no preflight of one.  The caller's own source comes first.
_VRAM_SOURCE = "CORRAL_VRAM_SOURCE"
_NO_CARD = "echo the embedded engine uses no NVIDIA card"
_PRINTS_ITS_BUFFERS = "4"  # the verbosity from which llama.cpp logs the size of its buffers; never a prompt

_children: dict[int, subprocess.Popen[bytes]] = {}  # children of this process, which must reap them


@dataclass(frozen=True)
class Running:
    """A stack as it was started."""

    process: Mark  # llama-swap; it leads the session of all engines
    token: str  # all processes of this stack carry it in their environment
    port: int  # of llama-swap, on 127.0.0.1
    first_engine_port: int  # each model has the next one
    config_sha256: str
    engine: Program
    llama_swap: Path
    catalog: Path
    started_at: float  # seconds since 1970

    @property
    def pid(self) -> int:
        """The process id of llama-swap."""
        return self.process.pid

    @property
    def endpoint(self) -> str:
        """``http://127.0.0.1:<port>``, for clients, without ``/v1``."""
        return f"http://{ports.HOST}:{self.port}"

    @property
    def is_alive(self) -> bool:
        """Whether llama-swap still runs."""
        return processes.is_alive(self.process)

    def members(self) -> list[Mark]:
        """The living processes of the stack: llama-swap, its engines, and what these started."""
        return processes.of_session(self.process, {_MARKER: self.token})


@dataclass(frozen=True)
class Stopped:
    """How a stack ended."""

    stack: Running
    was_alive: bool  # whether llama-swap still ran
    drained: bool  # whether it ended by itself, so that every running request got its answer or 30 s
    orphans: int  # engines that had to be ended without it


def running(state: Path) -> Running | None:
    """The stack of *state* as ``recorded``, if it is alive."""
    found = recorded(state)
    return found if found and found.is_alive else None


def recorded(state: Path) -> Running | None:
    """The stack that was started from the state folder *state* and not stopped, whether it is alive or not.

    Raises:
        CannotRun: the record is damaged.
    """
    record = StackFolder(state).record
    try:
        read = json.loads(record.read_text(encoding="utf-8"))
        process, engine = Mark(**read.pop("process")), Program(Path(read["engine"].pop("path")), **read.pop("engine"))
        llama_swap, catalog = Path(read.pop("llama_swap")), Path(read.pop("catalog"))
        return Running(process=process, engine=engine, llama_swap=llama_swap, catalog=catalog, **read)
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, AttributeError, OSError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not what `corral up` writes"
        raise CannotRun(
            f"{record} is damaged, and a stack may be running: {why}.",
            next_step=f"Stop any llama-swap of yours with: kill PID; then: rm {record}",
        ) from None


def start(
    state: Path,
    config: str,
    *,
    port: int,
    first_engine_port: int,
    engine: Program,
    llama_swap: Path,
    catalog: Path,
    report: Report = lambda _: None,
) -> tuple[Running, bool]:
    """Start llama-swap with *config* and return when it answers: the stack, and whether this call has started it.

    One that runs already with the same *config* and port stays as it is.  Engines of a killed predecessor are ended.

    Raises:
        Refused: another configuration, or another port, is running; or ``environment.of_engine`` refuses.
        CannotRun: the port is in use, or llama-swap did not start; the message has its last lines.
    """
    folder = StackFolder(state)
    with folder.exclusive_lock():
        present = running(state)
        if present:
            require_same(present, config, port=port)
            return present, False
        _clear_leftovers(state, report)
        ports.require_free(port)
        folder.own.prepare(folder.log.parent)
        if folder.log.exists():
            folder.log.replace(folder.previous_log)
        write_atomically(folder.config, config, mode=0o600)
        token = secrets.token_hex(16)
        child = _spawn(folder, llama_swap, port, token, engine)
        mark = processes.mark(child.pid)
        if mark is None:
            raise _did_not_start(folder, child)
        digest = _digest(config)
        started = Running(mark, token, port, first_engine_port, digest, engine, llama_swap, catalog, time.time())
        _children[child.pid] = child
        try:
            _write_record(folder, started)
            _wait_until_answering(folder, started, child)
        except BaseException:
            _end(started, drain_s=0)
            folder.record.unlink(missing_ok=True)
            raise
        return started, True


def require_same(present: Running, config: str, *, port: int) -> None:
    """Return when *present* has *config* and *port*.

    Raises:
        Refused: it is another configuration, or listens on another port.
    """
    if (present.config_sha256, present.port) == (_digest(config), port):
        return
    what = "another configuration" if present.port == port else f"port {present.port}"
    raise Refused(
        f"A local stack is already running with {what} (pid {present.pid}, {present.endpoint}).",
        next_step="corral down, then again: corral up",
    )


def _digest(config: str) -> str:
    return sha256(config.encode()).hexdigest()


def stop(
    state: Path,
    *,
    only: Running | None = None,
    report: Report = lambda _: None,
    drain_s: float = DRAIN_LIMIT_S,
    hurry: Callable[[], bool] = lambda: False,
) -> Stopped | None:
    """Stop the stack of *state*, or only *only*: let requests finish, then end what is left; None when there is none.

    Requests have *drain_s* seconds to finish; once *hurry* is true, all waits are over.

    Raises:
        CannotRun: a process runs on after SIGKILL.
    """
    folder = StackFolder(state)
    with folder.exclusive_lock():
        present = recorded(state)
        if present is None or (only and present.token != only.token):
            return None
        stopped = _end(present, drain_s=drain_s, hurry=hurry, report=report)
        folder.record.unlink()
        return stopped


def clear_leftovers(state: Path, *, report: Report = lambda _: None) -> None:
    """End the engines of a killed llama-swap, and raise as ``stop``; a stack that lives is left alone."""
    with StackFolder(state).exclusive_lock():
        _clear_leftovers(state, report)


def _clear_leftovers(state: Path, report: Report) -> None:
    present = recorded(state)
    if present is None or present.is_alive:
        return
    stopped = _end(present, drain_s=0)
    if stopped.orphans:
        report(f"Ended {stopped.orphans} engine(s) that a killed llama-swap (pid {present.pid}) had left behind.")
    StackFolder(state).record.unlink()


def _spawn(folder: StackFolder, llama_swap: Path, port: int, token: str, engine: Program) -> subprocess.Popen[bytes]:
    settings = {_MARKER: token, "GGML_NO_BACKTRACE": "1", "LLAMA_ARG_LOG_VERBOSITY": _PRINTS_ITS_BUFFERS}
    variables = environment.of_engine(**settings)
    if engine.origin == "embedded":
        variables.setdefault(_VRAM_SOURCE, _NO_CARD)
    # A shell, replaced before anything happens, because only a process can set its own limits: no core dumps.
    shell = ["/bin/sh", "-c", 'ulimit -c 0; exec "$@"', "sh"]
    command = [*shell, str(llama_swap), "-config", str(folder.config), "-listen", f"{ports.HOST}:{port}"]
    with open(folder.log, "ab", opener=lambda path, flags: os.open(path, flags, 0o600)) as log:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=folder.state,
            env=variables,
            start_new_session=True,
            umask=0o077,
        )


def _wait_until_answering(folder: StackFolder, started: Running, child: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + _START_LIMIT_S
    client = LlamaSwap(started.endpoint)
    while time.monotonic() < deadline:
        if child.poll() is not None:
            raise _did_not_start(folder, child)
        # Any program could answer at that port.
        if ports.is_listening(started.pid, started.port) and client.is_healthy():
            return
        time.sleep(_POLL_S)
    raise CannotRun(
        f"llama-swap did not answer on {started.endpoint} within {_START_LIMIT_S:.0f} s.\n{folder.log_tail(10)}",
        next_step="corral logs",
    )


def _did_not_start(folder: StackFolder, child: subprocess.Popen[bytes]) -> CannotRun:
    tail = folder.log_tail(10) or "It printed nothing."
    return CannotRun(f"llama-swap ended while starting (exit code {child.wait()}):\n{tail}", next_step="corral logs")


def _end(
    present: Running, *, drain_s: float, hurry: Callable[[], bool] = lambda: False, report: Report = lambda _: None
) -> Stopped:
    was_alive = present.is_alive
    if was_alive:
        processes.send(present.process, signal.SIGTERM)
        if processes.wait([present.process], min(drain_s, _SILENT_S), hurry=hurry):
            report(f"Waiting for running requests to finish, up to {drain_s:.0f} s ...")
            processes.wait([present.process], drain_s - _SILENT_S, hurry=hurry)
    drained = was_alive and not present.is_alive
    left = present.members()
    orphans = sum(one != present.process for one in left)
    for _ in range(_ROUNDS):
        processes.end(left, grace_s=0.0 if hurry() else _ENGINE_GRACE_S)
        left = present.members()
        if not left:
            if child := _children.pop(present.pid, None):
                child.wait()
            return Stopped(present, was_alive=was_alive, drained=drained, orphans=orphans)
    pids = " ".join(str(one.pid) for one in left)
    raise CannotRun(f"These processes run on after SIGKILL: pid {pids}.", next_step=f"ps -fp {pids}")


def _write_record(folder: StackFolder, started: Running) -> None:
    write_atomically(folder.record, json.dumps(asdict(started), indent=2, default=str) + "\n", mode=0o600)
