"""The local stack: Caddy, the guard, one llama-swap and the engines it starts, as processes of this user.

Each of the three leads a session of its own.  llama-swap gives each engine its own process group, but they stay in its
session.  All carry the token of the stack in their environment: by it is found what a killed llama-swap, or a killed
`corral up`, leaves behind, and no other process is ever touched.
"""

from __future__ import annotations

import json
import secrets
import shlex
import signal
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from hashlib import sha256
from pathlib import Path

from corral import paths
from corral.engine import command, engine_process, ports, processes
from corral.engine.binaries import Program
from corral.engine.door import SWAP_KEY, Door
from corral.engine.go_build import Report
from corral.engine.launch import CADDY, LLAMA_SWAP, MARKER, PARTS, Programs, ended, launch, reap
from corral.engine.llama_swap import ANSWER_LIMIT_S, LlamaSwap
from corral.engine.processes import Mark
from corral.engine.stack_folder import StackFolder
from corral.errors import CannotRun, Refused
from corral.files import write_atomically

DRAIN_LIMIT_S = 36.0
"""llama-swap lets running requests finish for 30 s, and gives up on itself after 35 s."""

START_LIMIT_S = 30.0
"""For a program of the stack to serve."""

_SILENT_S = 1.0  # a longer wait is reported
ENGINE_GRACE_S = 3.0  # an engine without llama-swap has no client
_ROUNDS = 3  # a process may start another one while the first list of them is being ended
_POLL_S = 0.02
_START = ("corral", "up", "--detach")
_DOWN_FIRST = "corral down, then the same command again"


@dataclass(frozen=True)
class Configuration:
    """What the three programs are configured with."""

    llama_swap: str  # YAML
    guard: str  # JSON
    caddy: str  # JSON

    @property
    def sha256(self) -> str:
        """One digest of all."""
        return sha256(json.dumps(asdict(self)).encode()).hexdigest()


@dataclass(frozen=True)
class Leader:
    """One of the programs that lead a session, as a sentence names it."""

    name: str
    process: Mark

    def __str__(self) -> str:
        return f"{self.name} (pid {self.process.pid})"


@dataclass(frozen=True)
class Running:
    """A stack as it was started."""

    leaders: Mapping[str, Mark]  # by the keys of PARTS: each leads a session, llama-swap that of all engines
    token: str  # all processes of this stack carry it in their environment
    door: Door
    folder: Path  # the configurations, the guard's socket, and llama-swap's key
    first_engine_port: int  # each model has the next one
    config_sha256: str
    engine: Program
    catalog: Path
    started_at: float  # seconds since 1970

    @property
    def process(self) -> Mark:
        """llama-swap."""
        return self.leaders[LLAMA_SWAP]

    @property
    def pid(self) -> int:
        """The process id of llama-swap."""
        return self.process.pid

    @property
    def endpoint(self) -> str:
        """``http://127.0.0.1:<port>``, for clients, without ``/v1``."""
        return self.door.endpoint

    @property
    def is_alive(self) -> bool:
        """Whether llama-swap still runs."""
        return processes.is_alive(self.process)

    @property
    def is_up(self) -> bool:
        """Whether llama-swap runs, or Caddy, which has the port: `corral up` starts what has died of it."""
        return self.is_alive or processes.is_alive(self.leaders[CADDY])

    def lost(self) -> str:
        """The first part that has died, in words; empty when all of them run."""
        return next((str(part) for part in self.parts() if not processes.is_alive(part.process)), "")

    def stopped(self) -> Leader | None:
        """The first part that is alive and does nothing: SIGSTOP or a debugger stopped it."""
        return next((part for part in self.parts() if engine_process.is_stopped(part.process.pid)), None)

    def start_command(self) -> str:
        """`corral up` with the options of this stack: it then has its dead parts again, and its catalog's changes."""
        return _start_command(self.door, self.catalog, self.store, "--port", str(self.door.port))

    @property
    def store(self) -> Path | None:
        """The store that its configuration names; None: it cannot be read, or no model has a file."""
        with suppress(CannotRun):
            return command.store_of(command.read(self.folder / "llama-swap.yaml"))
        return None

    def parts(self) -> list[Leader]:
        """The programs of the stack that are no engines."""
        return [Leader(PARTS[part].name, process) for part, process in self.leaders.items()]

    def members(self) -> list[Mark]:
        """The living processes of the stack: its leaders, the engines, what these started, and ``strays``."""
        return _carriers(self.token, self.leaders.values())

    def engines(self) -> list[Mark]:
        """The living processes that llama-swap has started."""
        return [one for one in _members([self.process], self.token) if one != self.process]

    def llama_swaps(self) -> list[Mark]:
        """The living processes that have the key of llama-swap in their environment: it, an unrecorded one, engines."""
        return processes.carrying({MARKER: self.token, SWAP_KEY: self._key()}, since=self.process)

    def strays(self) -> list[Mark]:
        """Its living processes beside those that it records and what these started.

        A guard that another one has replaced is there until its last answer; others are of a `corral up` that was
        killed before it could record them.
        """
        known = _members(self.leaders.values(), self.token)
        return [one for one in self.members() if one not in known]

    def client(self, *, limit_s: float = ANSWER_LIMIT_S) -> LlamaSwap:
        """llama-swap itself, behind the door, as only corral reaches it.

        Raises:
            CannotRun: its key cannot be read.
        """
        return LlamaSwap(f"http://{ports.HOST}:{self.door.swap_port}", api_key=self._key(), limit_s=limit_s)

    def _key(self) -> str:
        try:
            return (self.folder / "llama-swap.key").read_text(encoding="ascii")
        except (OSError, ValueError) as error:
            message = f"The key of llama-swap cannot be read: {error}."
            raise CannotRun(message, next_step=f"corral down && {self.start_command()}") from None


