"""Show what lies in the store: models, what no model leads to, downloads under way, room.

  corral store
  corral store --json      all of it, sets and blobs that are in use included

What nothing needs any more goes with: corral prune
"""

from __future__ import annotations

import argparse

from corral import output
from corral.agent import listing
from corral.agent.lease import DEFAULT_LEASE_TTL
from corral.agent.store import Store
from corral.agent.survey import survey
from corral.cli import options
from corral.errors import ExitCode


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare options."""
    options.add_store(parser)
    options.add_json(parser)


def run(args: argparse.Namespace) -> int:
    """List; always exit code 0 when there is a store."""
    store = Store(options.store_dir(args))
    seen = survey(store, lease_ttl=DEFAULT_LEASE_TTL)
    if args.json:
        output.data_json({"store": str(store.root), **listing.as_data(seen)})
    else:
        output.table(listing.COLUMNS, listing.rows(seen))
        output.info(listing.summary(seen))
    return ExitCode.OK
