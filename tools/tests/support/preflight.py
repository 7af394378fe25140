"""The preflight as a test calls it, with nothing on PATH that the test did not put there."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from corral.paths import REPOSITORY

SCRIPT = REPOSITORY / "terraform" / "modules" / "llama-swap-config" / "preflight.sh"
REFUSED, MISUSED, NO_PROGRAM = 75, 64, 127
_NEEDS = ("cat", "env", "grep", "setsid", "sh", "sleep", "tr", "yes")
"""Of a system; no nvidia-smi, whatever this machine has."""


class Preflight:
    """Calls the script for a command that says "started".

    Args:
        shell: the words that run it.
        programs: the folder that is its PATH, which it makes.
    """

    def __init__(self, shell: list[str], programs: Path) -> None:
        self.shell = shell
        self.programs = programs
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
        return [*self.shell, str(SCRIPT), "--model", "qwen3-8b", "--need-mib", need, "--", *engine]

    def environment(self, settings: dict[str, str]) -> dict[str, str]:
        return {"PATH": str(self.programs), **settings}

    def install(self, name: str, script: str) -> None:
        program = self.programs / name
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
