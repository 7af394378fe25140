"""Bring the homelab to the catalog: plan, ask, apply exactly that plan, then prove that every model answers.

This is `terraform apply` of terraform/stacks/homelab, with the same terraform.tfvars and the same state.  While
Terraform waits, the cluster is watched: what cannot heal by itself (no free GPU, an image that is not there) ends the
apply within seconds, with the reason and the next command.  Terraform writes its state first.  Where the front door has
no keys yet, its Secret is made, with the operator's key: Terraform never has one.  The exporter's page needs the same
key, whose hash is brought to it.  A gateway (LiteLLM) gets its keys in a Secret of their own.

Without a terminal for the question, --yes is needed.

examples:
  corral apply
  corral apply --yes --no-smoke
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from contextlib import suppress

from corral import output
from corral.cli import options
from corral.cli.plan import add_homelab, agreed, planned, show
from corral.errors import CorralError, ExitCode, Refused


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_homelab(parser)
    parser.add_argument("--yes", action="store_true", help="do not ask")
    parser.add_argument("--no-smoke", action="store_true", help="do not smoke the models afterwards")


def run(args: argparse.Namespace) -> int:
    if not args.yes and not sys.stdin.isatty():
        raise Refused(
            "There is no terminal for the question, and --yes was not given.",
            next_step="Read the plan first: corral plan; then: corral apply --yes",
        )
    from corral.terraform.guard import ClusterGuard

    with planned(args) as (lab, plan, changes):
        show(plan, changes)
        guard = ClusterGuard(plan.target)
        if not changes.none:
            if not (args.yes or _agreed([*changes.lines(), *map(str, changes.unsafe)])):
                output.info("Nothing was changed.")
                return ExitCode.FAILED
            with suppress(CorralError):  # what fails here fails after the apply, with its reason
                guard.give_monitor_keys()  # a pod that this apply starts has them from its start
            lab.apply(plan, guard=guard)
            output.info("Applied.")
        guard.give_keys()
        guard.give_monitor_keys()
        guard.give_gateway_keys()
    if args.no_smoke:
        return ExitCode.OK
    from corral.cli.main import build_parser

    smoke = build_parser(only="smoke").parse_args(["smoke", *options.target_words(plan.target)])
    return int(smoke.run(smoke))


def _agreed(lines: Sequence[str]) -> bool:
    """Ask, and print *lines*, the changes, once more: Terraform's output may have filled the screen."""
    output.info("\n".join(["", *lines]))
    return agreed("Apply this plan? Only yes applies it.")
