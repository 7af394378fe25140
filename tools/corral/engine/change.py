"""Gives a running local stack another configuration: only the programs whose own part is another one restart.

llama-swap ends all of its engines whenever it ends or reads its configuration again, so a change of its part waits for
a moment without requests (docs/architecture/decisions/0019): no answer is cut off.  Where that moment does not come,
new requests wait in the guard until those under way have ended, and in any case while llama-swap restarts.  A guard is
replaced: the new one takes the socket over, and the one before ends with its last answer.  The door keeps its port.
"""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Collection
from contextlib import ExitStack
from dataclasses import asdict, astuple, dataclass, replace
from functools import partial
from pathlib import Path

from corral.agent.progress import count
from corral.engine import pause, processes, stack
from corral.engine.door import Door
from corral.engine.go_build import Report
from corral.engine.guard_hand_over import replace_guard
from corral.engine.launch import CADDY, GUARD, LLAMA_SWAP, PARTS, Programs, launch
from corral.engine.processes import Mark
from corral.engine.restart import Again
from corral.engine.stack import DRAIN_LIMIT_S, Configuration, Running
from corral.engine.stack_folder import StackFolder
from corral.errors import CannotRun, Refused
from corral.files import write_atomically

PAUSE_AFTER_S = 20.0
"""Without a moment without requests; from then on, new ones wait."""
IDLE_LIMIT_S = 300.0
"""For the requests under way to end."""

_POLL_S = 0.05
_REPORT_S = 5.0


@dataclass(frozen=True)
class Wanted:
    """What the stack is to run: its configuration, programs and door, and the catalog that they are from."""

    configuration: Configuration
    programs: Programs
    door: Door
    catalog: Path


@dataclass(frozen=True)
class Changed:
    """The stack as it runs now, the names of the programs that were restarted, and the models that were unloaded."""

    running: Running
    restarted: tuple[str, ...]
    unloaded: tuple[str, ...]


def change(again: Again, wanted: Wanted, *, report: Report) -> Changed:
    """Have the stack that *again* can start as it was run what is *wanted*, on the same ports.

    Raises:
        Refused: another corral has changed the stack meanwhile, or another port is wanted.
        CannotRun: requests never paused for ``IDLE_LIMIT_S``, or a program did not start; the stack runs as before.
    """
    present, folder = again.present, StackFolder(again.state)
    up = stack.command_of(wanted.door, wanted.catalog, wanted.configuration, "--port", str(wanted.door.port))
    if wanted.door.port != present.door.port:
        raise Refused(f"The stack listens on port {present.door.port}.", next_step=f"corral down && {up}")
    parts = _parts(again, wanted)
    with ExitStack() as scope:
        if set(parts) - {GUARD}:
            _wait_until_idle(again, report, scope, up)
        scope.enter_context(folder.exclusive_lock())
        if stack.recorded(again.state) != present:
            message = "Another corral has changed the stack meanwhile."
            raise Refused(message, next_step="corral status, then the same command again")
        is_asked = LLAMA_SWAP in parts and present.is_alive
        loaded = [one.model for one in present.client().residents()] if is_asked else []
        report(f"Restarting {', '.join(PARTS[part].name for part in parts)} ...")
        write_atomically(folder.before, json.dumps(asdict(again.configuration)), mode=0o600)
        try:
            running = _restarted(folder, again, wanted, parts, loaded)
        finally:
            folder.before.unlink()
        for one in running.strays():
            processes.send(one, signal.SIGTERM)
        return Changed(running, tuple(PARTS[part].name for part in parts), tuple(loaded))


def _parts(again: Again, wanted: Wanted) -> list[str]:
    """The parts whose configuration is another one, or that have died, in the order of their start."""
    before, after = astuple(again.configuration), astuple(wanted.configuration)
    changed = {part for part, old, new in zip(PARTS, before, after, strict=True) if old != new}
    if again.was_interrupted:  # a guard that is not recorded may have the place of the one that is
        changed.add(GUARD)
    return [part for part in PARTS if part in changed or not processes.is_alive(again.present.leaders[part])]


