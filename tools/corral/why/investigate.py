"""Collects the evidence, all sources at once, and has it judged.

Nothing here loads a model, keeps one loaded, or writes anything.  Two rounds: what concerns everybody, then what
follows from it for each model.  Each has its time limit; what has not answered by then is named as not seen.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from corral import paths
from corral.agent.lock_file import Lock, LockedModel, read_lock
from corral.agent.store import Store
from corral.engine import binaries, log_lines, ports, stack
from corral.engine.llama_swap import LlamaSwap
from corral.engine.log_lines import EngineError
from corral.engine.stack import Running
from corral.engine.stack_folder import StackFolder
from corral.parallel import Result, read_all, value_of
from corral.why import command, files, history, names, process
from corral.why.answer import Answer
from corral.why.command import Command
from corral.why.facts import ModelFacts, Place, StackFacts
from corral.why.history import History
from corral.why.verdict import judge

_FIRST_ROUND_S = 0.9
_BOTH_ROUNDS_S = 1.3
_SECOND_ROUND_S = 0.4  # at least, however long the first took
_IN_TIME_S = 0.1  # for an answer to be there before its round is over
_OVERLOAD = 3.0  # runnable processes for each core
_LOG_BYTES = 8 << 20
_VRAM_SOURCE = "CORRAL_VRAM_SOURCE"  # a command that the preflight asks instead
_LAST_WORDS = 5


@dataclass(frozen=True)
class Scope:
    """What is asked about.

    Attributes:
        state: the state folder of the local stack.
        catalog: the folder of the catalog; of the running stack, as it was started.
        store: the model store, for when no stack is there to say which.
        place: what commands must name, because it is not the default.
        catalog_is_a_guess: nobody named the catalog, and no stack says which one it serves.
    """

    state: Path
    catalog: Path
    store: Path
    place: Place
    catalog_is_a_guess: bool = False


def ask(scope: Scope, model: str | None) -> list[Answer]:
    """The answers for *model*, or for every model of the catalog, the worst first.

    Raises:
        Refused: the catalog has no model.
        CannotRun: the record of the stack is damaged.
    """
    return _Investigation(scope).answers(model)


class _Investigation:
    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        self._now, self._began = time.time(), time.monotonic()
        self._recorded = stack.recorded(scope.state)
        self._alive = self._recorded is not None and self._recorded.is_alive
        worked = self._work()
        self._seen = read_all(self._sources(), limit_s=_FIRST_ROUND_S)
        self._stack = self._stack_facts(is_at_work=self._work() != worked)
        self._aliases = names.read(scope.catalog)

    # -- first round: everybody ---------------------------------------------------------------------------

    def _work(self) -> float:
        """What llama-swap has worked so far, in seconds."""
        return process.cpu_seconds(self._recorded.pid) if self._recorded and self._alive else 0.0

    def _sources(self) -> dict[str, Callable[[], Any]]:
        folder = StackFolder(self._scope.state)
        sources: dict[str, Callable[[], Any]] = {"the lock": lambda: read_lock(self._scope.catalog / "lock.json")}
        if self._recorded:
            sources |= {
                "the log": lambda: _log_tail(folder.log),
                "the processes": self._recorded.members,
                "the configuration": lambda: command.read(folder.config),
            }
        if not self._recorded or not self._alive:
            return sources | {"the engine": binaries.find_llama_server}
        client = LlamaSwap(self._recorded.endpoint, limit_s=_FIRST_ROUND_S)
        return sources | {
            "/running": client.residents,
            "the requests in flight": client.in_flight,
            "the last requests": client.exchanges,
            "the ports": process.listeners,
        }

    def _stack_facts(self, *, is_at_work: bool) -> StackFacts:
        recorded = self._recorded
        if recorded is None or not self._alive:
            return self._absent_stack(recorded)
        silent = self._seen["/running"].problem
        return StackFacts(
            "silent" if silent else "answers",
            recorded.endpoint,
            recorded.pid,
            is_stopped=process.is_stopped(recorded.pid),
            problem=f"llama-swap (pid {recorded.pid}) is alive, but does not answer: {silent}" if silent else "",
            is_at_work=is_at_work,
            overload=_overload(),
            has_nvidia_smi=_has_nvidia_smi(recorded.pid),
            catalog=self._scope.catalog,
        )

    def _absent_stack(self, recorded: Running | None) -> StackFacts:
        gone = StackFacts(
            "none",
            problem="No local stack is running.",
            no_engine=self._seen["the engine"].problem,
            no_lock=self._seen["the lock"].problem,
            catalog=self._scope.catalog,
            catalog_is_a_guess=self._scope.catalog_is_a_guess,
        )
        if recorded is None:
            return gone
        orphans = len(self._value("the processes", ()))
        left = f" {orphans} of its engines live on and hold memory." if orphans else ""
        problem = f"llama-swap (pid {recorded.pid}) has died without being stopped.{left}"
        words = tuple(str(self._value("the log", "")).splitlines()[-_LAST_WORDS:])
        return replace(gone, state="died", pid=recorded.pid, orphans=orphans, problem=problem, last_words=words)

    def _commands(self) -> Mapping[str, Command]:
        """How each model is served, by the stack that is alive."""
        found: Mapping[str, Command] = self._value("the configuration", {}) if self._alive else {}
        return found

    def _place(self) -> Place:
        """What commands must name; the store is the one that the stack was started with."""
        commands: Mapping[str, Command] = self._value("the configuration", {})
        stores = {one.store for one in commands.values() if one.store} - {paths.default_store()}
        return replace(self._scope.place, store=self._scope.place.store or next(iter(stores), None))

    def _value(self, source: str, otherwise: Any) -> Any:
        """What *source* said, or *otherwise* when it said nothing."""
        return value_of(self._seen, source, otherwise)

    # -- second round: each model -------------------------------------------------------------------------

    def answers(self, model: str | None) -> list[Answer]:
        asked = [model] if model is not None else sorted(set(self._aliases.values()))
        histories = history.read(self._value("the log", ""))
        facts = [self._model_facts(name, histories) for name in asked]
        limit_s = max(_SECOND_ROUND_S, _BOTH_ROUNDS_S - (time.monotonic() - self._began))
        deep = read_all(
            {(seen.model, kind): source for seen in facts for kind, source in self._closer(seen, limit_s).items()},
            limit_s=limit_s,
        )
        place = self._place()
        judged = [judge(self._stack, self._with(seen, deep), place) for seen in facts]
        return sorted(judged, key=lambda one: (one.rank, one.model))

    def _model_facts(self, name: str, histories: Mapping[str, History]) -> ModelFacts:
        model = self._aliases.get(name, "")
        served = self._commands().get(model)
        residents = {one.model: one for one in self._value("/running", ())}
        in_flight = self._value("the requests in flight", ())
        problems = [
            f"{source}: {one.problem}"
            for source, one in self._seen.items()
            if one.problem and source != "the lock"  # without it the files are judged by what else is known
        ]
        return ModelFacts(
            model=name,
            id=model,
            catalog_ids=tuple(sorted(set(self._aliases.values()))),
            command=served,
            resident=residents.get(model),
            engine=process.find(model, served.port, self._value("the processes", ()))
            if model in residents and served
            else None,
            history=histories.get(model, History()),
            in_flight=tuple(one for one in in_flight if one.model == model),
            refused=tuple(
                one for one in self._value("the last requests", ()) if (one.model, one.status) == (model, 429)
            ),
            others=tuple((one, sum(ask.model == one for ask in in_flight)) for one in residents if one != model),
            members=frozenset(one.pid for one in self._value("the processes", ())),
            sees_ports=bool(self._value("the ports", {})),
            missing_program=_missing(served),
            unseen=tuple(problems) if self._stack.state == "answers" else (),
            now=self._now,
        )

    def _closer(self, seen: ModelFacts, limit_s: float) -> dict[str, Callable[[], Any]]:
        """What is still to be looked at for one model."""
        if not seen.id:
            return {}
        sources: dict[str, Callable[[], Any]] = {"files": lambda: self._files(seen)}
        if self._stack.state != "answers":
            return sources
        if seen.resident and seen.resident.state == "ready":
            pid = seen.engine.pid if seen.engine else None
            resident = seen.resident
            sources["pulse"] = lambda: process.pulse(resident, pid, limit_s=limit_s - _IN_TIME_S)
        if seen.history.state == "failed" or seen.is_abandoned:
            sources["the engine's log"] = lambda: self._engine_error(seen)
        port = seen.command.port if seen.command else 0
        listening = self._value("the ports", {}).get(port, frozenset())
        if listening and not (seen.engine and seen.engine.pid in listening):
            sources["port"] = lambda: self._stranger(seen.id, port)
        return sources

    def _with(self, seen: ModelFacts, deep: Mapping[tuple[str, str], Result[Any]]) -> ModelFacts:
        def value(kind: str, otherwise: Any) -> Any:
            one = deep.get((seen.model, kind), Result())
            return otherwise if one.value is None else one.value

        problems = [
            f"{kind}: {one.problem}" for (model, kind), one in deep.items() if model == seen.model and one.problem
        ]
        return replace(
            seen,
            files=value("files", ()),
            pulse=value("pulse", None),
            error=value("the engine's log", None) or self._error_in_common_log(seen),
            port_holder=value("port", ""),
            unseen=(*seen.unseen, *problems),
        )

    def _files(self, seen: ModelFacts) -> Sequence[files.FileFact]:
        lock: Lock | None = self._value("the lock", None)
        locked = lock.models.get(seen.id) if lock else None
        store = Store(self._scope.store)
        if seen.command is None:
            paths = [store.root / seen.id / name for name in locked.links] if locked else []
        else:
            paths = list(seen.command.files)
            store = Store(seen.command.store or store.root)
            locked = locked if _is_of(locked, seen.command) else None  # locked anew since the stack was started
        return files.check(paths, locked, store)

    def _stranger(self, model: str, port: int) -> str:
        """Who listens on *port*; empty when it is the engine of *model*, or something that it has started."""
        # Looked at anew, in this order: an engine that was just started must not be taken for a stranger.
        listening = process.listeners().get(port, frozenset())
        members = self._recorded.members() if self._recorded else []
        engine = process.find(model, port, members)
        ours = process.family(engine.pid) if engine else {one.pid for one in members}
        return "" if not listening or ours & listening else ports.holder(port)

    def _engine_error(self, seen: ModelFacts) -> EngineError | None:
        """From the engine's own log, which llama-swap keeps for a while."""
        log = log_lines.last_start(LlamaSwap(self._stack.endpoint).model_log(seen.id))
        return history.engine_error(log, seen.history) if log else None

    def _error_in_common_log(self, seen: ModelFacts) -> EngineError | None:
        """From the log of the whole stack, which is always there; None when its certain lines do not decide."""
        if not seen.history.failures:
            return None
        error = history.engine_error(history.log_of(self._value("the log", ""), seen.id, seen.history), seen.history)
        return error if error.decides or seen.history.alone else None


def _overload() -> str:
    load, cores = os.getloadavg()[0], os.cpu_count() or 1
    return f"The machine is overloaded (load {load:.0f} on {cores} cores)." if load > _OVERLOAD * cores else ""


def _has_nvidia_smi(pid: int) -> bool:
    """Whether the preflight asks nvidia-smi, and there is one."""
    return not process.setting(pid, _VRAM_SOURCE) and shutil.which("nvidia-smi") is not None


def _log_tail(log: Path) -> str:
    with log.open("rb") as stream:
        stream.seek(max(0, log.stat().st_size - _LOG_BYTES))
        return stream.read().decode(errors="replace")


def _missing(served: Command | None) -> str:
    programs = (served.words[0], served.engine) if served else ()
    return next((program for program in programs if shutil.which(program) is None), "")


def _is_of(locked: LockedModel | None, served: Command) -> bool:
    return locked is not None and tuple(file.sha256 for file in locked.files) == served.sha256
