"""Time `corral --help` against a bare `python3 -c pass` (goal: at most 4 times as long).

The two alternate, so that a busy moment of the machine affects both.

    python tools/benchmarks/cli_startup.py [--rounds 21]
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import subprocess
import sys
import time
from pathlib import Path

GOAL_RATIO = 4.0


def seconds(command: list[str]) -> float:
    """Wall-clock time of one run of *command*."""
    start = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def main() -> int:
    """Print the medians and their ratio; return 1 when the goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--small", action="store_true", help="a third of the rounds, as CI runs it")
    args = parser.parse_args()
    args.rounds = max(5, args.rounds // 3) if args.small else args.rounds

    bare = [sys.executable, "-c", "pass"]
    corral = [str(Path(sys.executable).with_name("corral")), "--help"]
    for command in (bare, corral):  # once unmeasured: bytecode is written, pages are read
        seconds(command)
    pairs = [(seconds(bare), seconds(corral)) for _ in range(args.rounds)]
    bare_median, corral_median = (statistics.median(column) for column in zip(*pairs, strict=True))
    ratio = corral_median / bare_median

    print(f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, median of {args.rounds}")
    print(f"python3 -c pass  {bare_median * 1000:6.1f} ms")
    print(f"corral --help    {corral_median * 1000:6.1f} ms   {ratio:.2f} x; goal: {GOAL_RATIO:g} x")
    return 0 if ratio <= GOAL_RATIO else 1


if __name__ == "__main__":
    sys.exit(main())
