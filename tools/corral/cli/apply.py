"""Bring the homelab to the catalog: plan, ask, apply exactly that plan, then prove that every model answers.

This is `terraform apply` of terraform/stacks/homelab, with the same terraform.tfvars and the same state.  While
Terraform waits, the cluster is watched: what cannot heal by itself (no free GPU, an image that is not there) ends the
apply within seconds, with the reason and the next command.  Terraform writes its state first.

Without a terminal for the question, --yes is needed.

examples:
  corral apply
  corral apply --yes --no-smoke
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from corral import output
from corral.cli import options
from corral.cli import plan as plans
from corral.errors import ExitCode, Refused

if TYPE_CHECKING:
    from corral.cluster.target import ClusterTarget


def add_arguments(parser: argparse.ArgumentParser) -> None:
    plans.add_homelab(parser)
    parser.add_argument("--yes", action="store_true", help="do not ask")
    parser.add_argument("--no-smoke", action="store_true", help="do not smoke the models afterwards")


def run(args: argparse.Namespace) -> int:
    if not args.yes and not sys.stdin.isatty():
        raise Refused(
            "There is no terminal for the question, and --yes was not given.",
            next_step="Read the plan first: corral plan; then: corral apply --yes",
        )
    from corral.terraform import changes
    from corral.terraform.guard import ClusterGuard

    lab = plans.homelab(args)
    with plans.refusing_unfit(lab, args.catalog), lab.plan() as plan:
        meaning = changes.of_plan(plan.document)
        plans.show(plan, meaning)
        if not meaning.none:
            if not (args.yes or _agreed(meaning.lines())):
                output.info("Nothing was changed.")
                return ExitCode.FAILED
            lab.apply(plan, guard=ClusterGuard(plan.target))
            output.info("Applied.")
    return ExitCode.OK if args.no_smoke else _smoke(plan.target)


def _agreed(changes: Sequence[str]) -> bool:
    """Ask, and print the changes once more: Terraform's output may have filled the screen."""
    output.info("\n".join(["", *changes]))
    output.info("Apply this plan? Only yes applies it.")
    return sys.stdin.readline().strip() == "yes"


def _smoke(target: ClusterTarget) -> int:
    from corral.cli.main import build_parser

    args = build_parser(only="smoke").parse_args(["smoke", *options.target_words(target)])
    return int(args.run(args))
