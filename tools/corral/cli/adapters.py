"""Which version of an adapter serves, and another one in its place, while the model stays loaded.

An adapter with a name in a model's file answers as MODEL:NAME, in the process of its model; several files of one name
are its versions, of which one serves.  `swap` has another one serve, `rollback` the one that served before.  Both are a
change of a name in the front door: no engine ends, nothing is loaded, and what is under way ends with the version that
it began with.  The choice outlives restarts, and a lock with further versions.

Every version that is locked is in the engine's memory, and in the seat.  A version that was added since the engine
started is not: it needs `corral lock` and `corral up` (in a cluster `corral apply`), and that restarts the model.
Requests may name any version, as MODEL:NAME@VERSION: ask it before it serves.

examples:
  corral adapters list
  corral adapters swap qwen3-8b:sql v2          from now on MODEL:NAME is this version
  corral adapters rollback qwen3-8b:sql
  corral adapters swap qwen3-8b:sql v2 --context homelab
  corral adapters list --json | jq -r '.adapters[] | [.adapter, .version] | @tsv'
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from corral import output, paths, versions
from corral.cli import endpoints, options
from corral.cli.endpoints import ServedEndpoint
from corral.engine.stack_folder import StackFolder
from corral.errors import Refused
from corral.lock.lock import LockEntry
from corral.smoke import adapters
from corral.smoke.endpoint import Endpoint
from corral.versions import LocalVersions, VersionStore

if TYPE_CHECKING:
    from corral.cluster.target import ClusterTarget


class _Adapter(NamedTuple):
    """An adapter as the lock has it, and as the door does; None: no door was asked."""

    locked: tuple[str, ...]
    served: tuple[str, ...] | None
    version: str | None  # that the door reports


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=("list", "swap", "rollback"), help="what to do")
    parser.add_argument("adapter", nargs="?", metavar="MODEL:NAME", help="an adapter of the catalog")
    parser.add_argument("version", nargs="?", metavar="VERSION", help="swap: the one to serve (of two, the other)")
    options.add(parser, "--catalog", "--json")
    options.add_cluster(parser)
    parser.set_defaults(endpoint=None)


def run(args: argparse.Namespace) -> None:
    if (args.adapter is None) != (args.action == "list"):
        what = "lists every adapter" if args.adapter else "needs the name of an adapter"
        raise Refused(f"`corral adapters {args.action}` {what}.", next_step="corral adapters list")
    if args.version and args.action != "swap":
        raise Refused(f"A version is for swap, not for {args.action}.", next_step="corral adapters --help")
    with _opened(args) as (store, door, locked):
        if args.action == "list":
            _list(store, _adapters(locked, door), args)
        else:
            _change(store, door, locked, args)


class _Door(NamedTuple):
    """The front door that serves, and the command that restarts what is behind it."""

    place: ServedEndpoint
    restart: str

    def api(self) -> Endpoint:
        return Endpoint(self.place.root, api_key=self.place.api_key, trust=self.place.trust)

    async def adapters(self) -> dict[str, adapters.Served]:
        async with self.api() as api:
            return await adapters.listed(api)


@contextmanager
def _opened(args: argparse.Namespace) -> Iterator[tuple[VersionStore, _Door | None, Mapping[str, LockEntry]]]:
    """Where the choices are, the door that serves, if any does, and the models of the lock."""
    local, target = endpoints.named(args)
    _, lock = options.locked_catalog(options.catalog_dir(args, local or target))
    if local is None and target is None:
        yield store_of(None), None, lock.models
        return
    with endpoints.opened(args, local, target, command="adapters") as place:
        yield store_of(target), _Door(place, local.start_command() if local else "corral apply"), lock.models


def store_of(target: ClusterTarget | None) -> VersionStore:
    """Where the choices of *target* are; None: of the local stack."""
    if target is None:
        return LocalVersions(StackFolder(paths.state_dir()).versions)
    from corral.cluster import client
    from corral.cluster.versions import ClusterVersions

    return ClusterVersions(client.connect(target.kubeconfig, target.context), target.namespace)


def _adapters(locked: Mapping[str, LockEntry], door: _Door | None) -> dict[str, _Adapter]:
    known = {
        f"{model}:{name}": entry.intent.versions_of(name)
        for model, entry in locked.items()
        for name in entry.intent.adapter_names
    }
    served = asyncio.run(door.adapters()) if door else None
    found = {}
    for name in sorted({*known, *(served or ())}):
        one = (served or {}).get(name, adapters.Served(None, ()))
        found[name] = _Adapter(known.get(name, ()), None if served is None else one.versions, one.version)
    return found


def _list(store: VersionStore, found: Mapping[str, _Adapter], args: argparse.Namespace) -> None:
    chosen = store.read()
    rows, document = [], []
    for name, one in found.items():
        usable = one.locked if one.served is None else one.served
        version = one.version or (versions.serving(chosen, name, usable) if usable and one.served is None else None)
        missing = [each for each in one.locked if each not in usable]
        model, earlier = name.partition(":")[0], versions.before(chosen, name, usable)
        document.append(
            {
                "adapter": name,
                "model": model,
                "version": version,
                "versions": list(usable),
                "before": earlier,
                "needs_restart": missing,
            }
        )
        step = f"{', '.join(missing)}: locked, and not loaded before a restart" if missing else ""
        rows.append((name, version or "none", ", ".join(usable), earlier or "", step))
    columns = ("adapter", "serves", "versions", "before", "next")
    output.result({"adapters": document}, columns, rows, as_json=args.json)


def _change(store: VersionStore, door: _Door | None, locked: Mapping[str, LockEntry], args: argparse.Namespace) -> None:
    found = _adapters(locked, door)
    name: str = args.adapter
    if name not in found:
        known = f"There are: {', '.join(found)}." if found else "No model has one with a name: see docs/models.md."
        raise Refused(f"There is no adapter {name}. {known}", next_step="corral adapters list")
    one = found[name]
    usable = one.locked if one.served is None else one.served
    if not usable:
        message = f"{name} is in the lock, and the stack that runs does not have it: its file is not loaded."
        raise Refused(message, next_step=door.restart if door else "corral up --detach")
    present = versions.serving(store.read(), name, usable)
    version: str = args.version or (_other(name, usable, present) if args.action == "swap" else "")

    def change() -> str:
        if args.action == "rollback":
            return versions.rollback(store, name, usable)[1]
        versions.swap(store, name, usable, version)
        return version

    if args.action == "swap":
        _require_loaded(name, version, one, usable, door)
    version, seconds = asyncio.run(_changed(door, name, change)) if door else (change(), None)
    if args.json:
        shown = None if seconds is None else round(seconds, 3)
        output.data_json({"adapter": name, "version": version, "before": present, "seconds": shown})
    elif seconds is not None:
        output.info(f"{name} is served by {version}, after {present}; {seconds:.2f} s, and no model was loaded.")
    else:
        output.info(f"{name} is served by {version}, after {present}, when the stack runs: corral up --detach")


async def _changed(door: _Door, name: str, change: Callable[[], str]) -> tuple[str, float]:
    async with door.api() as api:
        return await adapters.changed(api, name, change)


def _other(name: str, usable: Sequence[str], present: str) -> str:
    others = [one for one in usable if one != present]
    if len(others) != 1:
        known = f"there are {', '.join(others)} beside {present}" if others else f"there is {present} alone"
        raise Refused(f"Which version of {name}? {known}.", next_step=f"corral adapters swap {name} VERSION")
    return others[0]


def _require_loaded(name: str, version: str, one: _Adapter, usable: Sequence[str], door: _Door | None) -> None:
    if version in usable:
        return
    if version in one.locked:
        message = f"{name}@{version} is locked, and its file is not loaded: the engine opens adapters at its start."
        raise Refused(message, next_step=f"Restart its model with: {door.restart if door else 'corral up --detach'}")
    message = f"{name} has no version {version}; it has {', '.join(usable)}."
    raise Refused(message, next_step="corral adapters list; to add one: the model's file, then corral lock")
