"""What a process holds on a card, by NVIDIA's driver.

A report that is not a number is an error here and never 0: "nothing is known" must not look like "nothing is used".
"""

from __future__ import annotations

from typing import NamedTuple

from corral.errors import CannotRun
from corral.exporter import driver
from corral.exporter.errors import DriverFault, DriverUnknown

_LIMIT_S = 10.0
_OTHERWISE = "Take the engine's own report instead: corral measure MODEL --source engine-report"
_TRY = "Try it: nvidia-smi"
_STEPS = {DriverFault.HANGING: _TRY, DriverFault.FAILED: _TRY}


class Held(NamedTuple):
    """What a process holds on one card, by its driver's name (``Tesla T4``), in bytes; the driver counts in MiB."""

    card: str
    size: int


def held_by(pid: int) -> Held:
    """What the process *pid* holds, by ``nvidia-smi --query-compute-apps``.

    Raises:
        CannotRun: there is no nvidia-smi, it fails, or it does not know the process or how much it holds; the message
            quotes it.
    """
    if not driver.sees_its_pids():
        raise CannotRun(
            "nvidia-smi lists processes by their pids outside of this container, which are not known inside it.",
            next_step=f"Run it outside, or in a container with --pid=host. {_OTHERWISE}",
        )
    try:
        processes = driver.processes(limit_s=_LIMIT_S)
    except DriverUnknown as error:
        raise CannotRun(str(error), next_step=_STEPS.get(error.fault, _OTHERWISE)) from None
    own = [process for process in processes if process.pid == pid]
    if not own:
        others = f"It lists {', '.join(str(one.pid) for one in processes)}." if processes else "It lists none at all."
        raise CannotRun(
            f"nvidia-smi does not list the engine (pid {pid}) among the processes on a card. {others} "
            "Either the engine does not use the card, or its pid is another one to the driver.",
            next_step=_OTHERWISE,
        )
    if len({process.card for process in own}) > 1:
        raise CannotRun(
            f"The engine (pid {pid}) is on several cards ({', '.join(one.card_name for one in own)}), "
            "and a seat is on one.",
            next_step="Choose one with CUDA_VISIBLE_DEVICES=0 before corral up, then measure again",
        )
    if not own[0].used:
        raise CannotRun(
            f"nvidia-smi reports no amount that the engine (pid {pid}) holds on the {own[0].card_name}, "
            f"but {own[0].reported!r}.",
            next_step=_OTHERWISE,
        )
    return Held(own[0].card_name, own[0].used)
