"""Remove the homelab from the cluster: show what goes and what stays, ask, destroy exactly that.

This is `terraform destroy` of terraform/stacks/homelab, with the same terraform.tfvars and the same state; it needs no
usable lock and no catalog.  First come the objects that go, in the catalog's words and in Terraform's, then what stays
and why: the files of the models, a claim and a namespace that were there before, Secrets that Terraform does not have,
the exporter's records on its node, the state.  A namespace of the stack goes with all that is in it: what is not
corral's in there is named before the question.  At the end each thing that stayed has the command that removes it.

Without a terminal for the question, --yes is needed.  --json alone changes nothing.

examples:
  corral destroy
  corral destroy --json            what would go, and what would stay
  corral destroy --yes --json      and destroy it
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

from corral import output
from corral.cli import options
from corral.cli.plan import add_homelab, agreed, require_var_files, show
from corral.errors import ExitCode, Refused

if TYPE_CHECKING:
    from corral.terraform.changes import Changes


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_homelab(parser)
    parser.add_argument("--yes", action="store_true", help="do not ask")
    options.add(parser, "--json")


def run(args: argparse.Namespace) -> int:
    if not (args.yes or args.json or sys.stdin.isatty()):
        raise Refused(
            "There is no terminal for the question, and --yes was not given.",
            next_step="See what goes and what stays: corral destroy --json; then: corral destroy --yes",
        )
    from corral.cluster.client import connect
    from corral.terraform import adoption, changes, remains
    from corral.terraform.guard import ClusterGuard
    from corral.terraform.homelab import Homelab

    require_var_files(args)
    lab = Homelab(catalog=args.catalog, var_files=args.var_file, report=output.info, command="corral destroy")
    with lab.plan(destroy=True) as plan:
        going, target = changes.of_plan(plan.document), plan.target
        has_objects = any(adoption.to_remove(plan.document))
        is_empty = not plan.document.get("resource_changes")
        cluster = connect(target.kubeconfig, target.context) if has_objects or is_empty else None
        if is_empty and cluster and (left := adoption.left_behind(cluster, target.namespace)):
            raise Refused(
                f"Terraform's state has nothing, and the cluster has {', '.join(map(str, left))}, of corral: the state "
                "was lost, or another clone has it.",
                next_step="corral adopt, then corral destroy; docs/runbooks/state-lost-or-behind.md",
            )
        found = remains.of_destroy(plan.document, cluster, lab.state())
        if not args.json:
            show(plan, going)
            output.data("\n".join(["", *(f"stays: {one}" for one in found.stays)]))
        for warning in found.warnings():
            output.warn(warning)
        is_agreed = not going.none and _is_agreed(args, going)
        if is_agreed:
            lab.apply(plan, guard=ClusterGuard(target))
            found = replace(found, stays=remains.left(found, cluster))
    if args.json:
        output.data_json({"destroyed": is_agreed, "changes": going.as_json(), **found.as_json()})
    elif is_agreed:
        output.info("Destroyed.")
        for one in found.stays:
            output.info(f"stays: {one}\n  → {one.remove}")
    elif not going.none:
        output.info("Nothing was changed.")
        return ExitCode.FAILED
    return ExitCode.OK


def _is_agreed(args: argparse.Namespace, going: Changes) -> bool:
    if args.yes or args.json:
        return bool(args.yes)
    output.info("\n".join(["", *going.lines()]))
    return agreed("Destroy this? Only yes destroys it.")
