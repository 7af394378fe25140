"""A program called nvidia-smi that gives recorded answers: the tests have no card."""

from __future__ import annotations

import shlex
from pathlib import Path

UUID = "GPU-3f1c2b1e-0d5a-4c0e-9f0a-1d2c3b4a5f60"
CARDS = f"{UUID}, 15360, 2210, Tesla T4\n"
"""A T4 with 2210 MiB free."""

_CARDS_QUERY = "--query-gpu=uuid,memory.total,memory.free,name"
_BUSY_QUERY = "--query-gpu=uuid,utilization.gpu"
_PROCESSES_QUERY = "--query-compute-apps=gpu_uuid,gpu_name,pid,used_memory,process_name"
_FORMAT = "--format=csv,noheader,nounits"


def install(folder: Path, out: str, *, cards: str = CARDS, busy: str = "0", err: str = "", code: int = 0) -> Path:
    """Put it into *folder*; it insists on the questions that corral asks, and needs nothing else on PATH.

    Args:
        folder: to be put on PATH.
        out: the table of processes.
        cards: the table of cards.
        busy: the share of the time that the card computes, in per cent.
        err: its stderr, for both.
        code: its exit code, for both.
    """
    return install_script(
        folder,
        f'case "$*" in\n'
        f'"{_CARDS_QUERY} {_FORMAT}") printf %s {shlex.quote(cards)} ;;\n'
        f'"{_BUSY_QUERY} {_FORMAT}") echo {UUID}, {shlex.quote(busy)} ;;\n'
        f'"{_PROCESSES_QUERY} {_FORMAT}") printf %s {shlex.quote(out)} ;;\n'
        "*) exit 2 ;;\n"
        "esac\n"
        f"printf %s {shlex.quote(err)} >&2\n"
        f"exit {code}\n",
    )


def install_script(folder: Path, script: str) -> Path:
    """Put one into *folder* that runs the POSIX shell *script*."""
    program = folder / "nvidia-smi"
    program.write_text(f"#!/bin/sh\n{script}")
    program.chmod(0o755)
    return program
