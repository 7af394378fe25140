"""Check the catalog: every key, type and rule of every model, card and image, all problems in one pass.

Needs no network, no GPU and no engine.  A missing or stale lock is a warning: it is what `corral lock` is for.

example:
  corral validate --catalog terraform/catalog-demo
"""

from __future__ import annotations

import argparse

from corral import output
from corral.catalog import catalog
from corral.cli import options, unsafe_flags
from corral.errors import CatalogInvalid, ExitCode
from corral.lock import lock


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.add(parser, "--catalog", "--json")


def run(args: argparse.Namespace) -> int:
    directory = options.catalog_dir(args)
    try:
        checked = catalog.load(directory)
    except CatalogInvalid as error:
        if not args.json:
            raise
        problems = [item._asdict() | {"file": str(item.file)} for item in error.problems]
        output.data_json({"catalog": str(directory), "valid": False, "problems": problems})
        return ExitCode.REFUSED
    unsafe_flags.warn(checked.models)
    stale = list(lock.stale(checked))
    if args.json:
        warnings = [{item.about: item.name, "code": item.code, "message": item.reason} for item in stale]
        document = {"catalog": str(directory), "valid": True, "models": list(checked.models)}
        output.data_json(document | {"lock_warnings": warnings})
        return ExitCode.OK
    output.data(f"{directory}: valid; models: {', '.join(checked.models)}; cards: {', '.join(checked.cards)}")
    for item in stale:
        output.warn(str(item))
    if stale:
        output.warn(f"the lock is {lock.state(stale)}. Run: {lock.rewrite_step(checked.lock_file)}")
    return ExitCode.OK
