"""``python3 -m agent``: the store's commands where corral itself is not installed.

    python3 -m agent fetch --lock lock.json --store /models
    python3 -m agent verify --lock lock.json --store /models

Progress goes to stderr as plain lines; --json writes to stdout, one object per line.  HF_TOKEN (or the file
that HF_TOKEN_PATH names) lets it into gated repos, HF_ENDPOINT names another hub.  SIGTERM stops it within two
seconds; the next run goes on from there.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from .errors import CorralError
from .fetch import DEFAULT_LEASE_TTL, fetch
from .lock_file import read_lock
from .progress import Event, Lines, as_json, describe
from .stopping import stop_on_sigterm
from .store import Store
from .verify import verify

EXIT_CODES = """\
exit codes:
  0  done
  1  done, and something does not match the lock
  2  wrong usage or configuration; a file that the hub does not have or give
  3  could not be run: no network, no room, told to stop
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; an error becomes its message and next step on stderr."""
    args = _parser().parse_args(argv)
    try:
        return _fetch(args) if args.command == "fetch" else _verify(args)
    except CorralError as error:
        _say(f"agent {args.command}: {error.message}")
        if error.next_step:
            _say(f"  → {error.next_step}")
        return error.exit_code
    except KeyboardInterrupt:
        _say(f"agent {args.command}: interrupted")
        return 130


def _fetch(args: argparse.Namespace) -> int:
    report = _write_event if args.json else Lines(_say)
    with stop_on_sigterm() as stop:
        lock = read_lock(args.lock)
        done = fetch(lock, Store(args.store), models=args.models, report=report, stop=stop, lease_ttl=args.lease_ttl)
    if not args.json:
        _write(describe(done))
    return 0


def _verify(args: argparse.Namespace) -> int:
    with stop_on_sigterm() as stop:
        lock = read_lock(args.lock)
        checks = verify(lock, Store(args.store), models=args.models, report=Lines(_say), stop=stop)
    for check in checks:
        detail = f": {check.detail}" if check.detail else ""
        _write(json.dumps(asdict(check)) if args.json else f"{check.model}/{check.file}: {check.state}{detail}")
    return 0 if all(check.state == "ok" for check in checks) else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python3 -m agent",
        description=__doc__,
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, summary in (
        ("fetch", "download what is missing, verified, and link it"),
        ("verify", "hash what is there again"),
    ):
        command = commands.add_parser(name, help=summary, description=summary)
        command.add_argument("models", nargs="*", metavar="MODEL", help="only these (default: all of the lock)")
        command.add_argument("--lock", metavar="FILE", type=Path, required=True, help="lock.json")
        command.add_argument("--store", metavar="DIR", type=Path, required=True, help="the model store")
        command.add_argument("--json", action="store_true", help="one JSON object per line on stdout")
        if name == "fetch":
            command.add_argument(
                "--lease-ttl",
                metavar="SECONDS",
                type=float,
                default=DEFAULT_LEASE_TTL,
                help="silence after which another downloader counts as dead (default: %(default)s)",
            )
    return parser


def _write_event(event: Event) -> None:
    _write(as_json(event))


def _write(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
