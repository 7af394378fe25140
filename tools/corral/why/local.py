"""Collects the evidence of the local stack, all sources at the same time, and has it judged.

Nothing here loads a model, keeps one loaded, or writes anything.  Two rounds: what concerns the whole stack, then what
that leaves open for each model.  Each has a time limit; a source without a response by then is reported as missing.
"""

from __future__ import annotations

import os
import shlex
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from corral.agent.lock_file import Lock, read_lock
from corral.agent.store import Store
from corral.catalog import catalog as catalogs
from corral.engine import binaries, command, engine_process, log_lines, pause, ports, stack
from corral.engine.command import Command
from corral.engine.stack import Running
from corral.engine.stack_folder import StackFolder
from corral.errors import CannotRun
from corral.exporter import driver
from corral.exporter.errors import DriverUnknown
from corral.keys import LocalKeys
from corral.lock import lock as locks
from corral.parallel import Result, read_all, value_of
from corral.why import evidence, files, history
from corral.why.facts import ModelFacts, StackFacts
from corral.why.history import History
from corral.why.next_steps import StepOptions
from corral.why.rules import judge
from corral.why.verdict import Verdict, worst_first

_FIRST_ROUND_S = 0.9
_BOTH_ROUNDS_S = 1.3
_SECOND_ROUND_S = 0.4  # at least, however long the first took
_IN_TIME_S = 0.1  # for a result to be there before its round ends
_OVERLOAD = 3.0  # runnable processes for each core
_MOST_SLOWDOWN = 8.0
_LOG_BYTES = 8 << 20
_VRAM_SOURCE = "CORRAL_VRAM_SOURCE"  # a command that the preflight runs instead of nvidia-smi
_LAST_LINES = 5
_BUFFERS, _CARD, _PAUSE = "the engine's buffers", "the card", "the pause"
_CARD_S = 0.4  # for each of two questions to the driver


@dataclass(frozen=True)
class Scope:
    """The stack, and the models, to be diagnosed."""

    state: Path  # the state folder of the local stack
    catalog: Path  # of the running stack, as it was started
    store: Path  # of the running stack, as it was started
    options: StepOptions
    catalog_is_assumed: bool = False  # no option names the catalog, and no stack records which one it serves


def investigate(scope: Scope, name: str | None) -> list[Verdict]:
    """The verdict on the model *name*, an id or an alias, or on every model of the catalog, the worst first.

    Raises:
        Refused: the catalog has no model.
        CannotRun: the record of the stack is damaged.
    """
    return _Investigation(scope).verdicts(name)


