"""``python3 -m agent``: the store's commands where corral itself is not installed.

    python3 -m agent fetch  --store /models --lock lock.json
    python3 -m agent verify --store /models --lock lock.json --repair
    python3 -m agent warm   --store /models --lock lock.json qwen3-8b
    python3 -m agent prune  --store /models --lock lock.json --grace 7d --yes
    python3 -m agent store  --store /models
    python3 -m agent metrics --store /models --lock lock.json --name llama-cpp --seal 0123…

Progress is written to stderr as plain lines; --json writes to stdout, one object per line.  HF_TOKEN (or the file
that HF_TOKEN_PATH names) gives access to gated repos, HF_ENDPOINT names another hub, CORRAL_HUB_MIN_KIB_PER_SECOND the
rate below which a hub is given up (64).  Root writes as the owner of the store's folder, and reads as root.  SIGTERM
stops it within two seconds; the next run resumes.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from . import store_metrics, store_state
from .errors import CannotRun, Code, CorralError
from .fetch import fetch
from .hub_policy import printable
from .lease import DEFAULT_LEASE_TTL
from .lock_file import read_lock
from .metrics_server import serving
from .progress import Lines, Report, as_json, describe, positive_seconds, seconds_of
from .prune import DEFAULT_GRACE, prune
from .stopping import stop_on_sigterm
from .store import Store
from .survey import survey
from .termination import of_error
from .termination import write as write_termination
from .verify import repair, verify
from .warm import describe_warmth, total, warm

EXIT_CODES = """\
exit codes:
  0  done
  1  done, and something does not match the lock, is not in memory, or could not be removed
  2  wrong usage or configuration; a file that the hub does not have or denies
  3  could not be run: no network, no room, stopped
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; an error becomes its message and next step on stderr."""
    args = _parser().parse_args(argv)
    try:
        run: Callable[[argparse.Namespace], int] = args.run
        return run(args)
    except CorralError as error:
        _write_error(args, error)
        return error.exit_code
    except Exception as bug:
        _write_termination(args, bug)
        raise
    except KeyboardInterrupt:
        _info(f"agent {args.command}: interrupted")
        return 130


def _fetch(args: argparse.Namespace) -> int:
    report: Report = (lambda event: _write(as_json(event))) if args.json else Lines(_info)
    with stop_on_sigterm() as stop:
        lock = read_lock(args.lock)
        done = fetch(lock, Store(args.store), models=args.models, report=report, stop=stop, lease_ttl=args.lease_ttl)
    if not args.json:
        _write(describe(done))
    return 0


def _verify(args: argparse.Namespace) -> int:
    report, store, failure = Lines(_info), Store(args.store), None
    with stop_on_sigterm() as stop:
        lock = read_lock(args.lock)
        checks = verify(lock, store, models=args.models, report=report, stop=stop)
        if args.repair:
            checks, failure = repair(lock, store, checks, report=report, stop=stop)
    for check in checks:
        detail = f": {check.detail}" if check.detail else ""
        _write_one(args, asdict(check), f"{check.model}/{check.file}: {check.state}{detail}")
    if failure:
        _write_error(args, failure)
    return 0 if all(check.is_good for check in checks) else 1


def _warm(args: argparse.Namespace) -> int:
    with stop_on_sigterm() as stop:
        lock = read_lock(args.lock)
        warmed = warm(lock, Store(args.store), models=args.models, report=Lines(_info), stop=stop)
    for file in (*warmed, total(warmed)):
        _write_one(args, asdict(file), describe_warmth(file))
    return 0 if all(file.is_warm for file in warmed) else 1


def _prune(args: argparse.Namespace) -> int:
    with stop_on_sigterm() as stop:
        lock, others = read_lock(args.lock), [read_lock(path) for path in args.keep_lock]
        pruned = prune(
            lock, Store(args.store), others=others, served=args.served, grace=args.grace, delete=args.yes, stop=stop
        )
    if args.json:
        _write(json.dumps(asdict(pruned)))
    else:
        for removal in pruned.removals:
            error = f": {removal.error}" if removal.error else ""
            _write(f"{printable(removal.path)}: {removal.why}{error}")
    _info(pruned.summary())
    return 1 if pruned.failed else 0


def _store(args: argparse.Namespace) -> int:
    found = survey(Store(args.store))
    if args.json:
        _write(json.dumps(asdict(found)))
    else:
        for row in found.rows():
            _write("\t".join(row))
        _info(found.summary())
    return 0


def _metrics(args: argparse.Namespace) -> int:
    lock, store = read_lock(args.lock), Store(args.store)
    watch = store_state.Watch(
        lambda: store_state.read(lock, store), warn=lambda problem: _info(f"agent metrics: {problem}")
    )
    try:
        with (
            stop_on_sigterm() as stop,
            serving(
                (args.listen, args.port), lambda: store_metrics.text(args.name, watch.latest(), args.seal)
            ) as server,
            watch.running(),
        ):
            _info(f"agent metrics: listening on port {server.server_port}")
            stop.wait()
    except OSError as error:
        raise CannotRun(
            f"{args.listen}:{args.port} cannot be listened on: {error.strerror or error}.",
            next_step="Name an address of this machine, or another port: --listen ADDRESS --port N",
            code=Code.OTHER,
        ) from error
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python3 -m agent",
        description=__doc__,
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)

    def add(
        name: str, run: Callable[[argparse.Namespace], int], purpose: str, *, models: str | None = None
    ) -> argparse.ArgumentParser:
        command = commands.add_parser(name, help=purpose, description=purpose)
        command.set_defaults(run=run)
        command.add_argument("--store", metavar="DIR", type=Path, required=True, help="the model store")
        command.add_argument("--json", action="store_true", help="one JSON object per line on stdout")
        command.add_argument(
            "--termination-log", metavar="FILE", type=Path, help="where an error is written as JSON: code and fields"
        )
        if name != "store":
            command.add_argument("--lock", metavar="FILE", type=Path, required=True, help="lock.json")
        if models:
            command.add_argument("models", nargs=models, metavar="MODEL", help="only these (default: all of the lock)")
        return command

    add("fetch", _fetch, "download what is missing, verified, and link it", models="*").add_argument(
        "--lease-ttl",
        metavar="SECONDS",
        type=positive_seconds,
        default=DEFAULT_LEASE_TTL,
        help="silence after which another downloader counts as dead (default: %(default)s)",
    )
    add("verify", _verify, "hash what is there again", models="*").add_argument(
        "--repair", action="store_true", help="fetch what is missing or damaged"
    )
    add("warm", _warm, "read models into this machine's page cache, and measure that they are there", models="+")
    pruning = add("prune", _prune, "list what nothing needs any more, or remove it")
    pruning.add_argument("--yes", action="store_true", help="remove it")
    pruning.add_argument(
        "--grace", metavar="DURATION", type=seconds_of, default=DEFAULT_GRACE, help="idle for so long: 90s, 24h, 7d"
    )
    pruning.add_argument(
        "--keep-lock",
        metavar="FILE",
        type=Path,
        action="append",
        default=[],
        help="the lock of another catalog that uses the store; may repeat",
    )
    pruning.add_argument(
        "--served", metavar="MODEL", action="append", default=[], help="a model that stays, because it runs; may repeat"
    )
    add("store", _store, "list the contents of the store")
    serving_metrics = add("metrics", _metrics, "serve what the store has of the lock to Prometheus, until SIGTERM")
    serving_metrics.add_argument(
        "--name",
        metavar="NAME",
        type=_store_name,
        default=store_metrics.LOCAL,
        help="the label store (default: %(default)s)",
    )
    serving_metrics.add_argument(
        "--seal", metavar="SEAL", type=_seal, required=True, help="of the lock, of which --lock may be a part"
    )
    serving_metrics.add_argument("--listen", metavar="ADDRESS", default="127.0.0.1", help="default: %(default)s")
    serving_metrics.add_argument("--port", metavar="N", type=_port, default=9461, help="default: %(default)s; 0: any")
    return parser


def _port(text: str) -> int:
    if re.fullmatch(r"[0-9]{1,5}", text) and int(text) <= 65535:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r} is no port from 0 to 65535")


def _store_name(text: str) -> str:
    if store_metrics.NAME.fullmatch(text):
        return text
    raise argparse.ArgumentTypeError(f"{text!r} is no name of a store: it has a-z, 0-9, '.' and '-' alone")


def _seal(text: str) -> str:
    if re.fullmatch(r"[0-9a-f]{64}", text):
        return text
    raise argparse.ArgumentTypeError(f"{text!r} is no seal: it has 64 hexadecimal digits")


def _write_one(args: argparse.Namespace, fields: dict[str, Any], line: str) -> None:
    _write(json.dumps(fields) if args.json else line)


def _write(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _write_termination(args: argparse.Namespace, error: Exception) -> None:
    if args.termination_log:
        write_termination(args.termination_log, of_error(error))


def _write_error(args: argparse.Namespace, error: CorralError) -> None:
    _write_termination(args, error)
    _info(f"agent {args.command}: {error.message}")
    if error.next_step:
        _info(f"  → {error.next_step}")


def _info(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
