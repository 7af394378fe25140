"""What a process holds on a card, by NVIDIA's driver.

The driver counts everything: the engine's buffers, its CUDA context, and pools that grew with use.  A report
that is not a number is an error here and never 0: "nothing is known" must not look like "nothing is used".
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from corral.errors import CannotRun

PROGRAM = "nvidia-smi"
_LIMIT_S = 10.0
_MIB = 1 << 20
_FIELDS = ("gpu_uuid", "gpu_name", "pid", "used_memory")
_FIRST_PID_NAMESPACE = 0xEFFFFFFC  # PROC_PID_INIT_INO in Linux' include/linux/proc_ns.h
_OTHERWISE = "Take the engine's own report instead: corral measure MODEL --source engine-report"


class Held(NamedTuple):
    """What a process holds on one card, by its driver's name (``Tesla T4``), in bytes; the driver counts in MiB."""

    card: str
    size: int


def is_installed() -> bool:
    """Whether there is an ``nvidia-smi``; it may still have no card."""
    return shutil.which(PROGRAM) is not None


def held_by(pid: int) -> Held:
    """What the process *pid* holds, by ``nvidia-smi --query-compute-apps``.

    Raises:
        CannotRun: there is no nvidia-smi, it fails, or it does not know the process or how much it holds; the message
            quotes it.
    """
    _require_pids_of_the_driver()
    rows = _rows(_run())
    own = [row for row in rows if row[2] == str(pid)]
    if not own:
        others = f"It lists {', '.join(row[2] for row in rows)}." if rows else "It lists none at all."
        raise CannotRun(
            f"nvidia-smi does not list the engine (pid {pid}) among the processes on a card. {others} "
            "Either the engine does not use the card, or its pid is another one to the driver.",
            next_step=_OTHERWISE,
        )
    if len({row[0] for row in own}) > 1:
        raise CannotRun(
            f"The engine (pid {pid}) is on several cards ({', '.join(row[1] for row in own)}), and a seat is on one.",
            next_step="Choose one with CUDA_VISIBLE_DEVICES=0 before corral up, then measure again",
        )
    used = own[0][3]
    if not used.isdecimal() or int(used) == 0:
        raise CannotRun(
            f"nvidia-smi reports no amount that the engine (pid {pid}) holds on the {own[0][1]}, but {used!r}.",
            next_step=_OTHERWISE,
        )
    return Held(own[0][1], int(used) * _MIB)


def _require_pids_of_the_driver() -> None:
    """The driver counts pids from outside of all containers: inside of one, another process may have our number.

    https://github.com/NVIDIA/nvidia-docker/issues/1483
    """
    if sys.platform == "linux" and pid_namespace() != _FIRST_PID_NAMESPACE:
        raise CannotRun(
            "nvidia-smi lists processes by their pids outside of this container, which are not known inside it.",
            next_step=f"Run it outside, or in a container with --pid=host. {_OTHERWISE}",
        )


def pid_namespace() -> int:
    """The number of this process's pid namespace."""
    return Path("/proc/self/ns/pid").stat().st_ino


def _run() -> str:
    command = [PROGRAM, f"--query-compute-apps={','.join(_FIELDS)}", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False, timeout=_LIMIT_S)
    except FileNotFoundError:
        raise CannotRun("There is no nvidia-smi on PATH.", next_step=_OTHERWISE) from None
    except subprocess.TimeoutExpired:
        problem = f"nvidia-smi did not respond within {_LIMIT_S:.0f} s."
        raise CannotRun(problem, next_step="Try it: nvidia-smi") from None
    except OSError as error:
        raise CannotRun(f"nvidia-smi does not start: {error.strerror}.", next_step=_OTHERWISE) from None
    if done.returncode != 0:
        printed = f"{done.stdout}\n{done.stderr}".strip() or "it printed nothing"
        raise CannotRun(f"nvidia-smi failed (exit code {done.returncode}): {printed}", next_step="Try it: nvidia-smi")
    return done.stdout


def _rows(table: str) -> list[list[str]]:
    """The rows of *table*, each with one word for each of ``_FIELDS``."""
    rows = [[word.strip() for word in line.split(",")] for line in table.splitlines() if line.strip()]
    if any(len(row) != len(_FIELDS) for row in rows):
        raise CannotRun(f"nvidia-smi printed no table of processes: {table.strip()!r}.", next_step=_OTHERWISE)
    return rows