@dataclass(frozen=True)
class Stopped:
    """How a stack ended."""

    stack: Running
    was_alive: bool  # whether llama-swap still ran
    drained: bool  # whether it ended by itself, so that every running request got its answer or 30 s
    orphans: int  # engines that had to be ended without it


def left_engines(number: int) -> str:
    """The *number* of engines that a dead llama-swap has left, in a sentence."""
    return f"{number} of its engines still {'runs and holds' if number == 1 else 'run and hold'} memory."


def start_command(state: Path) -> str:
    """That of the stack that *state* records, alive or dead; without options where it records none."""
    found = recorded(state)
    return found.start_command() if found else shlex.join(_START)


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
        read["leaders"] = {part: Mark(**read["leaders"][part]) for part in PARTS}
        read["engine"] = Program(Path(read["engine"].pop("path")), **read["engine"])
        read |= {"door": Door.from_json(read["door"]), "folder": Path(read["folder"]), "catalog": Path(read["catalog"])}
        return Running(**read)
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
    configuration: Configuration,
    programs: Programs,
    *,
    door: Door,
    first_engine_port: int,
    catalog: Path,
    report: Report = lambda _: None,
) -> tuple[Running, bool]:
    """Start the stack and return when it answers through its door: the stack, and whether this call has started it.

    One that is up already with the same *configuration* and *door* stays as it is, but for a part that has died: that
    is started again.  Engines of a llama-swap that has died are ended.

    Raises:
        Refused: another configuration, or another port, is running; or ``environment.of_engine`` refuses.
        CannotRun: the port is in use, or a program did not start; the message has its last lines.
    """
    folder = StackFolder(state)
    with folder.exclusive_lock():
        if (present := recorded(state)) and present.is_up:
            require_same(present, configuration, door)
            return _mended(folder, present, programs, report), False
        _clear_leftovers(state, report)
        ports.require_free(door.port, command_of(door, catalog, configuration))
        _write_files(folder, configuration)
        token = _token(folder)
        leaders: dict[str, Mark] = {}
        try:
            for part in PARTS:
                leaders[part] = launch(part, folder, programs, door, token)
            started = Running(
                leaders=leaders,
                token=token,
                door=door,
                folder=folder.run.absolute(),
                first_engine_port=first_engine_port,
                config_sha256=configuration.sha256,
                engine=programs.engine,
                catalog=catalog,
                started_at=time.time(),
            )
            write_record(folder, started)
            wait_until_answering(folder, started)
        except BaseException:
            end_members(leaders.values(), token, grace_s=0)
            folder.record.unlink(missing_ok=True)
            raise
        return started, True


