"""Remove from the store what nothing needs any more; without --yes, only list it.

A file stays as long as a model's link leads to it, the lock names it (so an update that is fetched and not linked yet
is safe), or a process is downloading it.  Everything else is removed once it was idle for the grace period: a server
that was started before an update may have the old files open, and over NFS it loses them when they are removed. Restart
such servers first, or wait for as long.

Files of a `path:` model are never touched.  A model that left the catalog keeps its link, and so its files: remove the
link, then prune.

examples:
  corral prune                      list what would be removed
  corral prune --yes                remove it
  corral prune --yes --grace 7d     only what has been idle for a week
"""

from __future__ import annotations

import argparse
from dataclasses import asdict

from corral import output
from corral.agent.hub_policy import printable
from corral.agent.progress import count, duration, human, seconds_of
from corral.agent.prune import DEFAULT_GRACE, prune
from corral.cli import options
from corral.errors import ExitCode


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.add(parser, "--catalog", "--store", "--json")
    parser.add_argument(
        "--grace",
        metavar="DURATION",
        type=seconds_of,
        default=DEFAULT_GRACE,
        help="keep what was needed within this time: 90s, 15m, 24h, 7d (default: 24h)",
    )
    parser.add_argument("--yes", action="store_true", help="remove it; without this nothing is changed")


def run(args: argparse.Namespace) -> int:
    """Prune; exit code 1 when something could not be removed."""
    lock, store = options.lock_and_store(args)
    pruned = prune(lock, store, grace=args.grace, delete=args.yes)
    if args.json:
        output.data_json({**asdict(pruned), "bytes": pruned.size})
    elif pruned.removals:
        rows = [
            (printable(one.path), human(one.size), duration(one.idle), one.error or one.why) for one in pruned.removals
        ]
        output.table(("path", "size", "idle", "what"), rows)
    output.info(pruned.summary())
    if pruned.removals and not args.yes:
        output.info(f"Remove it with: {options.again(args, 'prune', '--yes')}")
    if pruned.failed:
        output.info(f"{count(len(pruned.failed), 'thing')} could not be removed.")
        return ExitCode.FAILED
    return ExitCode.OK
