"""Show who sits where on each card, in MiB, what is left, and what would help a card that is short.

The numbers are Terraform's: this is the chart that `terraform plan` refuses by.  Exit code 1 when a card is short.
With --what-if the question is put to a copy of the catalog, measured anew without network; nothing is written.

examples:
  corral seat
  corral seat --what-if context=32768 qwen3-8b
  corral seat --what-if parallel=2 --what-if args.cache-type-k=q8_0 qwen3-8b
  corral seat --what-if tenants.immich-ml.budget_mib=10726
  corral seat --json | jq '.cards[].free_mib'
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from corral import output, paths
from corral.catalog import catalog
from corral.cli import options
from corral.errors import ExitCode, Refused
from corral.files import write_atomically
from corral.lock import lock
from corral.seating import chart, remedies
from corral.terraform import local

if TYPE_CHECKING:
    from rich.text import Text

    from corral.seating.what_if import Change


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare options."""
    options.add_catalog(parser)
    options.add_json(parser)
    parser.add_argument("target", nargs="?", metavar="MODEL", help="the model (or card) that --what-if is about")
    parser.add_argument(
        "--what-if",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="as if a model or a card said so; may repeat",
    )
    parser.add_argument("--svg", type=Path, metavar="FILE", help="write the chart as a picture too")


def run(args: argparse.Namespace) -> int:
    """Have it summed up, and show it."""
    wanted = catalog.load(options.catalog_dir(args))
    present = lock.require_fresh(wanted)
    if args.target and not args.what_if:
        raise Refused(
            f"{args.target}: a model is named for a question.", next_step="corral seat --what-if KEY=VALUE MODEL"
        )
    with _asked(args, wanted, present) as (seated, changes):
        found = local.seating(seated.directory, state=paths.state_dir())
        _show(found, seated, changes, args, home=wanted.directory)
    return ExitCode.OK if all(card["fits"] for card in found["cards"].values()) else ExitCode.FAILED


@contextmanager
def _asked(
    args: argparse.Namespace, wanted: catalog.Catalog, present: lock.Lock
) -> Iterator[tuple[catalog.Catalog, Sequence[Change]]]:
    """The catalog that the question is about: the one that is there, or a copy in which something is changed."""
    if not args.what_if:
        yield wanted, ()
        return
    from corral.seating import what_if

    changes = what_if.parse(args.what_if, args.target, wanted)
    with what_if.applied(changes, wanted, present) as changed:
        yield changed, changes


def _show(
    found: dict[str, Any], seated: catalog.Catalog, changes: Sequence[Change], args: argparse.Namespace, *, home: Path
) -> None:
    if args.svg:
        _write_svg(args.svg, found)
    for warning in found["warnings"]:
        output.warn(warning)
    if args.json:
        output.data_json(found)
        return
    from corral.seating import terminal

    for change in changes:
        output.info(f"what if {change}")
    _print(terminal.draw(found))
    if found["models"]:
        output.data("")
        output.table(chart.MODEL_COLUMNS, list(chart.model_rows(found)))
    for name, card in found["cards"].items():
        if card["short_mib"]:
            _tell_remedies(name, card, seated, home, asked=bool(changes))


def _write_svg(file: Path, found: dict[str, Any]) -> None:
    from corral.seating import svg

    try:
        write_atomically(file, svg.draw(found))
    except OSError as error:
        raise Refused(
            f"{file} cannot be written: {error.strerror}.", next_step="Name another file with: --svg FILE"
        ) from None
    output.info(f"{file} written")


def _print(drawn: Text) -> None:
    if not sys.stdout.isatty():
        output.data(drawn.plain)
        return
    from rich.console import Console

    Console(highlight=False).print(drawn, soft_wrap=True)


def _tell_remedies(name: str, card: dict[str, Any], seated: catalog.Catalog, home: Path, *, asked: bool) -> None:
    lines = remedies.edits(name, card, seated)
    if not lines:
        output.info(f"\n{card['reason'].rpartition(' For the chart')[0]}")
        return
    would = "would be" if asked else "is"
    output.info(f"\n{name} {would} short of {card['short_mib']:,} MiB. Each of these alone would do:")
    for line in lines:
        output.info(f"  - {line.replace('(now ', '(in question: ') if asked else line}")
    if not asked:
        output.info(f"  → {remedies.afterwards(home)}")
