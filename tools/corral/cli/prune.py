"""Remove from the store what nothing needs any more; without --yes, only list it.

A model that no lock names any more is not needed: its link is removed, and then its files.  The locks are that of the
catalog, the one that the homelab was applied with from this clone, and those of --keep-lock; a model of the running
local stack counts as named.  The store does not record whose catalog a model is of: where several catalogs fill one
store, name the locks of the others with --keep-lock, and read the list before --yes.  Where the store has models and no
lock names one of them, nothing is removed.

A file stays as long as a needed model's link leads to it, a lock names it (so an update that is fetched and not linked
yet is safe), a process is downloading it, or a process of this machine has it open.  Everything else is removed once it
was idle for the grace period, which each fetch of a model, by whichever catalog, begins anew: a server that was started
before an update may have the old files open, and over NFS it loses them when they are removed. Restart such servers
first, or wait for as long.

Files of a `path:` model are never touched, and neither is a link of the operator's own, such as one of another name.
Root writes as the owner of the store's folder (Linux).

With --context a Job does the same in that cluster, on the store of the stack there.  There the lock that was applied
last counts, not this machine's, and a model that the server there has in its configuration counts as named.  The Job
mounts the store read-only without --yes, is deleted afterwards, and is refused while models are downloaded.

examples:
  corral prune                      list what would be removed
  corral prune --yes                remove it
  corral prune --yes --grace 7d     only what has been idle for a week
  corral prune --context homelab    list it in the cluster
"""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from corral import output, paths
from corral.agent.hub_policy import printable
from corral.agent.lock_file import read_lock
from corral.agent.progress import count, duration, human, seconds_of
from corral.agent.prune import DEFAULT_GRACE, Pruned, prune
from corral.cli import interrupts, options
from corral.errors import ExitCode, Refused

if TYPE_CHECKING:
    from corral.agent.lock_file import Lock
    from corral.cluster.target import ClusterTarget


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.add(parser, "--catalog", "--store", "--json")
    parser.add_argument(
        "--grace",
        metavar="DURATION",
        type=seconds_of,
        default=DEFAULT_GRACE,
        help="keep what was needed within this time: 90s, 15m, 24h, 7d (default: 24h)",
    )
    parser.add_argument(
        "--keep-lock",
        metavar="FILE",
        type=Path,
        action="append",
        default=[],
        help="lock.json of another catalog that uses the store; may repeat",
    )
    parser.add_argument("--yes", action="store_true", help="remove it; without this nothing is changed")
    options.add_cluster(parser, namespace="of the stack (default: the homelab stack's, if it means that context)")


def run(args: argparse.Namespace) -> int:
    """Prune; exit code 1 when something could not be removed."""
    if missing := next((path for path in args.keep_lock if not path.exists()), None):
        raise Refused(f"The lock to keep {missing} does not exist.", next_step="Correct: --keep-lock FILE")
    others = [read_lock(path) for path in args.keep_lock]
    target = options.cluster(args)
    pruned = _in_cluster(args, target, others) if target else _here(args, others)
    if args.json:
        output.data_json({**asdict(pruned), "bytes": pruned.size})
    elif pruned.removals:
        rows = [
            (printable(one.path), human(one.size), duration(one.idle), printable(one.error or one.why))
            for one in pruned.removals
        ]
        output.table(("path", "size", "idle", "what"), rows)
    output.info(pruned.summary())
    if pruned.removals and not args.yes:
        kept = [word for path in args.keep_lock for word in ("--keep-lock", str(path))]
        grace = [] if args.grace == DEFAULT_GRACE else ["--grace", f"{args.grace:g}"]
        output.info(f"Remove it with: {options.again(args, 'prune', '--yes', *grace, *kept)}")
    if pruned.failed:
        output.info(f"{count(len(pruned.failed), 'thing')} could not be removed.")
        return ExitCode.FAILED
    return ExitCode.OK


def _here(args: argparse.Namespace, others: list[Lock]) -> Pruned:
    from corral.engine import stack
    from corral.terraform.target import applied_lock

    lock, store = options.lock_and_store(args)
    local, applied = stack.running(paths.state_dir()), applied_lock()
    served = local.client().models() if local else ()
    return prune(
        lock, store, others=[*others, *([applied] if applied else [])], served=served, grace=args.grace, delete=args.yes
    )


def _in_cluster(args: argparse.Namespace, target: ClusterTarget, others: list[Lock]) -> Pruned:
    from corral.cluster import store_prune
    from corral.cluster.client import connect

    if args.store:
        raise Refused("In a cluster, the store is that of the stack there.", next_step="Leave out --store")
    cluster = connect(target.kubeconfig, target.context)
    with interrupts.first_only("The Job is being deleted first."):
        return store_prune.prune(
            cluster, target.namespace, others=others, grace=args.grace, delete=args.yes, report=output.info
        )