def require_same(present: Running, configuration: Configuration, door: Door, *, restart: str = _DOWN_FIRST) -> None:
    """Return when *present* has *configuration*, and the port of *door*.

    Raises:
        Refused: it is another configuration, or listens on another port; *restart* is the next step.
    """
    if (present.config_sha256, present.door.port) == (configuration.sha256, door.port):
        return
    what = "another configuration" if present.door.port == door.port else f"port {present.door.port}"
    raise Refused(
        f"A local stack is already running with {what} (pid {present.pid}, {present.endpoint}).",
        next_step=restart,
    )


def stop(
    state: Path,
    *,
    only: Running | None = None,
    report: Report = lambda _: None,
    drain_s: float = DRAIN_LIMIT_S,
    before: Callable[[], None] = lambda: None,
    hurry: Callable[[], bool] = lambda: False,
) -> Stopped | None:
    """Stop the stack of *state*, or only *only*: let requests finish, then end what is left; None when there is none.

    *before* is called immediately before the first signal.  Requests have *drain_s* seconds to finish; once *hurry* is
    true, all waits are over.

    Raises:
        CannotRun: a process runs on after SIGKILL.
    """
    folder = StackFolder(state)
    with folder.exclusive_lock():
        present = recorded(state)
        if present is None and only is None:
            _clear_leftovers(state, report)
        if present is None or (only and present.token != only.token):
            return None
        before()
        stopped = _end(present, drain_s=drain_s, hurry=hurry, report=report)
        folder.record.unlink()
        return stopped


def clear_leftovers(state: Path, *, report: Report = lambda _: None) -> None:
    """End what is left of a stack that has died, and raise as ``stop``; one that is up is left alone."""
    with StackFolder(state).exclusive_lock():
        _clear_leftovers(state, report)


def command_of(door: Door, catalog: Path, configuration: Configuration, *port: str) -> str:
    """`corral up` for *door*, *catalog* and the store of *configuration*; the port is the caller's."""
    store = None
    with suppress(CannotRun):
        store = command.store_of(command.parse(configuration.llama_swap, "llama-swap.yaml", next_step=""))
    return _start_command(door, catalog, store, *port)


def _start_command(door: Door, catalog: Path, store: Path | None, *port: str) -> str:
    words = [*_START, *port, "--catalog", str(catalog)]
    words += ["--store", str(store)] if store not in (None, paths.default_store()) else []
    words += ["--keys"] * bool(door.keys)
    if door.tls is not None:
        words += ["--tls", *(str(file) for file in (door.tls.certificate, door.tls.key) if file)]
    return shlex.join([*words, *(word for name in door.names for word in ("--name", name))])


def _clear_leftovers(state: Path, report: Report) -> None:
    present = recorded(state)
    if present is None:
        _end_unrecorded(StackFolder(state), report)
        return
    if present.is_up:
        return
    stopped = _end(present, drain_s=0)
    _report_orphans(present, stopped.orphans, report)
    StackFolder(state).record.unlink()


def _report_orphans(present: Running, number: int, report: Report) -> None:
    if number:
        report(f"Ended {number} engine(s) that a killed llama-swap (pid {present.pid}) had left behind.")


def _end_unrecorded(folder: StackFolder, report: Report) -> None:
    """End what a `corral up` has started that was killed before it could record it."""
    if not folder.key.exists():
        return
    find = partial(_carriers, _token(folder))
    if left := find():
        report(f"Ending {len(left)} processes of a corral up that was killed while it started them.")
        _end_found(find, ENGINE_GRACE_S)


def _token(folder: StackFolder) -> str:
    """By which the processes of the last start are known; it is on the disk before the first of them."""
    return sha256(folder.key.read_bytes()).hexdigest()[:32]


def _write_files(folder: StackFolder, configuration: Configuration) -> None:
    folder.own.prepare(folder.log.parent)
    for log in (folder.log, folder.door_log):
        if log.exists():
            log.replace(folder.previous(log))
    for file, text in (
        (folder.config, configuration.llama_swap),
        (folder.guard_config, configuration.guard),
        (folder.caddy_config, configuration.caddy),
        (folder.key, secrets.token_urlsafe(32)),
    ):
        write_atomically(file, text, mode=0o600)


