"""Box 8: adapters swapped and rolled back.  corral swaps none yet, so only a model without one can have the box."""

from __future__ import annotations

from corral.gate import box
from corral.gate.box import Line, State
from corral.lock.lock import LockEntry

_FLAG = "--lora"


def judge(entry: LockEntry) -> tuple[Line, ...]:
    """*Not used* where the locked command line has no adapter."""
    flags = sorted({word for word in entry.argv if word.startswith(_FLAG)})
    if not flags:
        return box.line(State.NOT_USED, f"the locked command line has no {_FLAG}")
    text = f"the locked command line has {', '.join(flags)}, and corral cannot measure a swap of adapters yet"
    return box.line(State.UNKNOWN, text, "Leave adapters out of the model's file, or prove the swap by hand")
