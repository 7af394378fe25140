"""Show who holds the card: promised, predicted, measured and held, holder by holder, in MiB.

Promised is what the lock keeps for a model (its seat) or a tenant (its budget), predicted what the engine computed,
measured what `corral measure` found, held what NVIDIA's driver reports now, process by process.  A process belongs to a
model of the local stack, to a pod, or to this machine; one that is not visible from here is hidden, and what no process
accounts for is not attributed.  Unknown is `?` (JSON: null, with a code), never 0.

It only reads, loads no model, and works with a stale lock.  On one machine no process can be assigned to a tenant: all
that is no model is compared with the sum of the budgets and the reserve.  In a cluster the exporter of the card's node
knows the tenant of each pod: --context names the cluster; without it, without --catalog and without a local stack, it
is the one that terraform/stacks/homelab was applied to.

Exit code 1 when a model, a tenant, or the other programs together, hold more than they were promised, or when the
driver does not answer as it should; a machine without nvidia-smi has no card, and that is 0.

examples:
  corral card
  corral card --watch                   every 2 s, until Ctrl-C
  corral card --json | jq '.cards[].holders[] | select(.over > 0)'
  corral card --watch 10 --json         one document a line
  corral card --context homelab
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import TYPE_CHECKING

from corral import output, paths
from corral.card import drawing, local
from corral.cli import options
from corral.engine import stack
from corral.errors import ExitCode
from corral.exporter.account import CardAccount
from corral.exporter.errors import DriverFault
from corral.lock import lock as locks

if TYPE_CHECKING:
    from corral.cluster.target import ClusterTarget

NO_CARD = frozenset({DriverFault.MISSING.value})


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.add(parser, "--catalog", "--json")
    every = options.whole_number(1, 3600)
    parser.add_argument(
        "--watch", nargs="?", type=every, const=2, metavar="SECONDS", help="again and again (default: 2)"
    )
    options.add_cluster(parser, namespace="where the exporter is (default: the only one)")


def run(args: argparse.Namespace) -> int:
    target = options.cluster(args)
    if target is None and args.catalog is None and stack.recorded(paths.state_dir()) is None:
        target = options.applied()
    read = reader(args.catalog, target, namespace=args.namespace)
    while True:
        accounts = read()
        _show(accounts, args)
        if args.watch is None:
            return _code(accounts, no_card=frozenset() if target else NO_CARD)
        time.sleep(args.watch)


def reader(
    catalog: Path | None, target: ClusterTarget | None, *, namespace: str | None = None
) -> Callable[[], tuple[CardAccount, ...]]:
    """What reads the cards: of the cluster of *target*, or without one of this machine, by its *catalog*.

    Args:
        catalog: the folder; None: that of the local stack, else the nearest one.
        target: where the exporter of the card's node is asked.
        namespace: of that exporter; None: the only one.

    Raises:
        CorralError: there is no catalog or no lock, or the cluster cannot be reached; the reader, as it reads.
    """
    if target:
        from corral.card import remote
        from corral.cluster.client import connect

        cluster = connect(target.kubeconfig, target.context)
        return lambda: remote.read(cluster, namespace=namespace, of=target.namespace).cards
    state = paths.state_dir()
    lock = locks.require(options.catalog_of(catalog, stack.recorded(state)))
    return lambda: local.read(lock, state)


def _code(accounts: tuple[CardAccount, ...], *, no_card: Collection[str]) -> ExitCode:
    wrong = any(one.over or one.others_over or (one.unknown and one.unknown not in no_card) for one in accounts)
    return ExitCode.FAILED if wrong else ExitCode.OK


def _show(accounts: tuple[CardAccount, ...], args: argparse.Namespace) -> None:
    if args.json:
        document = {"at": round(time.time(), 3), "cards": [one.as_json() for one in accounts]}
        output.data(json.dumps(document, indent=None if args.watch else 2, ensure_ascii=False))
        return
    if args.watch:
        output.clear()
    for one in accounts:
        output.styled(list(drawing.draw(one)))
        output.table(drawing.COLUMNS, drawing.table(one))
    for problem in dict.fromkeys(one.problem for one in accounts if one.problem):
        output.info(f"held: {problem}")
