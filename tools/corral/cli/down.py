"""Stop the local stack.

Requests that are running get up to 30 seconds to finish.  Then llama-swap unloads its models and ends, and whatever
is left of its engines is ended too, also when llama-swap itself had been killed before.

example:
  corral down          nothing runs: also fine
  corral down --now    cut running requests off
"""

from __future__ import annotations

import argparse

from corral import output, paths
from corral.engine import stack
from corral.errors import ExitCode


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare options."""
    parser.add_argument("--now", action="store_true", help="do not wait for running requests")


def run(args: argparse.Namespace) -> int:
    """Stop what runs; say how it ended."""
    limit = 0.0 if args.now else stack.DRAIN_LIMIT_S
    stopped = stack.stop(paths.state_dir(), say=output.info, drain_s=limit)
    if stopped is None:
        output.info("Nothing is running.")
        return ExitCode.OK
    rest = f"; engines that it left and that were ended: {stopped.orphans}" if stopped.orphans else ""
    output.info(f"llama-swap (pid {stopped.stack.pid}) {_how(stopped)}{rest}.")
    return ExitCode.OK


def _how(stopped: stack.Stopped) -> str:
    if not stopped.was_alive:
        return "had died before"
    return "has ended" if stopped.drained else "was killed"
