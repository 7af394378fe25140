"""``corral``: finds the command, runs it, and turns every error into a sentence and an exit code."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence
from typing import NamedTuple, Protocol, cast

from corral import __version__
from corral.cli import options
from corral.errors import CorralError, ExitCode

EXIT_CODES = """\
exit codes, the same for every command:
  0  done; all checks passed
  1  done, and something failed
  2  wrong usage or configuration
  3  could not be run: no network, no room, a missing program
"""


class Entry(NamedTuple):
    """A line of the command table."""

    module: str
    summary: str


class Command(Protocol):
    """What a command's module offers."""

    __doc__: str | None

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare options."""

    def run(self, args: argparse.Namespace) -> int:
        """Do it; return an exit code."""


COMMANDS = {
    "validate": Entry("corral.cli.validate", "check the catalog; needs no network"),
    "lock": Entry("corral.cli.lock", "resolve the catalog against the hub into lock.json"),
    "fetch": Entry("corral.cli.fetch", "download what the lock names into the store, verified"),
    "verify": Entry("corral.cli.verify", "hash what lies in the store again, and repair it"),
    "warm": Entry("corral.cli.warm", "read models into memory, and measure that they are there"),
    "store": Entry("corral.cli.store", "what lies in the store, and what of it nothing needs"),
    "prune": Entry("corral.cli.prune", "remove from the store what nothing needs any more"),
    "seat": Entry("corral.cli.seat", "who sits where on each card, what is left, and what would help"),
    "plan": Entry("corral.cli.plan", "what an apply of the homelab would change, in the words of the catalog"),
    "apply": Entry("corral.cli.apply", "bring the homelab to what the catalog says, then smoke it"),
    "up": Entry("corral.cli.up", "start the local stack: real llama-swap, real llama.cpp"),
    "status": Entry("corral.cli.status", "what runs, and what is wrong: in the local stack or in a cluster"),
    "why": Entry("corral.cli.why", "why a request failed: one reason, the evidence, what to type next"),
    "logs": Entry("corral.cli.logs", "what the local stack says"),
    "down": Entry("corral.cli.down", "stop the local stack"),
    "smoke": Entry("corral.cli.smoke", "prove that every model answers, and answers right"),
    "measure": Entry("corral.cli.measure", "record what a loaded model really takes, beside the prediction"),
    "render": Entry("corral.cli.render", "write the model tables and the LiteLLM list"),
    "engine": Entry("corral.cli.engine", "which llama-server and llama-swap would be used"),
    "demo": Entry("corral.cli.demo", "tiny models through the whole path, on this machine"),
    "completion": Entry("corral.cli.completion", "print the completion script of a shell"),
}


def build_parser(only: str | None = None) -> argparse.ArgumentParser:
    """The parser of all commands; only the command named *only* is imported (``"*"``: all of them)."""
    parser = argparse.ArgumentParser(
        prog="corral",
        description="Serve GGUF models on a GPU that other things use too, and know the truth about it.",
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"corral {__version__}")
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands")
    for name, entry in COMMANDS.items():
        if only not in (name, "*"):
            commands.add_parser(name, help=entry.summary, add_help=False)
            continue
        module = cast("Command", importlib.import_module(entry.module))
        command = commands.add_parser(
            name,
            help=entry.summary,
            description=module.__doc__,
            epilog=EXIT_CODES,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        module.add_arguments(command)
        _accept_catalog(command)
        command.set_defaults(run=module.run)
    return parser


def _accept_catalog(command: argparse.ArgumentParser) -> None:
    """Every command takes ``--catalog``, so that a script may give it to all; some have no use for it."""
    if not any("--catalog" in action.option_strings for action in command._actions):  # noqa: SLF001
        command.add_argument("--catalog", metavar="DIR", help="accepted by every command; this one has no use for it")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code.

    A ``CorralError`` becomes its message, its next step and its code.  Anything else is a bug: it keeps
    its traceback, and Python's exit code 1.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    chosen = next((word for word in words if not word.startswith("-")), None)
    try:
        parser = build_parser(only=chosen)
        args = parser.parse_args(words)
        if args.command is None:
            parser.print_help(sys.stderr)
            return ExitCode.REFUSED
        return int(args.run(args))
    except CorralError as error:
        if args.debug:
            raise
        print(f"corral {args.command}: {error.message}", file=sys.stderr)
        if error.next_step:
            print(f"  → {options.for_catalog(error.next_step, args)}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print(f"corral {chosen}: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # The reader of our stdout has gone (| head): silence the interpreter's own flush.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.OK


if __name__ == "__main__":
    sys.exit(main())
