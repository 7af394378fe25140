"""Take a tenant off the card for a time: its Deployments and StatefulSets get 0 replicas, and are always restored.

First a Job is started in the tenant's namespace, which restores them when the time is over; only when it is ready is
anything scaled down.  So the tenant comes back although this command is killed, this machine is lost, or the API
server does not respond for a while.  With a COMMAND the tenant is restored as soon as that ends.

A workload gets the replicas that it had.  One that was scaled meanwhile keeps what it has, and that is reported.
The Job may read and set the scale of these workloads and nothing else.  It runs in the image `fetch` of the lock.

Without TENANT: which tenants are stood down.  The cluster is that of --context; by default the one that
terraform/stacks/homelab was applied to.  A controller that enforces the replicas of a Git repository must be paused
first.

examples:
  corral stand-down immich-ml --for 30m
  corral stand-down immich-ml --for 2h -- corral bench qwen3-8b
  corral stand-down immich-ml --end             restore it now
  corral stand-down                             which tenants are stood down, by whom, until when
"""

from __future__ import annotations

import argparse
import re
import shlex
import shutil
import subprocess
import time
from typing import TYPE_CHECKING

from corral import output
from corral.cli import options
from corral.errors import ExitCode, Refused

if TYPE_CHECKING:
    from corral.cluster.client import Cluster
    from corral.lock.lock import Lock
    from corral.stand_down.lifecycle import StandDown
    from corral.stand_down.workloads import Tenant, Workload

_UNITS_S = {"s": 1, "m": 60, "h": 3600}
_LONGEST_S = 24 * 3600
_GRACE_S = 10.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "corral stand-down [TENANT] [--for TIME | --end] [options] [-- COMMAND ...]"
    options.add(parser, "--catalog", "--json")
    parser.add_argument("tenant", nargs="?", metavar="TENANT", help="its name in the card's file")
    way = parser.add_mutually_exclusive_group()
    way.add_argument(
        "--for", dest="seconds", type=_duration, default=1800, metavar="TIME", help="90s, 30m or 2h (default: 30m)"
    )
    way.add_argument("--end", action="store_true", help="restore it now")
    options.add_cluster(parser)


def run(args: argparse.Namespace) -> int:
    from corral.cluster.client import connect
    from corral.lock import lock as locks

    target = options.cluster(args) or options.applied()
    if target is None:
        raise Refused(
            "A stand-down needs a cluster: only there is known what a tenant runs as.",
            next_step="Name one with: --context NAME",
        )
    if args.own_command and (args.tenant is None or args.end):
        raise Refused("A command needs a tenant that is stood down for it.", next_step="corral stand-down --help")
    if args.own_command and shutil.which(args.own_command[0]) is None:
        raise Refused(f"There is no program {args.own_command[0]!r}.", next_step="corral stand-down --help")
    lock = locks.require(options.catalog_dir(args, target))
    tenants = _tenants(lock)
    if args.tenant is not None and args.tenant not in tenants:
        raise Refused(_unknown(lock, args.tenant, tenants), next_step="corral stand-down")
    cluster = connect(target.kubeconfig, target.context)
    if args.tenant is None:
        return _list(cluster, tenants, as_json=args.json)
    tenant = tenants[args.tenant]
    if args.end:
        return _end(cluster, tenant, as_json=args.json)
    return _stand_down(cluster, tenant, lock.images["fetch"], args)


def _stand_down(cluster: Cluster, tenant: Tenant, image: str, args: argparse.Namespace) -> int:
    from corral.stand_down import lifecycle

    found = lifecycle.begin(cluster, tenant, args.seconds, image, output.info)
    output.info(f"{tenant.name} is stood down; the Job restores it at {_clock(found.until)}.")
    if not args.own_command:
        if args.json:
            output.data_json(lifecycle.as_json(found))
        else:
            output.info(f"  → to restore it before: corral stand-down {tenant.name} --end")
        return ExitCode.OK
    try:
        code = _run(args.own_command, until=found.until or 0.0)
    finally:
        restored = _end(cluster, tenant, as_json=False)
    if code:
        output.info(f"{shlex.join(args.own_command)} ended with exit code {code}.")
    return ExitCode.FAILED if code or restored else ExitCode.OK


def _run(command: list[str], *, until: float) -> int:
    """The exit code of *command*, which is ended when the time is over; the tenant needs its memory then."""
    with subprocess.Popen(command) as process:
        try:
            return process.wait(timeout=max(0.0, until - _GRACE_S - time.time()))
        except subprocess.TimeoutExpired:
            output.warn(f"The time is over: ending {shlex.join(command)}. A longer --for gives it more.")
            process.terminate()
            try:
                return process.wait(_GRACE_S) or 1
            except subprocess.TimeoutExpired:
                process.kill()
                return process.wait() or 1
        except KeyboardInterrupt:
            return process.wait()  # the terminal has sent it the same signal


def _end(cluster: Cluster, tenant: Tenant, *, as_json: bool) -> int:
    """Restore *tenant*; 1 where a workload keeps what it has."""
    from corral.stand_down import lifecycle

    restored = lifecycle.end(cluster, tenant)
    if as_json:
        output.data_json(
            [{"kind": one.kind, "name": one.name, "replicas": one.replicas, "kept": why} for one, why in restored]
        )
    for one, why in restored:
        output.info(f"{tenant.name}: {one}: {why or f'{one.replicas} replicas again'}")
    return ExitCode.FAILED if any(why for _, why in restored) else ExitCode.OK


def _list(cluster: Cluster, tenants: dict[str, Tenant], *, as_json: bool) -> int:
    from corral.stand_down import lifecycle

    found = [one for tenant in tenants.values() if (one := lifecycle.read(cluster, tenant))]
    if as_json:
        output.data_json([lifecycle.as_json(one) for one in found])
    elif found:
        rows = [(one.tenant, _clock(one.until), one.holder, _replicas(one)) for one in found]
        output.table(("TENANT", "UNTIL", "BY", "RESTORED TO"), rows)
    else:
        output.info("No tenant is stood down.")
    return ExitCode.OK


def _replicas(found: StandDown) -> str:
    def shown(one: Workload) -> str:
        return f"{one}: {one.replicas}"

    return ", ".join(map(shown, found.workloads))


def _clock(until: float | None) -> str:
    return time.strftime("%H:%M:%S", time.localtime(until)) if until else "?"


def _tenants(lock: Lock) -> dict[str, Tenant]:
    """The tenants whose pods the cards name, by name."""
    from corral.stand_down.workloads import Tenant

    return {
        name: Tenant(name, one.namespace, one.selector)
        for card in lock.cards.values()
        for name, one in sorted(card.tenants.items())
        if one.namespace and one.selector
    }


def _unknown(lock: Lock, name: str, tenants: dict[str, Tenant]) -> str:
    if any(name in card.tenants for card in lock.cards.values()):
        return f"Tenant {name} has no namespace and selector in its card's file, so its pods are not known."
    return f"No card has a tenant {name}; those that can be stood down: {', '.join(tenants) or 'none'}."


def _duration(text: str) -> int:
    found = re.fullmatch(r"([1-9]\d{0,5})([smh])", text)
    seconds = int(found[1]) * _UNITS_S[found[2]] if found else 0
    if not 20 <= seconds <= _LONGEST_S:
        raise argparse.ArgumentTypeError(f"{text!r} is no time from 20s to 24h: 90s, 30m or 2h")
    return seconds
