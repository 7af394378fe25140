"""Take objects of the stack that the cluster has into Terraform's state, where that was lost or is behind.

After a lost state, or an apply that was cut off before it wrote one, Terraform would make what is there already, and
fails with `already exists`.  This reads the plan, asks the cluster for each object that it would make, and writes
`import` blocks for those that exist and have corral's label; nothing is deleted, and nothing of others is touched.
Then it shows the plan with them: what is adopted, and what differs and is changed by the same apply.  It asks, and
applies exactly that plan.

What exists without corral's label under a name of the stack is refused: another owner has it.

examples:
  corral adopt
  corral adopt --yes
  corral adopt --json        what would be adopted; nothing is changed
"""

from __future__ import annotations

import argparse
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

from corral import output
from corral.cli import options, unsafe_flags
from corral.cli.plan import add_homelab, agreed, planned, show_terraform
from corral.errors import CorralError, ExitCode, Refused

if TYPE_CHECKING:
    from corral.terraform.changes import Changes
    from corral.terraform.homelab import Plan

_AS_THEY_ARE = "No object changes: the state takes them in as they are."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_homelab(parser)
    parser.add_argument("--yes", action="store_true", help="do not ask")
    options.add(parser, "--json")


def run(args: argparse.Namespace) -> int:
    if not (args.yes or args.json or sys.stdin.isatty()):
        raise Refused(
            "There is no terminal for the question, and --yes was not given.",
            next_step="See what it would adopt: corral adopt --json; then: corral adopt --yes",
        )
    from corral.cluster.client import connect
    from corral.terraform import adoption, changes
    from corral.terraform.guard import ClusterGuard

    with planned(args) as (lab, plan, _):
        cluster = connect(plan.target.kubeconfig, plan.target.context)
        adopted = adoption.existing(cluster, list(adoption.to_make(plan.document)))
        if args.json:
            output.data_json([{"address": one.address, "id": one.id} for one in adopted])
            return ExitCode.OK
        if not adopted:
            output.info("Nothing is to adopt: the cluster has no object that the state lacks.")
            return ExitCode.OK
        with lab.importing(adoption.blocks(adopted)), lab.plan() as complete:
            for one in adopted:
                output.data(f"= {one}")
            _show(complete, changes.of_plan(adoption.without_artefacts(complete.document, adopted)))
            if not (args.yes or agreed(f"Adopt {len(adopted)} objects, and apply this plan? Only yes does.")):
                output.info("Nothing was changed.")
                return ExitCode.FAILED
            guard = ClusterGuard(complete.target)
            lab.apply(complete, guard=guard)
            with suppress(CorralError):
                guard.give_keys()
    output.info(f"Adopted {len(adopted)} objects; the state has all of the stack again.")
    output.info("  → corral plan, then corral status")
    return ExitCode.OK


def _show(plan: Plan, changes: Changes) -> None:
    """Print what the cluster would notice of *plan*, by *changes*, and Terraform's own output, which has more."""
    words = [*map(str, changes.catalog), *changes.objects, *changes.others]
    output.data("\n".join([*words, changes.lines()[-1]] if words else [_AS_THEY_ARE]))
    unsafe_flags.show(changes.unsafe)
    show_terraform(plan)
