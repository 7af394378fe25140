"""A stand-in for a card: a program called nvidia-smi, whose answers are files that the drill writes."""

from __future__ import annotations

import shlex
from pathlib import Path

from corral.files import write_atomically

_UUID, _NAME = "GPU-00000000-0000-0000-0000-000000000000", "Tesla T4"
_ANSWERS = {
    "--query-gpu=uuid,memory.total,memory.free,name": "cards",
    "--query-gpu=uuid,utilization.gpu": "busy",
    "--query-gpu=memory.free,memory.total": "memory",
    "--query-compute-apps=gpu_uuid,gpu_name,pid,used_memory,process_name": "processes",
    "--query-compute-apps=pid,used_memory,process_name": "holders",
}
"""The questions of the exporter, of `corral why` and of the preflight, and the file that answers each."""


class StandInCard:
    """A card of *total_mib* in *folder*, which goes first on PATH; the driver itself holds *driver_mib*."""

    def __init__(self, folder: Path, *, total_mib: int, driver_mib: int) -> None:
        self.folder = folder
        self._total, self._driver = total_mib, driver_mib
        self._held: dict[int, tuple[str, int]] = {}
        folder.mkdir(parents=True)
        cases = "".join(
            f"{question}) exec cat {shlex.quote(str(folder / file))} ;;\n" for question, file in _ANSWERS.items()
        )
        program = folder / "nvidia-smi"
        program.write_text(f'#!/bin/sh\ncase "$1" in\n{cases}esac\necho "no such question: $1" >&2\nexit 2\n')
        program.chmod(0o755)
        self._write()

    @property
    def free_mib(self) -> int:
        """MiB that a process could get."""
        return max(0, self._total - self._driver - sum(mib for _, mib in self._held.values()))

    def hold(self, pid: int, program: str, mib: int) -> None:
        """Let the process *pid* hold *mib* from now on; 0: it is not on the card."""
        self._held.pop(pid, None)
        if mib:
            self._held[pid] = (program, mib)
        self._write()

    def _write(self) -> None:
        rows = [(pid, mib, program) for pid, (program, mib) in self._held.items()]
        for file, text in {
            "cards": f"{_UUID}, {self._total}, {self.free_mib}, {_NAME}\n",
            "busy": f"{_UUID}, 0\n",
            "memory": f"{self.free_mib}, {self._total}\n",
            "processes": "".join(f"{_UUID}, {_NAME}, {pid}, {mib}, {program}\n" for pid, mib, program in rows),
            "holders": "".join(f"{pid}, {mib}, {program}\n" for pid, mib, program in rows),
        }.items():
            write_atomically(self.folder / file, text)
