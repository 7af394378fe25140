"""Time `corral lock` of 100 models after the edit of a comment, offline (goal: at most 1 s of processor time).

Prints its median beside `corral lock --check` and a bare `python -c 'import corral.cli.main'` of the same run, which
shows the speed of the machine.

    python tools/benchmarks/lock_100_models.py [--models 100] [--rounds 9]
"""

from __future__ import annotations

import argparse
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from plan_100_models import write_catalog

GOAL_SECONDS = 1.0


def processor_seconds(command: Sequence[str], environment: Mapping[str, str]) -> float:
    """Processor time of one run of *command*, user and system."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, env=environment, check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> int:
    """Print the medians; return 1 when the goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--small", action="store_true", help="a third of the rounds, as CI runs it")
    args = parser.parse_args()
    args.rounds = max(3, args.rounds // 3) if args.small else args.rounds

    with tempfile.TemporaryDirectory(prefix="corral-lock-") as scratch:
        catalog = write_catalog(Path(scratch) / "catalog", args.models)
        edited = catalog / "cards" / "t4.yaml"
        corral = [sys.executable, "-m", "corral.cli.main"]
        commands = {
            "import corral.cli.main": [sys.executable, "-c", "import corral.cli.main"],
            "corral lock --check": [*corral, "lock", "--check", "--catalog", str(catalog)],
            "corral lock": [*corral, "lock", "--catalog", str(catalog)],
        }
        # No server listens at this address: a request to the hub would be an error.
        environment = os.environ | {"HF_ENDPOINT": "http://127.0.0.1:9"}
        times: dict[str, list[float]] = {name: [] for name in commands}
        for _ in range(args.rounds):
            for name, command in commands.items():
                if name == "corral lock":
                    edited.write_text(f"{edited.read_text()}# edited\n")
                times[name].append(processor_seconds(command, environment))

    medians = {name: statistics.median(values) for name, values in times.items()}
    base = medians["import corral.cli.main"]
    print(f"{platform.machine()}, {os.cpu_count()} cores, {args.models} models, median of {args.rounds}")
    for name, median in medians.items():
        print(f"{name:22} {median:6.3f} s of processor time   {median / base:5.1f} x the bare import")
    print(f"goal: {GOAL_SECONDS} s")
    return 0 if medians["corral lock"] <= GOAL_SECONDS else 1


if __name__ == "__main__":
    sys.exit(main())
