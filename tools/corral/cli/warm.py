"""Read models into the page cache of this machine, and measure what is in memory afterwards.

Run it on the machine that serves, inside the server's own memory limit: cached pages are charged to whoever reads
them first, and dropped when that limit is reached.  The measurement is the kernel's (mincore), taken after all is
read; less than 99 % of any file is exit code 1.

  corral warm qwen3-8b
  corral warm qwen3-8b qwen3vl-4b --json
"""

from __future__ import annotations

import argparse
from dataclasses import asdict

from corral import output
from corral.agent.lock_file import read_lock
from corral.agent.progress import duration, human
from corral.agent.stopping import stop_on_sigterm
from corral.agent.store import Store
from corral.agent.warm import WarmedFile, total, warm
from corral.cli import options
from corral.cli.progress_bars import progress_on_stderr
from corral.errors import ExitCode

_COLUMNS = ("model", "file", "size", "before", "now", "read in", "from memory")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare options."""
    parser.add_argument("models", nargs="+", metavar="MODEL", help="what to warm")
    options.add_catalog(parser)
    options.add_store(parser)
    options.add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Warm; exit code 1 when a file is not in memory afterwards."""
    lock = read_lock(options.catalog_dir(args) / "lock.json")
    with stop_on_sigterm() as stop, progress_on_stderr() as report:
        warmed = warm(lock, Store(options.store_dir(args)), models=args.models, report=report, stop=stop)
    cold = [file for file in warmed if not file.is_warm]
    everything = total(warmed)
    if args.json:
        output.data_json({"files": [asdict(file) for file in warmed], "total": asdict(everything), "warm": not cold})
    else:
        output.table(_COLUMNS, [_row(file) for file in (*warmed, everything)])
    if cold:
        output.info(
            f"Not in memory to 99 %: {', '.join(f'{file.model}/{file.file}' for file in cold)}.  "
            "There is too little room for it, or something else needs it more."
        )
        return ExitCode.FAILED
    return ExitCode.OK


def _row(file: WarmedFile) -> tuple[str, ...]:
    def share(part: int) -> str:
        return f"{100 * part / file.size if file.size else 100:.1f} %"

    again = "" if file.again_seconds is None else duration(file.again_seconds)
    return (
        file.model,
        file.file,
        human(file.size),
        share(file.cached_before),
        share(file.cached),
        duration(file.seconds),
        again,
    )
