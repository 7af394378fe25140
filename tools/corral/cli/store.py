"""Show what lies in the store: models, what no model leads to, downloads under way, room.

What nothing needs any more is removed by: corral prune

examples:
  corral store
  corral store --json      all of it, sets and blobs that are in use included
"""

from __future__ import annotations

import argparse
from dataclasses import asdict

from corral import output
from corral.agent.store import Store
from corral.agent.survey import COLUMNS, survey
from corral.cli import options


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.add(parser, "--store", "--json")


def run(args: argparse.Namespace) -> None:
    store = Store(options.store_dir(args))
    found = survey(store)
    document = {"store": str(store.root), **asdict(found)}
    output.result(document, COLUMNS, list(found.rows()), as_json=args.json)
    if not args.json:
        output.info(found.summary())
