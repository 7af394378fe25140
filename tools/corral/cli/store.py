"""Show what lies in the store: models, what no model leads to, downloads under way, room.

  corral store
  corral store --json      all of it, sets and blobs that are in use included

What nothing needs any more is removed by: corral prune
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
    options.add(parser, "--store", "--json")


def run(args: argparse.Namespace) -> int:
    store = Store(options.store_dir(args))
    found = survey(store, lease_ttl=DEFAULT_LEASE_TTL)
    document = {"store": str(store.root), **listing.as_data(found)}
    output.result(document, listing.COLUMNS, listing.rows(found), as_json=args.json)
    if not args.json:
        output.info(listing.summary(found))
    return ExitCode.OK
