"""A program called nvidia-smi that gives one recorded answer: the tests have no card."""

from __future__ import annotations

import shlex
from pathlib import Path

UUID = "GPU-3f1c2b1e-0d5a-4c0e-9f0a-1d2c3b4a5f60"


def install(folder: Path, out: str, *, err: str = "", code: int = 0) -> Path:
    """Put it into *folder*; it insists on the question that corral asks, and needs nothing else on PATH."""
    program = folder / "nvidia-smi"
    program.write_text(
        "#!/bin/sh\n"
        '[ "$*" = "--query-compute-apps=gpu_uuid,gpu_name,pid,used_memory --format=csv,noheader,nounits" ] || exit 2\n'
        f"printf %s {shlex.quote(out)}\n"
        f"printf %s {shlex.quote(err)} >&2\n"
        f"exit {code}\n"
    )
    program.chmod(0o755)
    return program
