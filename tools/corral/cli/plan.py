"""Show what Terraform makes of the catalog and its lock for the local stack; nothing is fetched or started.

This is `terraform plan` of terraform/stacks/local, and it refuses what `corral up` would: a stale lock, a set
that does not fit its card, a broken rule.

example:
  corral plan --catalog terraform/catalog-demo
"""

from __future__ import annotations

import argparse

from corral import output, paths
from corral.catalog import catalog, lock
from corral.cli import options
from corral.engine import binaries, render
from corral.errors import ExitCode


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare options."""
    options.add_catalog(parser)
    options.add_store(parser)


def run(args: argparse.Namespace) -> int:
    """Plan, and print Terraform's own words."""
    wanted = catalog.load(options.catalog_dir(args))
    lock.require_fresh(wanted)
    engine = binaries.llama_server()
    store = options.store_dir(args)
    output.data(render.plan_local(wanted.directory, store, engine.path, state=paths.state_dir(), warn=output.warn))
    return ExitCode.OK
