"""Stop the local stack.

Requests that are running get up to 30 seconds to finish.  Then llama-swap unloads its models and ends, and engines that
are left are ended too, also when llama-swap itself had been killed before.

example:
  corral down          nothing runs: also fine
  corral down --now    cut running requests off
"""

from __future__ import annotations

import argparse

from corral import output, paths
from corral.engine import stack


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--now", action="store_true", help="do not wait for running requests")


def run(args: argparse.Namespace) -> None:
    limit = 0.0 if args.now else stack.DRAIN_LIMIT_S
    stopped = stack.stop(paths.state_dir(), report=output.info, drain_s=limit)
    if stopped is None:
        output.info("Nothing is running.")
        return
    how = "had died before" if not stopped.was_alive else "has ended" if stopped.drained else "was killed"
    rest = f"; engines that it left and that were ended: {stopped.orphans}" if stopped.orphans else ""
    output.info(f"llama-swap (pid {stopped.stack.pid}) {how}{rest}.")
