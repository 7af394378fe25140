"""Time the commands that read the store, each against a single-purpose tool; the two alternate on the same file.

    fetch, all there    <= 0.5 s, without any request
    verify              >= 1.2 GB/s from memory, or >= 0.9 x openssl dgst -sha256
    warm                >= 0.9 x dd bs=4M on an uncached file; afterwards >= 99 % is cached; <= 64 MB of its own

    python tools/benchmarks/store.py [--small] [--rounds 5] [--folder DIR]

The time of verify is without the start of the program, which is the time of a fetch with nothing to do.  The time of
warm is that of reading.
The store is made below --folder (default: the folder for temporary files) and removed afterwards.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from corral.agent.lock_file import LockedFile, read_lock
from corral.agent.store import Store

GOAL_SECONDS = 0.5
GOAL_RATE = 1.2e9
GOAL_RATIO = 0.9
GOAL_CACHED = 0.99
GOAL_PEAK_BYTES = 64e6

SIZE = 2 << 30
SMALL = 256 << 20
UNREACHABLE = "http://127.0.0.1:9"


def run(command: list[str]) -> tuple[float, int, str]:
    """Wall-clock seconds, peak resident bytes and stdout of one run of *command*."""
    start = time.perf_counter()
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "HF_ENDPOINT": UNREACHABLE},
    ) as process:
        output = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"{' '.join(command)} ended with {process.returncode}: {output}")
    return time.perf_counter() - start, usage.ru_maxrss * 1024, output


def make_store(folder: Path, size: int) -> tuple[Path, Path]:
    """A catalog folder with a lock of one model, and a store that has it; no hub is needed for that."""
    store = Store(folder / "store")
    store.prepare()
    partial = folder / "weights"
    digest = hashlib.sha256()
    some = os.urandom(16 << 20)
    with partial.open("wb") as file:
        for _ in range(size // len(some)):
            file.write(some)
            digest.update(some)
        os.fsync(file.fileno())
    file = LockedFile("weights.gguf", "model", size, digest.hexdigest())
    entry = {
        "repo": "org/name",
        "revision": "0" * 40,
        "files": [{"path": file.path, "role": file.role, "size": file.size, "sha256": file.sha256}],
    }
    lock = folder / "lock.json"
    lock.write_text(json.dumps({"version": 2, "models": {"m": entry}}), encoding="utf-8")
    store.publish(partial, file)
    store.link(read_lock(lock).models["m"])
    return folder, store.root


def forget(path: Path) -> None:
    """Drop *path* from the page cache."""
    with path.open("rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def alternate(rounds: int, *measures: Callable[[], float]) -> list[float]:
    """The median of each of *measures*, taken in turns."""
    taken = [[measure() for measure in measures] for _ in range(rounds)]
    return [statistics.median(column) for column in zip(*taken, strict=True)]


def sha256_tool() -> list[str]:
    """The fastest checksum that the machine has."""
    return ["openssl", "dgst", "-sha256"] if shutil.which("openssl") else ["sha256sum"]


def main() -> int:
    """Print the figures; return 1 when a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="256 MiB instead of 2 GiB")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", type=Path, help="where the store is made")
    args = parser.parse_args()
    size = SMALL if args.small else SIZE

    with tempfile.TemporaryDirectory(dir=args.folder) as made:
        catalog, store = make_store(Path(made), size)
        model = store / "m" / "model.gguf"
        corral = str(Path(sys.executable).with_name("corral"))
        where = ["--catalog", str(catalog), "--store", str(store)]
        warmed: list[dict[str, float]] = []
        peaks: list[int] = []

        def fetch_again() -> float:
            seconds, _, output = run([corral, "fetch", *where])
            if ": 0 B moved in " not in output:
                sys.exit(f"corral fetch moved bytes: {output}")
            return seconds

        def warm_cold() -> float:
            forget(model)
            _, peak, output = run([corral, "warm", *where, "--json", "m"])
            warmed.append(json.loads(output)["total"])
            peaks.append(peak)
            return warmed[-1]["seconds"]

        def dd_cold() -> float:
            forget(model)
            return run(["dd", f"if={model}", "of=/dev/null", "bs=4M"])[0]

        forget(model)
        dd_cold()  # once unmeasured: caches below this machine's own warm up too
        warm, dd = alternate(args.rounds, warm_cold, dd_cold)
        tool = sha256_tool()
        again, verify, reference = alternate(
            args.rounds,
            fetch_again,
            lambda: run([corral, "verify", *where])[0],
            lambda: run([*tool, str(model)])[0],
        )
        verify -= again

    cached = min(total["cached"] / size for total in warmed)
    peak = max(peaks)
    print(
        f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, {size >> 20} MiB, "
        f"median of {args.rounds}"
    )
    print(f"fetch, all there  {again:6.3f} s, 0 bytes moved; goal: {GOAL_SECONDS:g} s")
    rates = [size / seconds / 1e9 for seconds in (verify, reference, warm, dd)]
    print(
        f"verify            {rates[0]:6.2f} GB/s   {reference / verify:.2f} x {' '.join(tool)} ({rates[1]:.2f} GB/s); "
        f"goal: {GOAL_RATE / 1e9:g} GB/s or {GOAL_RATIO:g} x"
    )
    print(
        f"warm              {rates[2]:6.2f} GB/s   {dd / warm:.2f} x dd bs=4M ({rates[3]:.2f} GB/s); "
        f"goal: {GOAL_RATIO:g} x"
    )
    print(f"                  {100 * cached:6.1f} % in memory by mincore; goal: {100 * GOAL_CACHED:g} %")
    print(f"                  {peak / 1e6:6.1f} MB of its own; goal: {GOAL_PEAK_BYTES / 1e6:g} MB")
    met = (
        again <= GOAL_SECONDS
        and (size / verify >= GOAL_RATE or reference / verify >= GOAL_RATIO)
        and dd / warm >= GOAL_RATIO
        and cached >= GOAL_CACHED
        and peak <= GOAL_PEAK_BYTES
    )
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
