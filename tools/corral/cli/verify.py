"""Read every byte in the store again and compare it with the lock.

It also checks that each model's link leads to the files of the lock: what is reported is what a server would
get.  A damaged file is no longer trusted, so the next fetch brings it anew.

  corral verify                 all models of the lock
  corral verify qwen3-8b        this one
"""

from __future__ import annotations

import argparse
from dataclasses import asdict

from corral import output
from corral.agent.lock_file import read_lock
from corral.agent.progress import count, human
from corral.agent.stopping import stop_on_sigterm
from corral.agent.store import Store
from corral.agent.verify import verify
from corral.cli import options
from corral.cli.progress_bars import progress_on_stderr
from corral.errors import ExitCode


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare options."""
    parser.add_argument("models", nargs="*", metavar="MODEL", help="only these (default: all of the lock)")
    options.add_catalog(parser)
    options.add_store(parser)
    options.add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Verify; exit code 1 when a file is missing or damaged."""
    lock = read_lock(options.catalog_dir(args) / "lock.json")
    store = Store(options.store_dir(args))
    with stop_on_sigterm() as stop, progress_on_stderr() as report:
        checks = verify(lock, store, models=args.models, report=report, stop=stop)
    bad = [check for check in checks if check.state != "ok"]
    if args.json:
        output.data_json([asdict(check) for check in checks])
    else:
        rows = [(check.model, check.file, human(check.size), check.state, check.detail) for check in checks]
        output.table(("model", "file", "size", "state", "detail"), rows)
    if bad:
        output.talk(f"{count(len(bad), 'file')} of {len(checks)} not as the lock says.  Mend it with: corral fetch")
        return ExitCode.FAILED
    return ExitCode.OK
