"""Start the local stack on 127.0.0.1: a front door, and behind it real llama-swap and real llama.cpp.

Has Terraform render the configurations from the catalog and its lock, fetches what the store misses, and starts
llama-swap, which loads a model at its first request.  In the foreground its log is shown and Ctrl-C stops it (running
requests finish first; a second Ctrl-C does not wait).

Typed again, it applies what has changed since: the programs whose part of the configuration is another one restart, on
the same ports.  llama-swap ends all of its engines with itself, also those of models that did not change, so it waits
until the answers under way have ended, five minutes at most, and cuts none off; new requests wait meanwhile in the
guard.  The models that were loaded are loaded again.  Where the new configuration does not start, the stack runs as
before.  Without a change it changes nothing, but for a part that has died: that is started again, and llama-swap's
engines end with it.  Two at once: the second one waits, and applies what is different from what the first one started.

The door refuses web pages of other origins and other hosts.  Where the catalog has clients, or with --keys, it also
requires a key (`corral keys`); without, every program of this machine has the operator's rights.  With --tls it speaks
HTTPS, with your certificate and key, or with an authority of its own whose certificate `corral status` names.

On an Apple chip before M5 a model with a BF16 projector runs on the CPU: Metal kernels for bf16 are missing there.

examples:
  corral up                                    in the foreground, on port 8080
  corral up --detach --port 9000               in the background; stop it with: corral down
  corral up --keys --tls                       with keys, and HTTPS by an authority of its own
  corral up --tls llm.crt llm.key --name llm.lan    with your certificate, for requests to https://llm.lan:8080
  corral up --catalog ~/models/catalog         another catalog
  LLAMA_SERVER=/opt/llama.cpp/llama-server corral up    an engine of your own
  CORRAL_ENGINE_ENV=LD_PRELOAD corral up       one more variable of this shell for llama-swap and its engines
"""

from __future__ import annotations

import argparse
import re
from contextlib import ExitStack
from pathlib import Path

from corral import keys, output, paths
from corral.agent.fetch import fetch
from corral.agent.lock_file import read_lock
from corral.agent.stopping import stop_on_sigterm
from corral.agent.store import Store
from corral.cli import local_door, on_cpu, options, unsafe_flags
from corral.cli.progress_bars import progress_on_stderr
from corral.cli.seating_help import seating_help
from corral.engine import binaries, ports, restart, stack
from corral.engine.change import Wanted, change, successor
from corral.engine.launch import Programs
from corral.engine.processes import signals_to_stop
from corral.engine.restart import Again
from corral.engine.stack import Running
from corral.engine.stack_folder import StackFolder
from corral.errors import CannotRun, Failed, Refused
from corral.keys import LocalKeys
from corral.terraform import local

_HOST = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?|[0-9a-f:]*:[0-9a-f:]*")  # modules/door has the same rule


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.add(parser, "--catalog", "--store")
    port = options.whole_number(1, 65535)
    parser.add_argument("--port", type=port, metavar="N", help=f"of the door on 127.0.0.1 (default: {ports.DOOR})")
    parser.add_argument("--keys", action="store_true", help="require a key, also where the catalog has no clients")
    files = ("CERTIFICATE", "KEY")
    tls = "HTTPS: by these files, or by an authority of its own"
    parser.add_argument("--tls", nargs="*", metavar=files, type=Path, help=tls)
    names = "a further name that requests may be for, e.g. llm.lan"
    parser.add_argument("--name", type=_host, action="append", default=[], metavar="NAME", dest="names", help=names)
    parser.add_argument("--detach", action="store_true", help="return as soon as it answers, and leave it running")


def run(args: argparse.Namespace) -> None:
    state = paths.state_dir()
    with StackFolder(state).only_up(output.info):  # of two at once, the second one compares with what the first left
        running, models, is_fresh = _brought(args, state)
    if args.detach or not is_fresh:
        output.data(running.endpoint)
        output.info("Show it: corral status   Prove it: corral smoke   Stop it: corral down")
        return
    output.info(f"{running.endpoint} answers for {models} models. Ctrl-C stops it.")
    _attend(running, state)


