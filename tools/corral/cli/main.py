"""``corral``: finds the command, runs it, and turns every error into a sentence and an exit code."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from corral import __version__, output
from corral.cli import options
from corral.errors import CannotRun, CorralError, ExitCode

_EXIT_CODES = """\
exit codes, the same for every command:
  0  done; all checks passed
  1  done, and something failed
  2  wrong usage or configuration
  3  could not be run: no network, no room, a missing program
"""
_HELP: dict[str, Any] = {"epilog": _EXIT_CODES, "formatter_class": argparse.RawDescriptionHelpFormatter}

COMMANDS = {
    "validate": "check the catalog; needs no network",
    "add": "add a model of the hub to the catalog, locked and seated",
    "remove": "remove a model from the catalog and its lock",
    "lock": "resolve the catalog against the hub into lock.json",
    "fetch": "download what the lock names into the store, verified",
    "verify": "hash what lies in the store again, and repair it",
    "warm": "read models into memory, and measure that they are there",
    "store": "what lies in the store, and what of it nothing needs",
    "prune": "remove from the store what nothing needs any more",
    "seat": "what each card holds, what is left, and what would help",
    "plan": "what an apply of the homelab would change, in the words of the catalog",
    "apply": "bring the homelab to the catalog, then smoke it",
    "adopt": "take what the cluster has into Terraform's state, where that was lost",
    "destroy": "remove the homelab from the cluster, and state what stays",
    "up": "start the local stack: real llama-swap, real llama.cpp",
    "status": "what runs, and what is wrong: in the local stack or in a cluster",
    "load": "load a model now, and wait until it is ready",
    "unload": "unload a model now, and state what that ends",
    "open": "the pages for a browser that there are, and why there are no others",
    "card": "who holds the memory of the card: promised, predicted, measured, held",
    "timeline": "what happened on the card, minute by minute, and the start of a post-mortem",
    "exporter": "serve the same, and what was served, to Prometheus",
    "why": "why a request failed: one reason, the evidence, what to type next",
    "logs": "the log of the local stack, or of one model",
    "down": "stop the local stack",
    "smoke": "prove that every model answers, and answers right",
    "golden": "record a model's answers, and prove after a change that it still gives them",
    "eval": "how well models do a job, on cases whose answers are known, and which is better",
    "keys": "give the clients of the front door their keys, replace them, take them away",
    "adapters": "which version of an adapter serves, and another one in its place",
    "gateway": "bring the models of a LiteLLM that is there already to the catalog",
    "bench": "how fast a model answers, and for how many at a time",
    "compare-stacks": "measure a model on llama.cpp, vLLM and others, and find the break-even",
    "gate": "nine boxes that a model must have ticked before it serves, each by evidence",
    "contract": "what a client of the served API can rely on, and whether that changed",
    "logprobs": "how probable each token of an answer was, and what else could stand there",
    "measure": "record what a loaded model really takes, beside the prediction",
    "render": "write the model tables, or the configuration of LiteLLM or llama-swap",
    "upgrade": "move the engine to another build: wheel, image and predictions as one commit",
    "engine": "which llama-server and llama-swap would be used",
    "demo": "small models through the whole path, on this machine",
    "stand-down": "take a tenant off the card for a time, while a command runs; it is always restored",
    "drill": "play the incident that corral is for, and print when each layer detected the fault",
    "completion": "print the completion script of a shell",
}
"""Each command with its summary: ``corral.cli.NAME`` has its help (the docstring), ``add_arguments`` and ``run``."""


_RUN_A_COMMAND = frozenset({"stand-down"})
_BEFORE_A_COMMAND = "--"  # argparse would take the options after a positional for words of the command


class _Parser(argparse.ArgumentParser):
    def add_argument(self, *names: Any, **options: Any) -> argparse.Action:
        """As argparse's; a shell completes each MODEL (``corral.cli.completion``)."""
        action = super().add_argument(*names, **options)
        if action.metavar == "MODEL" and not action.option_strings:
            action.complete = dict.fromkeys(("bash", "zsh"), "_corral_models")  # type: ignore[attr-defined]
        return action

    def _print_message(self, message: str, file: Any = None) -> None:
        """As argparse's, which passes over a stdout that takes nothing."""
        if file is sys.stdout:
            output.write(message)
        else:
            super()._print_message(message, file)


def build_parser(only: str | None = None) -> argparse.ArgumentParser:
    """The parser of all commands; only the command named *only* is imported (``"*"``: all of them)."""
    parser = _Parser(
        prog="corral",
        description="Serve GGUF models on a GPU that other services use too, and account for its memory.",
        **_HELP,
    )
    parser.add_argument("--version", action="version", version=f"corral {__version__}")
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands")
    for name, summary in COMMANDS.items():
        if only not in (name, "*"):
            commands.add_parser(name, help=summary, add_help=False)
            continue
        module = importlib.import_module(f"corral.cli.{name.replace('-', '_')}")
        command = commands.add_parser(name, help=summary, description=module.__doc__, **_HELP)
        module.add_arguments(command)
        with contextlib.suppress(argparse.ArgumentError):  # a script may give --catalog to every command
            command.add_argument(
                "--catalog", metavar="DIR", help="accepted by every command; this one has no use for it"
            )
        command.set_defaults(run=module.run, refuse=command.error)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code, 0 when the command returns none.

    A ``CorralError`` becomes its message, its next step and its code.  Anything else is a bug: it keeps
    its traceback, and Python's exit code 1.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    chosen = next((word for word in words if not word.startswith("-")), None)
    own: list[str] | None = None
    if chosen in _RUN_A_COMMAND and _BEFORE_A_COMMAND in words:
        at = words.index(_BEFORE_A_COMMAND)
        words, own = words[:at], words[at + 1 :]
    name = f"corral {chosen}" if chosen else "corral"
    args = argparse.Namespace(debug=False, own_command=own)
    output.open_streams()
    try:
        try:
            parser = build_parser(only=chosen)
            _, left = parser.parse_known_args(words, args)
            if left:
                _take_models(args, left, getattr(args, "refuse", parser.error))
            if args.command is None:
                parser.print_help(sys.stderr)
                return ExitCode.REFUSED
            _require_working_directory()
            return int(args.run(args) or ExitCode.OK)
        finally:
            output.write("")
    except CorralError as error:
        if args.debug:
            raise
        output.info(f"{name}: {error.message}")
        if error.next_step:
            output.info(f"  → {options.for_cluster(options.for_catalog(error.next_step, args), args)}")
        return error.exit_code
    except KeyboardInterrupt:
        output.info(f"{name}: interrupted")
        return 130
    except BrokenPipeError:  # the reader of stdout has gone (| head)
        return ExitCode.OK


def _take_models(args: argparse.Namespace, left: Sequence[str], refuse: Callable[[str], None]) -> None:
    """Take the words that argparse has *left* as models: of several it takes none after an option."""
    if not isinstance(getattr(args, "models", None), list) or any(word.startswith("-") for word in left):
        refuse(f"unrecognized arguments: {' '.join(left)}")
    args.models = [*args.models, *left]


def _require_working_directory() -> None:
    """Raise CannotRun where the folder that relative paths begin in was removed."""
    try:
        Path.cwd()
    except OSError as error:
        message = f"The working directory cannot be used: {error.strerror}."
        raise CannotRun(message, next_step="cd into a folder that exists") from None


if __name__ == "__main__":
    sys.exit(main())
