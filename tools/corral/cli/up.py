"""Start the local stack: real llama-swap in front of real llama.cpp, on 127.0.0.1.

Has Terraform render the configuration from the catalog and its lock, fetches what the store misses, and starts
llama-swap, which loads a model when it is first asked for.  In the foreground its log is shown and Ctrl-C stops it
(running requests finish first; a second Ctrl-C does not wait).  Typed again, it changes nothing.

examples:
  corral up                                    in the foreground, on port 8080
  corral up --detach --port 9000               in the background; stop it with: corral down
  corral up --catalog ~/models/catalog         another catalog
  LLAMA_SERVER=/opt/llama.cpp/llama-server corral up    an engine of your own
"""

from __future__ import annotations

import argparse
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from corral import output, paths
from corral.agent.fetch import fetch
from corral.agent.lock_file import read_lock
from corral.agent.stopping import stop_on_sigterm
from corral.agent.store import Store
from corral.cli import options
from corral.cli.progress_bars import progress_on_stderr
from corral.cli.seating_help import seating_help
from corral.engine import binaries, ports, stack
from corral.engine.stack import Running
from corral.engine.stack_folder import StackFolder
from corral.errors import ExitCode, Failed
from corral.terraform import local

PORT = ports.LLAMA_SWAP


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.add(parser, "--catalog", "--store")
    parser.add_argument("--port", type=_port, metavar="N", help=f"port of llama-swap on 127.0.0.1 (default: {PORT})")
    parser.add_argument("--detach", action="store_true", help="return as soon as it answers, and leave it running")


def run(args: argparse.Namespace) -> int:
    """Start, and unless detached attend to it until it is stopped."""
    state, store = paths.state_dir(), options.store_dir(args)
    wanted, locked = options.locked_catalog(options.catalog_dir(args))
    engine = binaries.llama_server()
    llama_swap = binaries.llama_swap(output.info)
    stack.clear_leftovers(state, report=output.info)
    present = stack.running(state)
    port: int = args.port or (present.port if present else PORT)
    if present is None:
        ports.require_free(port)  # before anything takes long
    first_engine_port = present.first_engine_port if present else ports.for_engines(len(wanted.models), port)
    with seating_help(wanted, locked):
        config = local.render_local(wanted.directory, store, engine.path, state=state, start_port=first_engine_port)
    if present:
        stack.require_same(present, config, port=port)
    _fetch_missing(wanted.lock_file, store)
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
        output.info("Look: corral status   Prove it: corral smoke   Stop it: corral down")
        return ExitCode.OK
    output.info(f"{running.endpoint} answers for {len(wanted.models)} models. Ctrl-C stops it.")
    return _attend(running, state)


def _fetch_missing(lock_file: Path, store: Path) -> None:
    with stop_on_sigterm() as stop, progress_on_stderr() as report:
        fetch(read_lock(lock_file), Store(store), report=report, stop=stop)


def _attend(running: Running, state: Path) -> int:
    """Show the log until a signal asks to stop, or the stack ends."""
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
    return ExitCode.OK


@contextmanager
def _signals() -> Iterator[list[int]]:
    """The signals that ask to stop, as they come in."""
    received: list[int] = []

    def note(number: int, _frame: FrameType | None) -> None:
        received.append(number)

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, note) for number in numbers}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _port(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is no port: 1 to 65535")
    return int(text)