def _wait_until_idle(again: Again, report: Report, scope: ExitStack, up: str) -> None:
    """Return in a moment without requests; new ones wait until *scope* ends.  *up* is the command of the change."""
    present, begun = again.present, time.monotonic()
    _wait_for_answers(present, report, begun + PAUSE_AFTER_S)
    is_paused = scope.enter_context(pause.held(present, again.state))
    if not is_paused and all(processes.is_alive(present.leaders[part]) for part in (GUARD, CADDY)):
        report("The running guard knows no pause: a request that comes during the restart gets 502.")
    if left := _wait_for_answers(present, report, begun + IDLE_LIMIT_S, ", new ones wait" if is_paused else ""):
        raise CannotRun(
            f"The requests under way did not end ({left}): nothing was changed.",
            next_step=f"Try again: {up}; or cut off what takes longer than 30 s: corral down && {up}",
        )


def _wait_for_answers(present: Running, report: Report, deadline: float, others: str = "") -> str:
    """Return when no request is under way, or at *deadline*: the models of those that still are."""
    client, reported = present.client(), time.monotonic() + _REPORT_S / 2
    while present.is_alive and (requests := client.in_flight()):
        now, models = time.monotonic(), ", ".join(sorted({one.model for one in requests}))
        if now >= deadline:
            return models
        if now >= reported:
            report(f"Waiting for {count(len(requests), 'request')} under way ({models}){others} ...")
            reported = now + _REPORT_S
        time.sleep(_POLL_S)
    return ""


def _restarted(
    folder: StackFolder, again: Again, wanted: Wanted, parts: Collection[str], loaded: Collection[str]
) -> Running:
    present = again.present
    try:
        _end(present, parts)
        running = _started(
            folder,
            replace(
                present,
                door=wanted.door,
                config_sha256=wanted.configuration.sha256,
                engine=wanted.programs.engine,
                catalog=wanted.catalog,
                started_at=time.time() if LLAMA_SWAP in parts else present.started_at,
            ),
            wanted.configuration,
            wanted.programs,
            parts,
        )
    except BaseException as error:
        _restore(folder, again, parts, error)
        if isinstance(error, CannotRun):
            left = (
                f"  {', '.join(loaded)}: unloaded by that; a request loads it again, or corral load." if loaded else ""
            )
            error.message = f"{error.message}\nThe stack runs as before.{left}"
        raise
    return running


def _restore(folder: StackFolder, again: Again, parts: Collection[str], error: BaseException) -> None:
    """Start *parts* as they were; *error* is why they could not be changed."""
    present = again.present
    try:
        stack.end_members([present.leaders[part] for part in parts if part != GUARD], present.token, grace_s=0)
        _started(folder, present, again.configuration, again.programs, parts)
    except CannotRun as second:
        message = f"{error}\nNor does the stack start as it was: {second.message}"
        raise CannotRun(message, next_step=f"corral down && {present.start_command()}") from None


def _started(
    folder: StackFolder, running: Running, configuration: Configuration, programs: Programs, parts: Collection[str]
) -> Running:
    """*running* with *parts* started with *configuration*; the others run on.

    The guard that was there ends as soon as the fresh one has its place, and with its last answer.
    """
    files = (folder.config, folder.guard_config, folder.caddy_config)
    for file, text in zip(files, astuple(configuration), strict=True):
        write_atomically(file, text, mode=0o600)
    fresh: dict[str, Mark] = {}
    try:
        for part in parts:
            start = partial(launch, part, folder, programs, running.door, running.token)
            fresh[part] = replace_guard(folder, running.leaders[part], start) if part == GUARD else start()
        found = replace(running, leaders={**running.leaders, **fresh})
        stack.write_record(folder, found)
        stack.wait_until_answering(folder, found)
    except BaseException:
        stack.end_members(fresh.values(), running.token, grace_s=0)
        raise
    return found


def _end(present: Running, parts: Collection[str]) -> None:
    """End *parts* but the guard, the one that faces clients first: each lets the answers under way end."""
    for part in [part for part in list(PARTS)[::-1] if part in parts and part != GUARD]:
        leader = present.leaders[part]
        processes.send(leader, signal.SIGTERM)
        processes.wait([leader], DRAIN_LIMIT_S)
        others = present.llama_swaps() if part == LLAMA_SWAP else []
        stack.end_members([leader, *others], present.token, grace_s=stack.ENGINE_GRACE_S)


def successor(state: Path, running: Running) -> Running | None:
    """The stack that *running* has become by a change, once that is done; None: it has not, or a part of it is dead."""
    with StackFolder(state).exclusive_lock():
        found = stack.recorded(state)
    return found if found and found.token == running.token and found != running and not found.lost() else None