class _Investigation:
    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        self._now, self._began = time.time(), time.monotonic()
        self._recorded = stack.recorded(scope.state)
        self._alive = self._recorded if self._recorded and self._recorded.is_alive else None
        worked = self._cpu_seconds()
        self._slowdown = _slowdown()
        self._found = read_all(self._sources(), limit_s=_FIRST_ROUND_S * self._slowdown)
        self._ids = evidence.model_ids(scope.catalog)
        self._stack = self._with_lock(self._stack_facts(used_cpu=self._cpu_seconds() != worked))

    # -- first round: the stack -----------------------------------------------------------------------------

    def _cpu_seconds(self) -> float:
        return engine_process.cpu_seconds(self._alive.pid if self._alive else None)

    def _sources(self) -> dict[str, Callable[[], Any]]:
        folder = StackFolder(self._scope.state)
        sources: dict[str, Callable[[], Any]] = {"the lock": lambda: read_lock(self._scope.catalog / "lock.json")}
        if self._recorded:
            sources["the log"] = lambda: _log_tail(folder.log)
            sources["the processes"] = self._recorded.members
            sources["the configuration"] = lambda: command.read(folder.config)
        if not self._alive:
            sources["the stale parts"] = lambda: tuple(locks.stale(catalogs.load(self._scope.catalog)))
            return {**sources, "the engine": binaries.find_llama_server}
        sources[_PAUSE] = partial(pause.read, self._alive, self._scope.state)
        client = self._alive.client(limit_s=_FIRST_ROUND_S * self._slowdown)
        if driver.is_installed():
            sources[_CARD] = _card
        return {**sources, **evidence.sources(client), "the ports": engine_process.listeners}

    def _stack_facts(self, *, used_cpu: bool) -> StackFacts:
        catalog, ids = self._scope.catalog, tuple(sorted(set(self._ids.values())))
        if not self._alive:
            return replace(self._absent_stack(), catalog=catalog, catalog_ids=ids)
        pid, problem = self._alive.pid, self._found["/running"].problem
        # Without an answer about these nothing is wrong.
        busy, users = value_of({_CARD: self._found.pop(_CARD, Result())}, _CARD, (None, {}))
        held = value_of({_PAUSE: self._found.pop(_PAUSE, Result())}, _PAUSE, None)
        ours = {one.pid for one in self._value("the processes", ())}
        return StackFacts(
            "unresponsive" if problem else "running",
            self._alive.endpoint,
            pid,
            is_stopped=engine_process.is_stopped(pid),
            problem=f"llama-swap (pid {pid}) is alive, but does not respond: {problem}" if problem else "",
            used_cpu=used_cpu,
            overload=_overload(),
            lost_part=self._alive.lost(),
            stopped_part=self._alive.stopped(),
            pause=held,
            has_card=driver.is_installed(),
            card_busy=busy,
            card_users=tuple(f"{name} (pid {one})" for one, name in users.items() if one not in ours),
            curl=_curl(self._alive, self._scope.state),
            has_nvidia_smi=not engine_process.variable(pid, _VRAM_SOURCE) and shutil.which("nvidia-smi") is not None,
            catalog=catalog,
            catalog_ids=ids,
        )

    def _with_lock(self, facts: StackFacts) -> StackFacts:
        lock, reasons = self._found["the lock"], ", ".join(map(str, self._value("the stale parts", ())))
        problem, step = lock.problem, lock.next_step
        if step[:1].isupper():  # a sentence before the command
            advice, step = step.split(": ", 1)
            problem = f"{problem} {advice}."
        elif reasons and not problem:
            problem = f"The lock of {self._scope.catalog} is stale: {reasons}."
        return replace(facts, no_lock=problem, lock_step=step)

    def _absent_stack(self) -> StackFacts:
        absent = StackFacts(
            "absent",
            problem="No local stack is running.",
            no_engine=self._found["the engine"].problem,
            catalog_is_assumed=self._scope.catalog_is_assumed,
        )
        if self._recorded is None:
            return absent
        leaders = self._recorded.leaders.values()
        pid, engines = self._recorded.pid, sum(one not in leaders for one in self._value("the processes", ()))
        left = f" {stack.left_engines(engines)}" if engines else ""
        problem = f"llama-swap (pid {pid}) has died without being stopped.{left}"
        lines = tuple(log_lines.without_probes(self._value("the log", "").splitlines())[-_LAST_LINES:])
        return replace(absent, state="died", pid=pid, problem=problem, last_lines=lines)

    def _value(self, source: str, otherwise: Any) -> Any:
        return value_of(self._found, source, otherwise)

    # -- second round: each model -----------------------------------------------------------------------------

    def verdicts(self, name: str | None) -> list[Verdict]:
        histories = history.read(self._value("the log", ""))
        commands: Mapping[str, Command] = self._value("the configuration", {})
        served = commands if self._alive else {}
        names = self._stack.catalog_ids if name is None else (name,)
        models = [self._model_facts(one, served, histories) for one in names]
        left_s = _BOTH_ROUNDS_S * self._slowdown - (time.monotonic() - self._began)
        limit_s = max(_SECOND_ROUND_S * self._slowdown, left_s)
        found = read_all(
            {(one.name, kind): source for one in models for kind, source in self._open(one, limit_s).items()},
            limit_s=limit_s,
        )
        return worst_first(judge(self._stack, self._completed(one, found), self._scope.options) for one in models)

    def _model_facts(self, name: str, served: Mapping[str, Command], histories: Mapping[str, History]) -> ModelFacts:
        facts = evidence.model_facts(name, self._ids.get(name, ""), self._found, served, histories, self._now)
        members = self._value("the processes", ())
        # A rule of its own judges the lock; without it the files are judged by what else is known.
        sources = {source: one for source, one in self._found.items() if source != "the lock"}
        return replace(
            facts,
            engine=engine_process.find(facts.id, facts.command.port, members)
            if facts.resident and facts.command
            else None,
            stack_pids=frozenset(one.pid for one in members),
            can_see_ports=bool(self._value("the ports", {})),
            missing_program=_missing(facts.command),
            missing_evidence=evidence.problems(sources) if self._stack.state == "running" else (),
        )

    def _open(self, facts: ModelFacts, limit_s: float) -> dict[str, Callable[[], Any]]:
        """The sources that are still to be read for one model."""
        if not facts.id:
            return {}
        sources: dict[str, Callable[[], Any]] = {"files": lambda: self._files(facts)}
        if not self._alive or self._stack.state != "running":
            return sources
        client = self._alive.client(limit_s=limit_s - _IN_TIME_S)
        if (resident := facts.resident) and resident.state == "ready":
            pid = facts.engine.pid if facts.engine else None
            sources["probe"] = lambda: engine_process.probe(
                resident.proxy, pid, limit_s=limit_s - _IN_TIME_S, headers=client.headers
            )
            if self._stack.has_card:
                sources[_BUFFERS] = lambda: evidence.memory(client, facts.id)
        if facts.history.has_engine_log or facts.is_abandoned:
            sources["the engine's log"] = lambda: evidence.engine_error(client, facts)
        port = facts.command.port if facts.command else 0
        listening = self._value("the ports", {}).get(port, frozenset())
        if listening and not (facts.engine and facts.engine.pid in listening):
            sources["port"] = lambda: self._port_holder(facts.id, port)
        return sources

    def _completed(self, facts: ModelFacts, found: Mapping[tuple[str, str], Result[Any]]) -> ModelFacts:
        mine = {kind: one for (name, kind), one in found.items() if name == facts.name}
        faults = {
            kind: one for kind, one in mine.items() if kind != _BUFFERS
        }  # without them, slowness is not explained
        return replace(
            facts,
            files=value_of(mine, "files", ()),
            probe=value_of(mine, "probe", None),
            memory=value_of(mine, _BUFFERS, None),
            error=value_of(mine, "the engine's log", None)
            or history.error_in_common_log(self._value("the log", ""), facts.id, facts.history),
            port_holder=value_of(mine, "port", ""),
            missing_evidence=(*facts.missing_evidence, *evidence.problems(faults)),
        )

    def _files(self, facts: ModelFacts) -> Sequence[files.FileFact]:
        lock: Lock | None = self._value("the lock", None)
        locked = lock.models.get(facts.id) if lock else None
        if facts.command is None:
            store = Store(self._scope.store)
            return files.check([store.root / facts.id / name for name in locked.links] if locked else [], locked, store)
        if locked and tuple(file.sha256 for file in locked.files) != facts.command.sha256:
            locked = None  # locked again since the stack was started
        return files.check(facts.command.files, locked, Store(facts.command.store or self._scope.store))

    def _port_holder(self, model: str, port: int) -> str:
        """The process that listens on *port*; empty when it is the engine of *model*, or one of its descendants."""
        # Read again, in this order: an engine that has just started is not another process on its port.
        listening = engine_process.listeners().get(port, frozenset())
        members = self._recorded.members() if self._recorded else []
        engine = engine_process.find(model, port, members)
        ours = engine_process.family(engine.pid) if engine else {one.pid for one in members}
        return "" if ours & listening else ports.described(listening)


