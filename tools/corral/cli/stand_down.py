"""Take a tenant off the card for a time: its Deployments and StatefulSets get 0 replicas, and are always restored.

A Job in the tenant's namespace does both, so the tenant comes back although this command is killed, this machine is
lost, or the API server does not respond for a while.  With a COMMAND the tenant is restored as soon as that ends; a
COMMAND that still runs when the time is over is ended.

A workload gets the replicas that it had.  One that was scaled meanwhile keeps what it has; that is reported, and exit
code 1.  The Job may read and set the scale of these workloads and nothing else.  It runs in the image `fetch` of the
lock.

Without TENANT: which tenants are stood down.  The cluster is that of --context; by default the one that
terraform/stacks/homelab was applied to.  A controller that enforces the replicas of a Git repository must be paused
first.

examples:
  corral stand-down immich-ml --for 30m
  corral stand-down immich-ml --for 2h -- corral smoke qwen3-8b
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
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

import psutil

from corral import output
from corral.cli import interrupts, options
from corral.errors import CorralError, ExitCode, Refused

if TYPE_CHECKING:
    from corral.cluster.client import Cluster
    from corral.lock.lock import Lock
    from corral.stand_down.lifecycle import Restored, StandDown
    from corral.stand_down.workloads import Tenant, Workload

_UNITS_S = {"s": 1, "m": 60, "h": 3600}
_LONGEST_S = 24 * 3600
_GRACE_S = 10.0
_MARGIN_S = 40.0  # for the command to end: its own grace, and an API server that answers slowly
_LATE_S = 30.0
_LOOK_S = 2.0
_HELP = "corral stand-down --help"


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
    _require_sense(args)
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


def _require_sense(args: argparse.Namespace) -> None:
    """Raise Refused where the words of the command have no meaning together."""
    command = args.own_command
    if command is None:
        return
    if args.tenant is None or args.end:
        raise Refused("A command needs a tenant that is stood down for it.", next_step=_HELP)
    if args.json:
        raise Refused("With a command, stdout is the command's: --json has no place there.", next_step=_HELP)
    if not command or shutil.which(command[0]) is None:
        raise Refused(f"There is no program {command[0]!r}." if command else "No command follows --.", next_step=_HELP)


@interrupts.first_only("The tenant is being restored first.")
def _stand_down(cluster: Cluster, tenant: Tenant, image: str, args: argparse.Namespace) -> int:
    from corral.stand_down import lifecycle

    def report(text: str) -> None:
        output.info(options.for_cluster(text, args))

    found = lifecycle.begin(cluster, tenant, args.seconds, image, report)
    if args.own_command is None:
        if args.json:
            output.data_json(lifecycle.as_json(found))
        output.info(f"{tenant.name} is stood down; the Job restores it at {_clock(found.until)}.")
        report(f"  → To restore it before: corral stand-down {tenant.name} --end")
        return ExitCode.OK
    code, is_restored = 1, False
    try:
        output.info(f"{tenant.name} is stood down until {_clock(found.until)} at the latest.")
        limit = (found.until or 0.0) - min(_MARGIN_S, args.seconds / 2)
        code = _run(args.own_command, limit, partial(lifecycle.is_on, cluster, tenant, found.uid))
    finally:
        try:
            restored = lifecycle.end(cluster, tenant, uid=found.uid)
            _report(tenant, restored)
            is_restored = restored is not None and not any(why for _, why in restored)
        except CorralError as error:
            report(lifecycle.unrestored(tenant, error))
    if code:
        output.info(f"{shlex.join(args.own_command)} ended with exit code {code}.")
    return ExitCode.OK if is_restored and not code else ExitCode.FAILED


def _run(command: list[str], until: float, is_on: Callable[[], bool]) -> int:
    """The exit code of *command*, which is ended when the time, or the stand-down, is over: the memory is another's."""
    with subprocess.Popen(command) as process:
        try:
            while time.time() < until and is_on():
                with suppress(subprocess.TimeoutExpired):
                    return process.wait(_LOOK_S)
            output.warn(f"The time is over: ending {shlex.join(command)}.")
        except BaseException:  # the terminal has sent it the same signal
            with suppress(subprocess.TimeoutExpired):
                process.wait(_GRACE_S / 2)
            raise
        finally:
            _end_all(process)
    return process.returncode or 1


def _end_all(process: subprocess.Popen[bytes]) -> None:
    """End *process* and what it has started."""
    if process.poll() is not None:
        return
    others = psutil.Process(process.pid).children(recursive=True)
    process.terminate()
    for other in others:
        with suppress(psutil.NoSuchProcess):
            other.terminate()
    _, left = psutil.wait_procs(others, timeout=_GRACE_S / 2)
    for other in left:
        with suppress(psutil.NoSuchProcess):
            other.kill()
    with suppress(subprocess.TimeoutExpired):
        process.wait(_GRACE_S / 2)
    process.kill()


def _end(cluster: Cluster, tenant: Tenant, *, as_json: bool) -> int:
    """Restore *tenant*; 1 where a workload keeps what it has."""
    from corral.stand_down import lifecycle

    restored = lifecycle.end(cluster, tenant) or ()
    if as_json:
        output.data_json(
            [{"kind": one.kind, "name": one.name, "replicas": one.replicas, "kept": why} for one, why in restored]
        )
    _report(tenant, restored)
    return ExitCode.FAILED if any(why for _, why in restored) else ExitCode.OK


def _report(tenant: Tenant, restored: Restored | None) -> None:
    if restored is None:
        output.info(f"{tenant.name}: the stand-down was over before the command.")
    for one, why in restored or ():
        output.info(f"{tenant.name}: {one}: {why or f'{one.replicas} replicas again'}")


def _list(cluster: Cluster, tenants: dict[str, Tenant], *, as_json: bool) -> int:
    from corral.stand_down import lifecycle

    found = [one for tenant in tenants.values() if (one := lifecycle.read(cluster, tenant))]
    if as_json:
        output.data_json([lifecycle.as_json(one) for one in found])
    elif found:
        rows = [(one.tenant, _when(one), one.holder, _replicas(one)) for one in found]
        output.table(("TENANT", "UNTIL", "BY", "RESTORED TO"), rows)
    else:
        output.info("No tenant is stood down.")
    return ExitCode.OK


def _replicas(found: StandDown) -> str:
    def shown(one: Workload) -> str:
        return f"{one}: {one.replicas}"

    return ", ".join(map(shown, found.workloads))


def _when(found: StandDown) -> str:
    overdue = found.until is not None and found.until + _LATE_S < time.time()
    return f"{_clock(found.until)}{', overdue: --end restores it' if overdue else ''}"


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
