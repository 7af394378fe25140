"""A process that takes a share of a core and holds memory, as a tenant of the card would; alone, standard library only.

    python stand_in_tenant.py SHARE MIB

It prints a line when it holds its memory, and ends when its standard input does: so it never outlives its parent.
"""

from __future__ import annotations

import mmap
import select
import sys
import time

_PERIOD_S = 0.02


def main(share: float, mib: int) -> None:
    """Compute for *share* (0 to 1) of the time, and hold *mib* MiB, until standard input ends."""
    held = mmap.mmap(-1, max(1, mib) << 20)
    for at in range(0, mib << 20, mmap.PAGESIZE):
        held[at] = 1  # a page that was never written takes no memory
    sys.stdout.write("holds\n")
    sys.stdout.flush()
    pause_s = (1 - share) * _PERIOD_S if share else None
    while not select.select([sys.stdin], [], [], pause_s)[0]:
        until = time.perf_counter() + share * _PERIOD_S
        while time.perf_counter() < until:
            pass


if __name__ == "__main__":
    main(float(sys.argv[1]), int(sys.argv[2]))
