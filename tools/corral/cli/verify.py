"""Read every byte in the store again and compare it with the lock.

It also checks that each model's link leads to the files of the lock: what is reported is what a server would
get.  With --repair, what is missing or damaged is fetched anew and read once more.  A server that has a damaged
file open keeps it until it is restarted; so the old bytes stay in the store until `corral prune` removes them.

  corral verify                 all models of the lock
  corral verify qwen3-8b        this one
  corral verify --repair        and mend what is wrong

Exit code 1: something is not as the lock says, and was not repaired.
"""

from __future__ import annotations

import argparse
from dataclasses import asdict

from corral import output
from corral.agent.lock_file import read_lock
from corral.agent.progress import count, human
from corral.agent.stopping import stop_on_sigterm
from corral.agent.store import Store
from corral.agent.verify import repair, verify
from corral.cli import options
from corral.cli.progress_bars import progress_on_stderr
from corral.errors import ExitCode


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare options."""
    parser.add_argument("models", nargs="*", metavar="MODEL", help="only these (default: all of the lock)")
    options.add_catalog(parser)
    options.add_store(parser)
    parser.add_argument("--repair", action="store_true", help="fetch anew what is missing or damaged")
    options.add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Verify; exit code 1 when a file is missing or damaged, and stays so."""
    lock = read_lock(options.catalog_dir(args) / "lock.json")
    store = Store(options.store_dir(args))
    trouble = None
    with stop_on_sigterm() as stop, progress_on_stderr() as report:
        checks = verify(lock, store, models=args.models, report=report, stop=stop)
        if args.repair:
            checks, trouble = repair(lock, store, checks, report=report, stop=stop)
    bad = [check for check in checks if not check.is_good]
    if args.json:
        output.data_json([asdict(check) for check in checks])
    else:
        rows = [(check.model, check.file, human(check.size), check.state, check.detail) for check in checks]
        output.table(("model", "file", "size", "state", "detail"), rows)
    if trouble:
        output.info(f"{trouble.message}\n  → {trouble.next_step}" if trouble.next_step else trouble.message)
    if bad:
        remedy = "" if args.repair else f"  Mend it with: {options.again(args, 'verify', '--repair')}"
        output.info(f"{count(len(bad), 'file')} of {len(checks)} not as the lock says.{remedy}")
        return ExitCode.FAILED
    return ExitCode.OK