def _card() -> tuple[int | None, dict[int, str]]:
    """How busy the busiest card is, in per cent, and the program of each process on a card by its pid.

    Raises:
        CannotRun: the driver does not state it.
    """
    try:
        shares = [share for share in driver.busy(limit_s=_CARD_S) if share is not None]
        users = {one.pid: one.program for one in driver.processes(limit_s=_CARD_S)} if driver.sees_its_pids() else {}
    except DriverUnknown as error:
        raise CannotRun(str(error), next_step=driver.PROGRAM) from None
    return max(shares, default=None), users


def _overload() -> str:
    load, cores = os.getloadavg()[0], os.cpu_count() or 1
    return f"The machine is overloaded (load {load:.0f} on {cores} cores)." if load > _OVERLOAD * cores else ""


def _slowdown() -> float:
    """How many times longer a round may take: on an overloaded machine each process waits for its turn."""
    for_each_core = os.getloadavg()[0] / (os.cpu_count() or 1)
    return min(for_each_core, _MOST_SLOWDOWN) if for_each_core > _OVERLOAD else 1.0


def _log_tail(log: Path) -> str:
    with log.open("rb") as stream:
        stream.seek(max(0, log.stat().st_size - _LOG_BYTES))
        return stream.read().decode(errors="replace")


def _missing(served: Command | None) -> str:
    programs = (served.words[0], served.engine) if served else ()
    return next((program for program in programs if shutil.which(program) is None), "")


def _curl(running: Running, state: Path) -> str:
    """The beginning of a command line that sends the door a request; no key is in it."""
    certificate = running.door.certificate(running.folder)
    words = ["curl", *(["--cacert", str(certificate)] if certificate else [])]
    if not running.door.keys:
        return shlex.join(words)
    key = shlex.quote(str(LocalKeys(state).operator_file))
    return f"sed 's/^/Authorization: Bearer /' {key} | {shlex.join([*words, '-H', '@-'])}"
