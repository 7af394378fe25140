"""The preflight as a test calls it, with nothing on PATH that the test did not put there."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from corral.door import preflight_line
from corral.door.preflight_line import Record
from corral.paths import REPOSITORY

SCRIPT = REPOSITORY / "terraform" / "modules" / "llama-swap-config" / "preflight.sh"
HOLDERS = SCRIPT.with_name("holders.sh")
REFUSED, MISUSED, NO_PROGRAM = 75, 64, 127
_NEEDS = ("cat", "env", "grep", "setsid", "sh", "sleep", "tr", "yes")
"""Of a system; no nvidia-smi, whatever this machine has."""


_LIMITS = {
    SCRIPT: {
        "read_memory 0.6": "read_memory 60",
        "read_memory 0.2": "read_memory 60",
        "-lt 25 ]": "-lt 25000 ]",
        "ask 0.3 sh": "ask 60 sh",
    },
    HOLDERS: {"ask 0.25 sh": "ask 60 sh", "ask 0.25 nvidia-smi": "ask 60 nvidia-smi"},
}


def without_limits(folder: Path) -> Path:
    """A copy of the script in *folder* with limits of time that no busy machine reaches."""
    folder.mkdir()
    for script, limits in _LIMITS.items():
        text = script.read_text()
        for limit, longer in limits.items():
            assert text.count(limit) == 1, limit
            text = text.replace(limit, longer)
        (folder / script.name).write_text(text)
    (folder / SCRIPT.name).chmod(0o755)
    return folder / SCRIPT.name


def records(done: subprocess.CompletedProcess[str]) -> list[Record]:
    """What a preflight wrote to stderr, every line of which must be a record."""
    lines = done.stderr.splitlines()
    found = preflight_line.read(done.stderr)
    assert len(found) == len(lines), done.stderr
    return found


def decision(done: subprocess.CompletedProcess[str]) -> Record:
    """The first record of a preflight, which is its only decision."""
    first, *others = records(done)
    assert first.is_decision
    assert not any(one.is_decision for one in others)
    return first


class Preflight:
    """Calls the script for a command that prints "started".

    Args:
        shell: the words that run it.
        programs: the folder that is its PATH, which it makes.
        script: the one that is called.
    """

    def __init__(self, shell: list[str], programs: Path, script: Path = SCRIPT) -> None:
        self.shell = shell
        self.programs = programs
        self.script = script
        programs.mkdir()
        for name in _NEEDS:
            found = shutil.which(name)
            assert found, name
            (programs / name).symlink_to(found)

    def __call__(self, *words: str, need: str = "6996", **settings: str) -> subprocess.CompletedProcess[str]:
        command = self.command(*words, need=need)
        return subprocess.run(
            command, env=self.environment(settings), capture_output=True, text=True, check=False, timeout=30
        )

    def command(self, *words: str, need: str = "6996") -> list[str]:
        engine = words or ("sh", "-c", "echo started")
        return [*self.shell, str(self.script), "--model", "qwen3-8b", "--need-mib", need, "--", *engine]

    def environment(self, settings: dict[str, str]) -> dict[str, str]:
        return {"PATH": str(self.programs), **settings}

    def install(self, name: str, script: str) -> None:
        program = self.programs / name
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
