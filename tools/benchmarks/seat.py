"""Time `corral seat` and `corral seat --what-if` on the demo's catalog (goal: at most 0.7 s of processor time).

Prints the medians beside a bare `python -c 'import corral.cli.main'` of the same run, which shows the speed of the
machine.  The question changes a context, so that the engine predicts again.

    python tools/benchmarks/seat.py [--rounds 9]
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import sys

from lock_100_models import processor_seconds

from corral.paths import REPOSITORY

GOAL_SECONDS = 0.7
QUESTION = "corral seat --what-if"


def main() -> int:
    """Print the medians; return 1 when the goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--small", action="store_true", help="a third of the rounds, as CI runs it")
    args = parser.parse_args()
    rounds = max(3, args.rounds // 3) if args.small else args.rounds

    seat = [
        sys.executable,
        "-m",
        "corral.cli.main",
        "seat",
        "--catalog",
        str(REPOSITORY / "terraform" / "catalog-demo"),
    ]
    commands = {
        "import corral.cli.main": [sys.executable, "-c", "import corral.cli.main"],
        "corral seat": seat,
        QUESTION: [*seat, "--what-if", "context=4096", "tiny-text"],
    }
    times: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(rounds):
        for name, command in commands.items():
            times[name].append(processor_seconds(command, os.environ))

    medians = {name: statistics.median(values) for name, values in times.items()}
    print(f"{platform.machine()}, {os.cpu_count()} cores, median of {rounds}")
    base = medians["import corral.cli.main"]
    for name, median in medians.items():
        print(f"{name:22} {median:6.3f} s of processor time   {median / base:5.1f} x the import")
    print(f"goal: {GOAL_SECONDS} s for {QUESTION}")
    return 0 if medians[QUESTION] <= GOAL_SECONDS else 1


if __name__ == "__main__":
    sys.exit(main())