def _brought(args: argparse.Namespace, state: Path) -> tuple[Running, int, bool]:
    """The stack as *args* want it, the number of its models, and whether this call has started it."""
    store = options.store_dir(args)
    wanted, locked = options.locked_catalog(options.catalog_dir(args))
    unsafe_flags.warn(wanted.models)
    engine = binaries.llama_server()
    programs = Programs(engine, binaries.llama_swap(output.info), binaries.caddy().path)
    stack.clear_leftovers(state, report=output.info)
    again_as = _again(args, port=args.port)
    if present := stack.recorded(state):
        _require_catalog(present, wanted.directory, again=again_as)
    with ExitStack() as reservation:
        door, first_engine_port = local_door.wanted(
            state, locked, present, port=args.port, keys=args.keys, tls=args.tls, names=args.names, scope=reservation
        )
        if present is None:
            ports.require_free(door.port, _again(args, port=None))  # before anything takes long
        without_card = on_cpu.here(locked)
        on_cpu.show(without_card)
        with seating_help(wanted, locked):
            configuration = local.render_stack(
                wanted.directory,
                store,
                engine.path,
                state=state,
                start_port=first_engine_port,
                door=door,
                on_cpu=without_card,
            )
        again = None
        if present:
            if present.door.port != door.port:
                stack.require_same(present, configuration, door, restart=f"corral down && {again_as}")
            if (stopped := present.stopped()) and stopped.process != present.process:  # llama-swap is started anew
                message = f"{stopped} of the running stack is stopped (SIGSTOP): no request reaches llama-swap."
                raise CannotRun(message, next_step=f"kill -CONT {stopped.process.pid}")
            if present.config_sha256 != configuration.sha256 or restart.was_interrupted(state, present):
                again = restart.prepare(state, present, otherwise=programs)
        if door.keys:
            keys.ensure_operator(LocalKeys(state))
            has_key = LocalKeys(state).read().of
            for name in (name for name in locked.clients if name not in has_key):
                output.info(f"The client {name} has no key: corral keys add {name}")
        with stop_on_sigterm() as stop, progress_on_stderr() as report:
            fetch(read_lock(wanted.lock_file), Store(store), report=report, stop=stop)
        catalog = wanted.directory.resolve()
        if again:
            running, fresh = _changed(again, Wanted(configuration, programs, door, catalog)), False
        else:
            running, fresh = stack.start(
                state,
                configuration,
                programs,
                door=door,
                first_engine_port=first_engine_port,
                catalog=catalog,
                report=output.info,
            )
    if not fresh and not again:
        output.info(f"This configuration is already running (pid {running.pid}).")
    return running, len(wanted.models), fresh


def _changed(again: Again, wanted: Wanted) -> Running:
    """The running stack with another configuration; the models that this unloaded are loaded again, where they can."""
    changed = change(again, wanted, report=output.info)
    client = changed.running.client()
    output.info(f"Applied: {', '.join(changed.restarted)} restarted.")
    for model in set(changed.unloaded).intersection(client.models()):
        output.info(f"{model}: loading again ...")
        problem = client.load(model)
        output.info(f"{model}: loaded again." if not problem else f"{model} was not loaded again: {problem}")
    return changed.running


def _host(text: str) -> str:
    if not _HOST.fullmatch(text):
        rule = "a name in lower case or an address, without port, * and brackets, e.g. llm.lan"
        raise argparse.ArgumentTypeError(f"{text!r} is not {rule}")
    return text


def _require_catalog(present: Running, catalog: Path, *, again: str) -> None:
    """Refuse another *catalog* than that of *present*, whose models would be replaced; *again* is its command line."""
    if present.catalog != catalog.resolve():
        raise Refused(
            f"The running local stack (pid {present.pid}, {present.endpoint}) is of the catalog {present.catalog}.",
            next_step=f"In its place: corral down && {again}; beside it, with another --port and a folder of its own: "
            f"CORRAL_STATE=FOLDER {again}",
        )


def _again(args: argparse.Namespace, *, port: int | None) -> str:
    """The command line of *args*, with another *port*; None: without one."""
    words = ["--port", str(port)] if port else []
    words += ["--keys"] * args.keys + (["--tls", *map(str, args.tls)] if args.tls is not None else [])
    words += [word for name in args.names for word in ("--name", name)] + ["--detach"] * args.detach
    return options.again(args, "up", *words)


def _attend(running: Running, state: Path) -> None:
    """Print the log until a signal stops the stack, or the stack ends."""

    def is_alive() -> bool:
        nonlocal running
        if not received and running.lost() and (changed := successor(state, running)):  # by another `corral up`
            running = changed
        return not (received or running.lost())

    with signals_to_stop() as received:
        for line in StackFolder(state).follow_log(is_alive):
            output.data(line)
        lost = "" if received else running.lost()
        if received:
            output.info("Stopping ...")
        stopped = stack.stop(state, only=running, report=output.info, hurry=lambda: len(received) > 1)
    if stopped is None:
        output.info("Stopped from elsewhere.")
    elif lost:
        raise Failed(f"The stack was stopped: {lost} had ended by itself.", next_step="corral logs, corral logs --door")
