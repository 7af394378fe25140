"""Bring the store to the lock: download what is missing, check every byte, link it.

Each file is checked against its sha256 before a server can open it.  A model's link flips once all of its files are
there.  Stopped or killed, it continues from there the next time; with everything in place it moves nothing.

Root writes as the owner of the store's folder (Linux), so that all in it stays the owner's; it still reads what only
root can read: a token, a file of a `path:` model.

HF_TOKEN opens gated repositories, HF_ENDPOINT names another hub.  Plain HTTP is refused unless the hub is on this
machine or named: CORRAL_ALLOW_HTTP=host,host.  A hub that sends less than 64 KiB/s over a minute is given up;
CORRAL_HUB_MIN_KIB_PER_SECOND=8 is for a slower line.

examples:
  corral fetch                  all models of the lock
  corral fetch qwen3-8b         this one
  corral fetch --json           events, one JSON object per line
"""

from __future__ import annotations

import argparse
from contextlib import nullcontext

from corral import output
from corral.agent.fetch import fetch
from corral.agent.lease import DEFAULT_LEASE_TTL
from corral.agent.progress import as_json, describe, positive_seconds
from corral.agent.stopping import stop_on_sigterm
from corral.cli import options
from corral.cli.progress_bars import progress_on_stderr


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.add(parser, "models", "--catalog", "--store")
    parser.add_argument("--json", action="store_true", help="print events to stdout, one JSON object per line")
    parser.add_argument(
        "--lease-ttl",
        metavar="SECONDS",
        type=positive_seconds,
        default=DEFAULT_LEASE_TTL,
        help="silence after which another downloader counts as dead (default: %(default)s)",
    )


def run(args: argparse.Namespace) -> None:
    lock, store = options.lock_and_store(args)
    events = nullcontext(lambda event: output.data(as_json(event))) if args.json else progress_on_stderr()
    with stop_on_sigterm() as stop, events as report:
        done = fetch(lock, store, models=args.models, report=report, stop=stop, lease_ttl=args.lease_ttl)
    if not args.json:
        output.data(describe(done))
