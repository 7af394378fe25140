"""Read models into the page cache of this machine, and measure what is in memory afterwards.

Run it on the machine that serves, inside the server's own memory limit: cached pages are charged to the process that
reads them first, and dropped when that limit is reached.  The measurement is the kernel's (mincore), taken after all is
read; less than 99 % of any file is exit code 1.

examples:
  corral warm qwen3-8b
  corral warm qwen3-8b qwen3vl-4b --json
"""

from __future__ import annotations

import argparse
from dataclasses import asdict

from corral import output
from corral.agent.progress import duration, human
from corral.agent.stopping import stop_on_sigterm
from corral.agent.warm import WarmedFile, total, warm
from corral.cli import options
from corral.cli.progress_bars import progress_on_stderr
from corral.errors import ExitCode


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("models", nargs="+", metavar="MODEL", help="what to warm")
    options.add(parser, "--catalog", "--store", "--json")


def run(args: argparse.Namespace) -> int:
    """Warm; exit code 1 when a file is not in memory afterwards."""
    lock, store = options.lock_and_store(args)
    with stop_on_sigterm() as stop, progress_on_stderr() as report:
        warmed = warm(lock, store, models=args.models, report=report, stop=stop)
    cold = [file for file in warmed if not file.is_warm]
    everything = total(warmed)
    document = {"files": [asdict(file) for file in warmed], "total": asdict(everything), "warm": not cold}
    columns = ("model", "file", "size", "before", "now", "read in", "from memory")
    output.result(document, columns, [_row(file) for file in (*warmed, everything)], as_json=args.json)
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
    cached = (share(file.cached_before), share(file.cached))
    return (file.model, file.file, human(file.size), *cached, duration(file.seconds), again)
