"""Show the seating chart: what each card holds in MiB, what is left, and what would make a short card fit.

The sums are those that `terraform plan` refuses by.  Exit code 1 when a card is short.  The largest context that fits
is the engine's answer, to within 256 tokens; where the engine is not installed it is the lock's next smaller one, with
a ~ before it.  With --what-if the catalog is changed in memory and predicted anew, without network; nothing is written.

examples:
  corral seat
  corral seat --what-if context=32768 qwen3-8b
  corral seat --what-if parallel=2 --what-if args.cache-type-k=q8_0 qwen3-8b
  corral seat --what-if tenants.immich-ml.budget_mib=10726
  corral seat --what-if 'tenants.backup={budget_mib: 2048}'
  corral seat --json | jq '.cards[].free_mib'
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from corral import output
from corral.cli import on_cpu, options
from corral.errors import ExitCode, Refused
from corral.files import refuse_unwritable, write_atomically
from corral.lock import placement
from corral.seating import advice, remedies, report
from corral.seating.report import Report

if TYPE_CHECKING:
    from corral.seating.what_if import Change


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.add(parser, "--catalog", "--json")
    parser.add_argument("target", nargs="?", metavar="MODEL", help="the model (or card) that --what-if is about")
    parser.add_argument(
        "--what-if",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="as if a model or a card had this value; may repeat",
    )
    parser.add_argument("--svg", type=Path, metavar="FILE", help="write the chart as a picture too")


def run(args: argparse.Namespace) -> int:
    wanted, present = options.locked_catalog(options.catalog_dir(args))
    changes: Sequence[Change] = ()
    if args.what_if:
        from corral.seating import what_if

        changes = what_if.parse(args.what_if, args.target, wanted)
        wanted, present = what_if.applied(changes, wanted, present)
    elif args.target:
        raise Refused(
            f"{args.target}: a model is named for a question.", next_step="corral seat --what-if KEY=VALUE MODEL"
        )
    found = report.of(wanted, present)
    _show(found, changes, args, on_cpu.here(present), home=wanted.directory)
    return ExitCode.OK if found.fits else ExitCode.FAILED


def _show(
    found: Report, changes: Sequence[Change], args: argparse.Namespace, without_card: Mapping[str, str], *, home: Path
) -> None:
    if args.svg:
        from corral.seating import svg

        with refuse_unwritable(args.svg, next_step="Name another file with: --svg FILE"):
            write_atomically(args.svg, svg.draw(found.chart))
        output.info(f"{args.svg} written")
    for one in found.advice:
        output.warn(advice.sentence(one))
    if args.json:
        output.data_json({**found.as_json(), "on_cpu": dict(without_card)})
        return
    from corral.seating import terminal

    for change in changes:
        output.info(f"what if {change}")
    on_cpu.show(without_card)
    output.styled(terminal.draw(found.chart))
    output.data("")
    output.table(report.MODEL_COLUMNS, list(found.model_rows()))
    for model_id, entry in sorted(found.lock.models.items()):
        if why := placement.reason(entry):
            output.info(f"{model_id}: {why}")
    for name, card in found.chart.cards.items():
        if not card.fits:
            output.info("\n".join(["", *found.remedy_lines(name, hypothetical=bool(changes))]))
            if found.remedies(name) and not changes:
                output.info(f"  → {remedies.afterwards(home)}")
