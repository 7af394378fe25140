"""An operator who types the commands of a runbook, word for word."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.support.cluster.homelab import Homelab
from tests.support.runbook import Runbook

STORE = "/srv/nfs-ssd/llamacpp"
_TOKEN = ".cache/huggingface/token"
# On the machine of the store its folder is where the runbooks name it; here that machine is a name space of mounts.
_ON_THE_STORES_MACHINE = (
    f'mount -t tmpfs tmpfs /srv && mkdir -p {STORE} && mount --bind "$1" {STORE} && exec bash -c "$2"'
)


class Follower:
    """An operator who follows a runbook in a lab."""

    def __init__(self, lab: Homelab, name: str) -> None:
        self.lab, self.book = lab, Runbook.read(name)
        self._left = {heading: list(commands) for heading, commands in self.book.commands.items()}

    def does(self, heading: str, **codes: int) -> dict[str, str]:
        """Type every command under *heading*; their output.  All succeed, but for those of ``corral <name>=code``."""
        printed = {}
        for command in self._left.pop(heading):
            done = self._typed(command)
            words = command.split()
            wanted = codes.get(words[1], 0) if words[0] == "corral" else 0
            assert done.returncode == wanted, f"$ {command}: {done.returncode}\n{done.stdout}{done.stderr}"
            printed[command] = f"{done.stdout}{done.stderr}"
        return printed

    def next_headings(self, printed: dict[str, str]) -> list[str]:
        """The headings that the table names for what corral *printed* in the diagnosis."""
        text = "\n".join(text for command, text in printed.items() if command.startswith("corral "))
        return self.book.targets(text)

    def assert_all_is_done(self) -> None:
        """Every command of the runbook was typed."""
        assert self._left == {}, "commands that were not typed"

    def _typed(self, command: str) -> subprocess.CompletedProcess[str]:
        home = self.lab.clone / "home"
        (home / _TOKEN).parent.mkdir(parents=True, exist_ok=True)
        (home / _TOKEN).write_text("hf_x")
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        return self.lab.run(
            *("unshare", "--mount", "bash", "-c", _ON_THE_STORES_MACHINE, "bash", str(self.lab.store), command),
            env=self.lab.environment | {"HOME": str(home), "PATH": path},
        )
