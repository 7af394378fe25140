"""Time as the store's file server counts it, and durations as people write them.

Ages of what lies in a store are told by one clock alone, the file server's: a machine whose own clock is off judges
as well as any other.
"""

from __future__ import annotations

import contextlib
import re
import time
from pathlib import Path

_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
_DURATION = re.compile(r"(\d+(?:\.\d+)?) ?([smhd]?)")


def server_time(folder: Path) -> float:
    """Now, as seconds since 1970, by the clock of whatever keeps *folder*; touches the file ``clock`` in it.

    Where nothing may be written the time of this machine has to do.
    """
    clock = folder / "clock"
    with contextlib.suppress(OSError):
        clock.touch()
        return clock.stat().st_mtime
    return time.time()


def seconds_of(text: str) -> float:
    """The seconds in a duration such as ``90s``, ``15m``, ``24h`` or ``7d``; a bare number counts seconds.

    Raises:
        ValueError: *text* is no duration.
    """
    found = _DURATION.fullmatch(text.strip())
    if not found:
        raise ValueError(f"{text!r} is no duration")
    return float(found[1]) * _UNITS[found[2]]
