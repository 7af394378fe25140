"""Write what is made from the catalog: docs/models.md, the table in the README, docs/litellm.yaml.

With --print, nothing is written: one of them goes to stdout, for any catalog.

examples:
  corral render --check
  corral render --print litellm --api-base http://127.0.0.1:8080/v1
"""

from __future__ import annotations

import argparse

from corral import documents, output, paths
from corral.catalog import catalog, lock
from corral.cli import options
from corral.errors import ExitCode, Refused
from corral.files import write_atomically


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare options."""
    options.add_catalog(parser)
    parser.add_argument("--api-base", metavar="URL", default=documents.IN_CLUSTER, help="endpoint in the LiteLLM list")
    way = parser.add_mutually_exclusive_group()
    way.add_argument("--check", action="store_true", help="only say which files are stale; exit 1 when one is")
    way.add_argument("--print", choices=("models", "litellm"), dest="show", help="print this one to stdout")


def run(args: argparse.Namespace) -> int:
    """Render, then write, compare or print."""
    wanted = catalog.load(options.catalog_dir(args))
    present = lock.read(wanted.lock_file)
    if args.show == "models":
        output.data(documents.models_table(wanted, present))
        return ExitCode.OK
    if args.show == "litellm":
        output.data(documents.litellm(wanted, args.api_base))
        return ExitCode.OK
    if wanted.directory.resolve() != paths.REPOSITORY / "terraform" / "catalog":
        raise Refused(
            f"The documents of the repository are about its own catalog, not about {wanted.directory}.",
            next_step="For another catalog: corral render --print models",
        )
    stale = [item for item in documents.repository_documents(wanted, present) if item.stale]
    for item in stale:
        output.data(f"{item.path} {'is stale' if args.check else 'written'}")
        if not args.check:
            write_atomically(item.path, item.text)
    if args.check and stale:
        output.talk("Rendered files do not match the catalog and its lock. Run: corral render")
        return ExitCode.FAILED
    if not stale:
        output.talk("All rendered files are fresh.")
    return ExitCode.OK
