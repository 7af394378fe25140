"""Time the preflight: what it adds to the start of an engine, and its slowest decision (goals: 50 ms, 1 s).

The bare start and the one behind the preflight alternate, so that a busy moment of the machine affects both.  The
ratio is to the start of the embedded engine, before it loads anything.

    python tools/benchmarks/preflight.py [--rounds 41]
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "terraform" / "modules" / "llama-swap-config" / "preflight.sh"
GOAL_ADDED_MS, GOAL_DECIDED_S = 50.0, 1.0
AT_WORST = {  # what the source does, and the exit code that follows
    "refusal": ("echo 100, 16000", 75),
    "refusal, slow source": ("sleep 0.5; echo 100, 16000", 75),
    "a source that hangs": ("sleep 60", 0),
    "one that ignores signals": ("trap '' TERM; setsid sleep 5 & sleep 60", 0),
    "lines without end": ("yes", 0),
    "a line without end": ("cat /dev/zero", 0),
    "the same on stderr": ("yes >&2", 0),
}
HANGING_LIST = (
    "case $1 in --query-gpu=*) {wait} echo '100, 16000' ;; *) trap '' TERM; setsid sleep 5 & sleep 60 ;; esac"
)


def seconds(command: list[str], source: str, code: int, **settings: str) -> float:
    """Wall-clock time of one run of *command*, with *source* in place of nvidia-smi unless it is empty."""
    environment = os.environ | {"CORRAL_VRAM_SOURCE": source} | settings
    with tempfile.TemporaryFile() as words:  # no pipe, which a process that hangs would hold open
        start = time.perf_counter()
        done = subprocess.run(command, env=environment, stdout=words, stderr=words, check=False)
        took = time.perf_counter() - start
        words.seek(0)
        if done.returncode != code:
            raise SystemExit(f"{command} ended with {done.returncode}: {words.read().decode()}")
    return took


def with_hanging_list(command: list[str], wait: str) -> float:
    """Time of a refusal whose nvidia-smi, after *wait*, reports the memory, and hangs on the query for processes."""
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "nvidia-smi"
        program.write_text(f"#!/bin/sh\n{HANGING_LIST.format(wait=wait)}\n")
        program.chmod(0o755)
        return seconds(command, "", 75, PATH=f"{folder}{os.pathsep}{os.environ['PATH']}")


def main() -> int:
    """Print the medians; return 1 when a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=41)
    parser.add_argument("--small", action="store_true", help="a third of the rounds, as CI runs it")
    args = parser.parse_args()
    args.rounds = max(5, args.rounds // 3) if args.small else args.rounds

    bare = ["true"]
    front = [str(SCRIPT), "--model", "bench", "--need-mib", "1000", "--", *bare]
    room = "echo 9000, 16000"
    for warm in (bare, front):
        seconds(warm, room, 0)
    pairs = [(seconds(bare, room, 0), seconds(front, room, 0)) for _ in range(args.rounds)]
    added = statistics.median(behind - alone for alone, behind in pairs)
    engine = [str(Path(sys.executable).with_name("corral-llama-server")), "--version"]
    engine_start = statistics.median(seconds(engine, room, 0) for _ in range(5))
    slowest = {name: max(seconds(front, source, code) for _ in range(5)) for name, (source, code) in AT_WORST.items()}
    slowest["refusal, its list hangs"] = max(with_hanging_list(front, "") for _ in range(5))
    slowest["the same, slow source"] = max(with_hanging_list(front, "sleep 0.5;") for _ in range(5))

    print(f"{platform.machine()}, {os.cpu_count()} cores, {Path('/bin/sh').resolve().name}, median of {args.rounds}")
    print(f"start of the embedded engine  {engine_start * 1000:7.1f} ms")
    ratio = added / engine_start
    print(f"added by the preflight        {added * 1000:7.1f} ms   {ratio:.2f} x; goal: {GOAL_ADDED_MS:g} ms")
    print(f"slowest of 5 (goal: {GOAL_DECIDED_S * 1000:g} ms)")
    for name, took in slowest.items():
        print(f"  {name:28}{took * 1000:7.1f} ms")
    return 0 if added * 1000 <= GOAL_ADDED_MS and max(slowest.values()) <= GOAL_DECIDED_S else 1


if __name__ == "__main__":
    sys.exit(main())
