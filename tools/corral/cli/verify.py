"""Read every byte in the store again and compare it with the lock.

It also checks that each model's link leads to the files of the lock: the report is about what a server would read. With
--repair, what is missing or damaged is fetched anew and read once more.  A server that has a damaged file open keeps it
until it is restarted; so the old bytes stay in the store until `corral prune` removes them.

Root writes as the owner of the store's folder (Linux), and still reads what only root can read.

Exit code 1: a file differs from the lock, and was not repaired.

examples:
  corral verify                 all models of the lock
  corral verify qwen3-8b        this one
  corral verify --repair        and repair what is wrong
"""

from __future__ import annotations

import argparse
from dataclasses import asdict

from corral import output
from corral.agent.progress import count, human
from corral.agent.stopping import stop_on_sigterm
from corral.agent.verify import repair, verify
from corral.cli import options
from corral.cli.progress_bars import progress_on_stderr
from corral.errors import ExitCode


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.add(parser, "models", "--catalog", "--store", "--json")
    parser.add_argument("--repair", action="store_true", help="fetch anew what is missing or damaged")


def run(args: argparse.Namespace) -> int:
    """Verify; exit code 1 when a file is missing or damaged, and stays so."""
    lock, store = options.lock_and_store(args)
    trouble = None
    with stop_on_sigterm() as stop, progress_on_stderr() as report:
        checks = verify(lock, store, models=args.models, report=report, stop=stop)
        if args.repair:
            checks, trouble = repair(lock, store, checks, report=report, stop=stop)
    bad = [check for check in checks if not check.is_good]
    rows = [(check.model, check.file, human(check.size), check.state, check.detail) for check in checks]
    columns = ("model", "file", "size", "state", "detail")
    output.result([asdict(check) for check in checks], columns, rows, as_json=args.json)
    if trouble:
        output.info(f"{trouble.message}\n  → {trouble.next_step}" if trouble.next_step else trouble.message)
    if bad:
        remedy = "" if args.repair else f"  Repair it with: {options.again(args, 'verify', '--repair')}"
        output.info(f"Not as locked: {count(len(bad), 'file')} of {len(checks)}.{remedy}")
        return ExitCode.FAILED
    return ExitCode.OK
