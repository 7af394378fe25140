"""Show what an apply of the homelab would change: in the words of the catalog, then in Terraform's; nothing is changed.

This is `terraform plan` of terraform/stacks/homelab, with the same terraform.tfvars and the same state.  It refuses
what an apply would: a stale lock, a set that does not fit its card, a broken rule.  With --local it is the plan of
terraform/stacks/local, which is what `corral up` applies, and the catalog's default is terraform/catalog.  The bytes to
fetch are an upper bound: only the download knows what the store has already.  A flag that a model runs by `unsafe` is
shown in red, with its reason, also where nothing changes.

examples:
  corral plan
  corral plan --var-file ~/homelab.tfvars --json | jq .server_restarts
  corral plan --local --catalog terraform/catalog-demo
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from corral import output, paths
from corral.cli import image_table, latency_table, options, unsafe_flags
from corral.cli.seating_help import seating_help
from corral.errors import CorralError, Refused

if TYPE_CHECKING:
    from corral.catalog.catalog import Catalog
    from corral.lock.lock import Lock
    from corral.terraform.changes import Changes
    from corral.terraform.homelab import Homelab, Plan


# The first plan would else begin with the 4,000 lines of the agent.
_LONG_FILE = re.compile(r"(?P<begin><<-EOT)\n(?P<lines>(?:(?! *EOT$).*\n){40,})(?P<end> *EOT)$", re.MULTILINE)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_homelab(parser)
    parser.add_argument("--local", action="store_true", help="the local stack instead of the homelab")
    options.add(parser, "--store", "--json")


def add_homelab(parser: argparse.ArgumentParser) -> None:
    """The options that define the homelab's stack: ``--catalog DIR``, ``--var-file FILE``."""
    parser.add_argument(
        "--catalog", metavar="DIR", type=Path, help="the catalog folder (default: the stack's variable catalog)"
    )
    parser.add_argument(
        "--var-file",
        metavar="FILE",
        type=Path,
        action="append",
        default=[],
        help="variables, beside terraform.tfvars in the stack; may repeat",
    )


def run(args: argparse.Namespace) -> None:
    if args.local:
        _local(args)
        return
    if args.store:
        raise Refused(
            "--store is for --local: the homelab's store is its variable store.",
            next_step="Leave --store out, or run: corral plan --local",
        )
    with planned(args) as (_, plan, changes):
        if args.json:
            output.data_json(changes.as_json())
        else:
            show(plan, changes)


def require_var_files(args: argparse.Namespace) -> None:
    """Raise Refused where a file of variables is not there."""
    for file in args.var_file:
        if not file.is_file():
            raise Refused(f"There is no file {file}.", next_step="Correct: --var-file FILE")


@contextmanager
def planned(args: argparse.Namespace) -> Iterator[tuple[Homelab, Plan, Changes]]:
    """The homelab's stack that *args* define, its plan, and the changes; in the block a refusal gets remedies.

    Raises:
        Refused: a file of variables is not there, or Terraform refuses the plan.
        CatalogInvalid, LockStale: the catalog breaks a rule, or its lock is not fresh; Terraform is not started.
    """
    from corral.terraform import changes
    from corral.terraform.homelab import Homelab

    require_var_files(args)
    lab = Homelab(catalog=args.catalog, var_files=args.var_file, report=output.info)
    folder = args.catalog
    if folder is None:
        with suppress(CorralError):  # a plan explains what is wrong with the variables
            folder = lab.target().catalog
    with _advice(*options.locked_catalog(folder)) if folder else nullcontext(), lab.plan() as plan:
        yield lab, plan, changes.of_plan(plan.document)


@contextmanager
def _advice(wanted: Catalog, locked: Lock) -> Iterator[None]:
    """Print advice about *locked*, its latency budgets and room for images; refusals of the block get remedies.

    Raises:
        Refused: a budget cannot be kept, images do not fit, or what the block raised.
    """
    from corral.lock import image_room

    if locked.engine and locked.engine.warning:
        output.warn(locked.engine.warning)
    forecasts = latency_table.forecasts(locked.models, wanted.measured)
    latency_table.require_possible(forecasts)
    for one in forecasts:
        output.info(latency_table.sentence(one))
    rooms = list(image_room.rooms(locked.models, wanted.directory))
    image_table.require_room(rooms)
    for room in rooms:
        output.info(image_table.sentence(room))
    with seating_help(wanted, locked):
        yield


def show(plan: Plan, changes: Changes) -> None:
    """Print *changes* and unsafe flags, then ``show_terraform``."""
    output.data("\n".join(changes.lines()))
    unsafe_flags.show(changes.unsafe)
    if not changes.none:
        show_terraform(plan)


def show_terraform(plan: Plan) -> None:
    """Print Terraform's own output of *plan*, in which a file of many lines takes one."""
    output.data(f"\n{_LONG_FILE.sub(_in_one_line, plan.text.strip())}")


def agreed(question: str) -> bool:
    """Whether the answer to *question* at the terminal is yes."""
    output.info(question)
    return sys.stdin.readline().strip() == "yes"


def _in_one_line(file: re.Match[str]) -> str:
    return f"{file['begin']} … {file['lines'].count(chr(10))} lines …{file['end'].strip()}"


def _local(args: argparse.Namespace) -> None:
    from corral.catalog import unsafe
    from corral.cli import local_door, on_cpu
    from corral.engine import binaries, stack
    from corral.terraform import local

    for option, given in (("--var-file", args.var_file), ("--json", args.json)):
        if given:
            raise Refused(f"{option} is for the homelab.", next_step=f"Leave out --local, or {option}")
    wanted, locked = options.locked_catalog(options.catalog_dir(args))
    engine = binaries.llama_server()
    store, state = options.store_dir(args), paths.state_dir()
    running = stack.running(state)
    door, port = local_door.wanted(state, locked, running)
    unsafe_flags.show(unsafe.unsafe_flags(wanted.models))
    with _advice(wanted, locked):
        without_card = on_cpu.here(locked)
        planned = local.plan_local(
            wanted.directory, store, engine.path, state=state, start_port=port, door=door, on_cpu=without_card
        )
        output.data(planned)
