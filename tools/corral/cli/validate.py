"""Check the catalog: every key, type and rule of every model, card and image, all problems in one pass.

Needs no network, no GPU and no engine.  A missing or stale lock is a warning: it is what `corral lock` is for.

example:
  corral validate --catalog terraform/catalog-demo
"""

from __future__ import annotations

import argparse

from corral import output
from corral.catalog import catalog
from corral.cli import options
from corral.errors import CatalogInvalid, ExitCode
from corral.lock import lock


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare options."""
    options.add_catalog(parser)
    options.add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Load the catalog, then compare its lock with it."""
    directory = options.catalog_dir(args)
    try:
        checked = catalog.load(directory)
    except CatalogInvalid as error:
        if not args.json:
            raise
        problems = [
            {"file": str(item.file), "line": item.line, "where": item.where, "message": item.message}
            for item in error.problems
        ]
        output.data_json({"catalog": str(directory), "valid": False, "problems": problems})
        return ExitCode.REFUSED
    stale = list(lock.stale(checked))
    if args.json:
        warnings = [{item.about: item.name, "code": item.code, "message": item.reason} for item in stale]
        output.data_json(
            {"catalog": str(directory), "valid": True, "models": list(checked.models), "lock_warnings": warnings}
        )
        return ExitCode.OK
    output.data(f"{directory}: valid; models: {', '.join(checked.models)}; cards: {', '.join(checked.cards)}")
    for item in stale:
        output.warn(str(item))
    if stale:
        output.warn(f"the lock is {lock.state(stale)}. Run: {lock.relock_command(directory)}")
    return ExitCode.OK
