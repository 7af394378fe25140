"""The memory that an engine requested while it loaded a model, summed from the buffers in its log.

They are logged at verbosity 4 ("trace"), which the local stack gives every engine.  The CUDA context and pools are not
among them.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import NamedTuple

from corral.engine import log_lines
from corral.engine.log_lines import Buffer
from corral.errors import CannotRun


class Report(NamedTuple):
    """The buffers of one load, in bytes: by card (its driver's name where the engine gave it), and in host memory."""

    cards: dict[str, int]
    host: int


def parse(log: str) -> Report | None:
    """The buffers of the last load in an engine's *log*; None when the log does not hold a whole load.

    Raises:
        CannotRun: it names a kind of memory of which it is not known whether it is the card's.
    """
    load = log_lines.whole_load(log)
    buffers = _without_what_was_repacked(log_lines.buffers(load), load)
    uses = {word for one in buffers for word in one.use.split()}
    if not {"model", "compute"} <= uses:
        return None
    names = log_lines.device_names(load)
    cards: defaultdict[str, int] = defaultdict(int)
    host = 0
    for one in buffers:
        if one.is_on_host:
            host += one.size
        elif one.device:
            cards[names.get(one.device, one.device)] += one.size
        else:
            raise CannotRun(
                f"The engine took memory of the kind {one.kind}, and corral does not know whether that is on the card.",
                next_step="Measure with the driver's count: corral measure MODEL --source nvidia-smi",
            )
    return Report(dict(cards), host)


def _without_what_was_repacked(buffers: list[Buffer], load: str) -> list[Buffer]:
    """*buffers* with each tensor in the host's memory once.

    A CPU repacks some types into a buffer of their own, and the part of the file that is mapped for the others may
    reach over those too: together they would count more than the file holds.
    """
    repacked = sum(one.size for one in buffers if one.use == "model" and one.is_on_host and not one.is_mapped)
    whole = log_lines.file_size(load)
    if not repacked or whole is None:
        return buffers
    rest = max(0, whole - repacked)
    return [replace(one, size=min(one.size, rest)) if one.use == "model" and one.is_mapped else one for one in buffers]
