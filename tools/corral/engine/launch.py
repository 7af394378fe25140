"""Starts the programs of the local stack, each as the leader of a session of its own."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from corral.engine import environment, ports, processes
from corral.engine.binaries import Program
from corral.engine.door import SWAP_KEY, Door, caddy_command, caddy_environment, guard_command
from corral.engine.processes import Mark
from corral.engine.stack_folder import StackFolder
from corral.errors import CannotRun

MARKER = "CORRAL_STACK"
"""The variable by which all processes of one stack are known."""
LLAMA_SWAP, GUARD, CADDY = "llama-swap", "guard", "caddy"

_LINES = 10
# An engine that cannot use a card needs no preflight of one.  The caller's own source comes first.
_VRAM_SOURCE = "CORRAL_VRAM_SOURCE"
_NO_CARD = "echo the embedded engine uses no NVIDIA card"
_PRINTS_ITS_BUFFERS = "4"  # the verbosity from which llama.cpp logs the size of its buffers; never a prompt

_children: dict[int, subprocess.Popen[bytes]] = {}  # children of this process, which must reap them


@dataclass(frozen=True)
class Programs:
    """The programs of a stack; the guard is corral's own."""

    engine: Program
    llama_swap: Path
    caddy: Path
    variables: Mapping[str, str] | None = None  # of llama-swap, as it had them; None: what this process gives it


class Part(NamedTuple):
    """One of the programs that lead a session."""

    name: str  # in a sentence
    command: Callable[[StackFolder, Programs, Door], tuple[list[str], Path, dict[str, str]]]  # words, folder, variables
    log: Callable[[StackFolder], Path]


def _llama_swap(folder: StackFolder, programs: Programs, door: Door) -> tuple[list[str], Path, dict[str, str]]:
    key = folder.key.read_text(encoding="ascii")
    # llama-swap hands Authorization on, so that engines may require its key: their ports would be a way round the door.
    settings = {SWAP_KEY: key, "LLAMA_API_KEY": key, "GGML_NO_BACKTRACE": "1"}
    settings["LLAMA_ARG_LOG_VERBOSITY"] = _PRINTS_ITS_BUFFERS
    variables = environment.of_engine(**settings) if programs.variables is None else {**programs.variables, **settings}
    if programs.engine.origin == "embedded":
        variables.setdefault(_VRAM_SOURCE, _NO_CARD)
    words = [str(programs.llama_swap), "-config", str(folder.config), "-listen", f"{ports.HOST}:{door.swap_port}"]
    return words, folder.state, variables


def _guard(folder: StackFolder, _programs: Programs, _door: Door) -> tuple[list[str], Path, dict[str, str]]:
    return guard_command(folder.guard_config.absolute()), folder.run, environment.allowed()


def _caddy(folder: StackFolder, programs: Programs, _door: Door) -> tuple[list[str], Path, dict[str, str]]:
    words = caddy_command(programs.caddy, folder.caddy_config.absolute())
    return words, folder.run, caddy_environment(folder.run.absolute())


PARTS = {
    LLAMA_SWAP: Part("llama-swap", _llama_swap, lambda folder: folder.log),
    GUARD: Part("the guard", _guard, lambda folder: folder.door_log),
    CADDY: Part("Caddy", _caddy, lambda folder: folder.door_log),
}
"""In the order of their start."""


def launch(part: str, folder: StackFolder, programs: Programs, door: Door, token: str) -> Mark:
    """Start *part*, marked by *token*, and return at once.

    Raises:
        CannotRun: it has ended already; the message has its last lines.
    """
    words, cwd, variables = PARTS[part].command(folder, programs, door)
    # A shell, replaced before anything happens, because only a process can set its own limits: no core dumps.
    shell = ["/bin/sh", "-c", 'ulimit -c 0; exec "$@"', "sh"]
    with open(PARTS[part].log(folder), "ab", opener=lambda path, flags: os.open(path, flags, 0o600)) as log:
        child = subprocess.Popen(
            [*shell, *words],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=cwd,
            env={**variables, MARKER: token},
            start_new_session=True,
            umask=0o077,
        )
    _children[child.pid] = child
    mark = processes.mark(child.pid)
    if mark is None:
        raise ended(part, folder, child.pid)
    return mark


def reap(leaders: Collection[Mark]) -> None:
    """Forget *leaders*, which have ended."""
    for leader in leaders:
        if child := _children.pop(leader.pid, None):
            child.wait()


def ended(part: str, folder: StackFolder, pid: int) -> CannotRun:
    """The error of *part*, which was process *pid* and has ended before it served."""
    child = _children.pop(pid, None)
    code = f" (exit code {child.wait()})" if child else ""
    name, tail = PARTS[part].name, folder.log_tail(_LINES, log=PARTS[part].log(folder)) or "It printed nothing."
    return CannotRun(f"{name[:1].upper()}{name[1:]} ended while starting{code}:\n{tail}", next_step="corral logs")