def _mended(folder: StackFolder, present: Running, programs: Programs, report: Report) -> Running:
    """*present*, with the parts that have died started again."""
    dead = {part: one for part, one in present.leaders.items() if not processes.is_alive(one)}
    if not dead:
        return present
    names = " and ".join(str(Leader(PARTS[part].name, one)) for part, one in dead.items())
    kept = "" if LLAMA_SWAP in dead else "; no model is unloaded"
    report(f"Starting {names} again, which died{kept}.")
    _report_orphans(present, len(present.engines()) if LLAMA_SWAP in dead else 0, report)
    end_members(dead.values(), present.token, grace_s=ENGINE_GRACE_S)
    fresh: dict[str, Mark] = {}
    try:
        for part in dead:
            fresh[part] = launch(part, folder, programs, present.door, present.token)
        started_at = time.time() if LLAMA_SWAP in dead else present.started_at
        mended = replace(present, leaders={**present.leaders, **fresh}, started_at=started_at)
        write_record(folder, mended)
        wait_until_answering(folder, mended)
    except BaseException:
        end_members(fresh.values(), present.token, grace_s=0)
        raise
    return mended


def wait_until_answering(folder: StackFolder, started: Running) -> None:
    """Return when *started* answers through its door.

    Raises:
        CannotRun: a part of it has ended, or it does not answer in time.
    """
    client, door, caddy = started.client(), started.door, started.leaders[CADDY]
    # Any program could answer at these ports.
    conditions = [
        lambda: ports.is_listening(started.pid, door.swap_port) and client.is_healthy(),
        lambda: ports.is_listening(caddy.pid, door.port) and door.answers(started.folder),
    ]
    deadline = time.monotonic() + START_LIMIT_S
    while time.monotonic() < deadline:
        for part, leader in started.leaders.items():
            if not processes.is_alive(leader):
                raise ended(part, folder, leader.pid)
        if conditions[0]():
            conditions.pop(0)
            if not conditions:
                return
        else:
            time.sleep(_POLL_S)
    tails = "\n".join(filter(None, (folder.log_tail(10, log=log) for log in (folder.log, folder.door_log))))
    hint = "Name the host that the certificate is for: corral up --tls … --name HOST; " if door.is_certified else ""
    raise CannotRun(
        f"{started.endpoint} did not answer within {START_LIMIT_S:.0f} s.\n{tails}",
        next_step=f"{hint}corral logs, corral logs --door",
    )


def _end(
    present: Running, *, drain_s: float, hurry: Callable[[], bool] = lambda: False, report: Report = lambda _: None
) -> Stopped:
    was_alive, leaders = present.is_alive, list(present.leaders.values())[::-1]
    if was_alive:
        for leader in leaders:  # Caddy first: it accepts no further connection
            processes.send(leader, signal.SIGTERM)
        if left := processes.wait(leaders, min(drain_s, _SILENT_S), hurry=hurry):
            report(f"Waiting for running requests to finish, up to {drain_s:.0f} s ...")
            processes.wait(left, drain_s - _SILENT_S, hurry=hurry)
    drained = was_alive and not present.is_alive
    orphans = len(present.engines())
    _end_found(present.members, 0.0 if hurry() else ENGINE_GRACE_S)
    reap(leaders)
    return Stopped(present, was_alive=was_alive, drained=drained, orphans=orphans)


def end_members(leaders: Collection[Mark], token: str, *, grace_s: float) -> None:
    """End all that *leaders* have started in their sessions, and themselves.

    Raises:
        CannotRun: a process runs on after SIGKILL.
    """
    _end_found(lambda: _members(leaders, token), grace_s)
    reap(leaders)


def _end_found(find: Callable[[], list[Mark]], grace_s: float) -> None:
    for _ in range(_ROUNDS + 1):
        left = find()
        if not left:
            return
        processes.end(left, grace_s=grace_s)
    pids = " ".join(str(one.pid) for one in left)
    raise CannotRun(f"These processes run on after SIGKILL: pid {pids}.", next_step=f"ps -fp {pids}")


def _carriers(token: str, leaders: Collection[Mark] = ()) -> list[Mark]:
    return processes.carrying({MARKER: token}, since=min(leaders, key=lambda one: one.birth, default=None))


def _members(leaders: Collection[Mark], token: str) -> list[Mark]:
    return [one for leader in leaders for one in processes.of_session(leader, {MARKER: token})]


def write_record(folder: StackFolder, started: Running) -> None:
    """Make *started* what ``recorded`` returns."""
    write_atomically(folder.record, json.dumps(asdict(started), indent=2, default=str) + "\n", mode=0o600)
