"""Bring the store to what the lock says: download what is missing, check every byte, link it.

Each file is checked against its sha256 before a server can see it.  A model's link flips once all of its files
are there.  Stopped or killed, it goes on from there the next time; with everything in place it moves nothing.

  corral fetch                  all models of the lock
  corral fetch qwen3-8b         this one
  corral fetch --json           events, one JSON object per line

HF_TOKEN lets it into gated repositories, HF_ENDPOINT names another hub.  Plain HTTP is refused unless the hub is
on this machine or named: CORRAL_ALLOW_HTTP=host,host
"""

from __future__ import annotations

import argparse
from contextlib import nullcontext

from corral import output
from corral.agent.fetch import fetch
from corral.agent.lease import DEFAULT_LEASE_TTL
from corral.agent.lock_file import read_lock
from corral.agent.progress import Event, as_json, describe
from corral.agent.stopping import stop_on_sigterm
from corral.agent.store import Store
from corral.cli import options
from corral.cli.progress_bars import progress_on_stderr
from corral.errors import ExitCode


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare options."""
    parser.add_argument("models", nargs="*", metavar="MODEL", help="only these (default: all of the lock)")
    options.add_catalog(parser)
    options.add_store(parser)
    parser.add_argument("--json", action="store_true", help="print events to stdout, one JSON object per line")
    parser.add_argument(
        "--lease-ttl",
        metavar="SECONDS",
        type=float,
        default=DEFAULT_LEASE_TTL,
        help="silence after which another downloader counts as dead (default: %(default)s)",
    )


def run(args: argparse.Namespace) -> int:
    """Fetch; the summary is the last line."""
    lock = read_lock(options.catalog_dir(args) / "lock.json")
    store = Store(options.store_dir(args))
    with stop_on_sigterm() as stop, nullcontext(_write_event) if args.json else progress_on_stderr() as report:
        done = fetch(lock, store, models=args.models, report=report, stop=stop, lease_ttl=args.lease_ttl)
    if not args.json:
        output.data(describe(done))
    return ExitCode.OK


def _write_event(event: Event) -> None:
    output.data(as_json(event))
