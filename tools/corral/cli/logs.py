"""Show the log of the local stack: llama-swap and all engines, the engine of one model, or the front door.

The common log and the door's are files and stay readable when the stack has died.  The log of one model is kept by
llama-swap, so it needs a running stack.  The door's has a line of JSON for each request: client, path, model, status,
never a prompt or a key.

examples:
  corral logs --follow            everything, line by line as it is written
  corral logs qwen3-8b -n 30      why a model did not load
  corral logs --previous          the start before the last one
  corral logs --door | jq -r 'select(.status >= 400)'    requests that were refused
"""

from __future__ import annotations

import argparse
from pathlib import Path

from corral import output, paths
from corral.cli import options
from corral.engine import stack
from corral.engine.stack_folder import StackFolder
from corral.errors import CannotRun, Refused


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", nargs="?", metavar="MODEL", help="only the log of this model's engine")
    parser.add_argument(
        "-n", "--lines", type=options.whole_number(1), default=200, metavar="N", help="how many lines (default: 200)"
    )
    parser.add_argument("--door", action="store_true", help="the front door: its access log, and its faults")
    way = parser.add_mutually_exclusive_group()
    way.add_argument("-f", "--follow", action="store_true", help="follow until the stack ends, or Ctrl-C")
    way.add_argument("--previous", action="store_true", help="of the start before the last one")


def run(args: argparse.Namespace) -> None:
    state = paths.state_dir()
    if args.model and args.previous:
        raise Refused("llama-swap keeps a model's log only while it runs.", next_step="corral logs --previous")
    if args.model and args.door:
        raise Refused("--door is the log of every request.", next_step="Leave out MODEL, or --door")
    if args.model:
        _model_log(state, args.model, args.lines, follow=args.follow)
    else:
        folder = StackFolder(state)
        log = folder.door_log if args.door else folder.log
        _file(folder, folder.previous(log) if args.previous else log, args.lines, follow=args.follow)


def _file(folder: StackFolder, log: Path, lines: int, *, follow: bool) -> None:
    if not log.exists():
        raise CannotRun(f"There is no {log}: nothing was started yet.", next_step="corral up --detach")
    # Read before anything is printed: a reader of the first line may stop the stack, and needs the last lines too.
    running = stack.running(folder.state) if follow else None
    shown = log.stat().st_size
    if tail := folder.log_tail(lines, log=log, end=shown):
        output.data(tail)
    if running:
        for line in folder.follow_log(lambda: running.is_alive, log=log, start=shown):
            output.data(line)


def _model_log(state: Path, model: str, lines: int, *, follow: bool) -> None:
    running = stack.running(state)
    if running is None:
        raise CannotRun(
            f"The log of {model} was kept by llama-swap, and no llama-swap is running.",
            next_step="Its last lines are in the common log: corral logs",
        )
    client = running.client()
    if tail := client.model_log(model).splitlines()[-lines:]:
        output.data("\n".join(tail))
    else:
        output.info(f"{model} has not been loaded yet.")
    if follow:
        for line in client.follow_model_log(model):
            output.data(line)
