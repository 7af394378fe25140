"""Starts a local stack again exactly as it ran: its own programs, configuration, ports and variables."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from corral.engine import stack
from corral.engine.go_build import Report
from corral.engine.launch import CADDY, LLAMA_SWAP, Programs
from corral.engine.processes import Mark
from corral.engine.stack import Configuration, Running
from corral.engine.stack_folder import StackFolder
from corral.errors import CannotRun, Refused


@dataclass(frozen=True)
class Again:
    """What the stack *present* in the state folder *state* is started again with."""

    state: Path
    present: Running
    configuration: Configuration
    programs: Programs
    was_interrupted: bool = False
    """Whether a change of it has begun, and ended neither well nor badly: a `corral up` was killed meanwhile."""

    def start(self, report: Report) -> Running:
        """Start it.

        Raises:
            CannotRun: a program did not start, or another one has taken its port.
        """
        started, _ = stack.start(
            self.state,
            self.configuration,
            self.programs,
            door=self.present.door,
            first_engine_port=self.present.first_engine_port,
            catalog=self.present.catalog,
            report=report,
        )
        return started


def was_interrupted(state: Path, present: Running) -> bool:
    """Whether a `corral up` that changed *present*, the running stack of *state*, was killed meanwhile."""
    folder = StackFolder(state)
    return _read(folder).sha256 != present.config_sha256 and _before(folder, present) is not None


def prepare(state: Path, present: Running, *, otherwise: Programs | None = None) -> Again:
    """What starts *present*, the running stack of *state*, again.

    Where llama-swap or Caddy has died, that is with the programs *otherwise*.

    Raises:
        Refused: its configuration was changed or removed since it was started.
        CannotRun: its programs cannot be read, and there are no others.
    """
    folder = StackFolder(state)
    configuration, is_interrupted = _read(folder), False
    if configuration.sha256 != present.config_sha256 and (before := _before(folder, present)):
        configuration, is_interrupted = before, True
    if configuration.sha256 != present.config_sha256:
        step = f"corral down && {present.start_command()}"
        message = f"The configuration in {folder.run} is not the one that the stack was started with."
        raise Refused(message, next_step=step)
    return Again(state, present, configuration, _programs(present, otherwise), is_interrupted)


def _programs(present: Running, otherwise: Programs | None) -> Programs:
    try:
        variables, llama_swap = _of(present.leaders[LLAMA_SWAP], before="-config")
        return Programs(present.engine, llama_swap, _of(present.leaders[CADDY], before="run")[1], variables)
    except CannotRun:
        if otherwise is None:
            raise
        return otherwise


def _read(folder: StackFolder) -> Configuration:
    """What is on the disk; a file that cannot be read is empty, and so another one than any that ran."""
    texts = []
    for file in (folder.config, folder.guard_config, folder.caddy_config):
        try:
            texts.append(file.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError):
            texts.append("")
    return Configuration(*texts)


def _before(folder: StackFolder, present: Running) -> Configuration | None:
    """The configuration of *present*, where a change of it was begun; None: none was, or it cannot be read."""
    with suppress(OSError, ValueError, TypeError):
        found = Configuration(**json.loads(folder.before.read_text(encoding="utf-8")))
        return found if found.sha256 == present.config_sha256 else None
    return None


def _of(process: Mark, *, before: str) -> tuple[Mapping[str, str], Path]:
    """The variables of *process*, and its program: the word *before* its first one (an interpreter may be earlier)."""
    try:
        found = psutil.Process(process.pid)
        words = found.cmdline()
        return found.environ(), Path(words[words.index(before) - 1])
    except (psutil.Error, ValueError) as error:
        message = f"The process {process.pid} of the local stack cannot be read: {error}."
        raise CannotRun(message, next_step="corral status") from None
