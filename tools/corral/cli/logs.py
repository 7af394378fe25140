"""What the local stack says: llama-swap and all engines, or the engine of one model.

The common log is a file and stays readable when the stack has died.  The log of one model is kept by llama-swap, so
it needs a running stack.

examples:
  corral logs --follow            everything, as it comes
  corral logs qwen3-8b -n 30      why a model did not load
  corral logs --previous          the start before the last one
"""

from __future__ import annotations

import argparse
from pathlib import Path

from corral import output, paths
from corral.engine import stack
from corral.engine.llama_swap import LlamaSwap
from corral.engine.stack import Running
from corral.engine.stack_folder import StackFolder
from corral.errors import CannotRun, ExitCode, Refused


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", nargs="?", metavar="MODEL", help="only what this model's engine says")
    parser.add_argument("-n", "--lines", type=_count, default=200, metavar="N", help="how many lines (default: 200)")
    way = parser.add_mutually_exclusive_group()
    way.add_argument("-f", "--follow", action="store_true", help="go on until the stack ends, or Ctrl-C")
    way.add_argument("--previous", action="store_true", help="of the start before the last one")


def run(args: argparse.Namespace) -> int:
    """Print the log."""
    state = paths.state_dir()
    if args.model and args.previous:
        raise Refused("llama-swap keeps a model's log only while it runs.", next_step="corral logs --previous")
    if args.model:
        _model_log(state, args.model, args.lines, follow=args.follow)
    else:
        _common_log(state, args.lines, follow=args.follow, previous=args.previous)
    return ExitCode.OK


def _common_log(state: Path, lines: int, *, follow: bool, previous: bool) -> None:
    folder = StackFolder(state)
    log = folder.previous_log if previous else folder.log
    if not log.exists():
        raise CannotRun(f"There is no {log}: nothing was started yet.", next_step="corral up --detach")
    # Asked before anything is shown: whoever sees the first line may stop the stack, and wants the last words too.
    running = stack.running(state) if follow and not previous else None
    shown = log.stat().st_size
    tail = folder.log_tail(lines, previous=previous, end=shown)
    if tail:
        output.data(tail)
    if running:
        for line in folder.follow_log(lambda: running.is_alive, start=shown):
            output.data(line)


def _model_log(state: Path, model: str, lines: int, *, follow: bool) -> None:
    running: Running | None = stack.running(state)
    if running is None:
        raise CannotRun(
            f"The log of {model} was kept by llama-swap, and no llama-swap is running.",
            next_step="Its last words are in the common log: corral logs",
        )
    client = LlamaSwap(running.endpoint)
    said = client.model_log(model).splitlines()[-lines:]
    output.data("\n".join(said)) if said else output.info(f"{model} has not been loaded yet.")
    if follow:
        for line in client.follow_model_log(model):
            output.data(line)


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of lines above 0")
    return int(text)
