"""Start the local stack: real llama-swap in front of real llama.cpp, on 127.0.0.1.

Has Terraform render the configuration from the catalog and its lock, fetches what the store misses, and starts
llama-swap, which loads a model at its first request.  In the foreground its log is shown and Ctrl-C stops it (running
requests finish first; a second Ctrl-C does not wait).  Typed again, it changes nothing.

examples:
  corral up                                    in the foreground, on port 8080
  corral up --detach --port 9000               in the background; stop it with: corral down
  corral up --catalog ~/models/catalog         another catalog
  LLAMA_SERVER=/opt/llama.cpp/llama-server corral up    an engine of your own
  CORRAL_ENGINE_ENV=LD_PRELOAD corral up       one more variable of this shell for llama-swap and its engines
"""

from __future__ import annotations

import argparse
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from corral import output, paths
from corral.agent.fetch import fetch
from corral.agent.lock_file import read_lock
from corral.agent.stopping import stop_on_sigterm
from corral.agent.store import Store
from corral.cli import options, unsafe_flags
from corral.cli.progress_bars import progress_on_stderr
from corral.cli.seating_help import seating_help
from corral.engine import binaries, ports, stack
from corral.engine.stack import Running
from corral.engine.stack_folder import StackFolder
from corral.errors import Failed
from corral.terraform import local


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.add(parser, "--catalog", "--store")
    port = options.whole_number(1, 65535)
    parser.add_argument(
        "--port", type=port, metavar="N", help=f"of llama-swap on 127.0.0.1 (default: {ports.LLAMA_SWAP})"
    )
    parser.add_argument("--detach", action="store_true", help="return as soon as it answers, and leave it running")


def run(args: argparse.Namespace) -> None:
    state, store = paths.state_dir(), options.store_dir(args)
    wanted, locked = options.locked_catalog(options.catalog_dir(args))
    unsafe_flags.warn(wanted.models)
    engine = binaries.llama_server()
    llama_swap = binaries.llama_swap(output.info)
    stack.clear_leftovers(state, report=output.info)
    present = stack.running(state)
    port: int = args.port or (present.port if present else ports.LLAMA_SWAP)
    if present is None:
        ports.require_free(port)  # before anything takes long
    first_engine_port = present.first_engine_port if present else ports.for_engines(len(wanted.models), port)
    with seating_help(wanted, locked):
        config = local.render_local(wanted.directory, store, engine.path, state=state, start_port=first_engine_port)
    if present:
        stack.require_same(present, config, port=port)
    with stop_on_sigterm() as stop, progress_on_stderr() as report:
        fetch(read_lock(wanted.lock_file), Store(store), report=report, stop=stop)
    running, fresh = stack.start(
        state,
        config,
        port=port,
        first_engine_port=first_engine_port,
        engine=engine,
        llama_swap=llama_swap,
        catalog=wanted.directory.resolve(),
        report=output.info,
    )
    if not fresh:
        output.info(f"This configuration is already running (pid {running.pid}).")
    if args.detach or not fresh:
        output.data(running.endpoint)
        output.info("Show it: corral status   Prove it: corral smoke   Stop it: corral down")
        return
    output.info(f"{running.endpoint} answers for {len(wanted.models)} models. Ctrl-C stops it.")
    _attend(running, state)


def _attend(running: Running, state: Path) -> None:
    """Print the log until a signal stops the stack, or the stack ends."""
    with _signals() as received:
        for line in StackFolder(state).follow_log(lambda: running.is_alive and not received):
            output.data(line)
        if received:
            output.info("Stopping ...")
        stopped = stack.stop(state, only=running, report=output.info, hurry=lambda: len(received) > 1)
    if stopped is None:
        output.info("Stopped from elsewhere.")
    elif not stopped.was_alive:
        raise Failed(f"llama-swap (pid {running.pid}) has ended by itself.", next_step="corral logs")


@contextmanager
def _signals() -> Iterator[list[int]]:
    """The signals to stop that were received so far."""
    received: list[int] = []
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, lambda got, _frame: received.append(got)) for number in numbers}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
