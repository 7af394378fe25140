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
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any, NamedTuple

import httpx2

from corral import output, paths, versions
from corral.cli import endpoints, options
from corral.engine.stack import Running
from corral.engine.stack_folder import StackFolder
from corral.errors import CannotRun, Refused
from corral.lock.lock import LockEntry
from corral.versions import LocalVersions, VersionStore

_TAKES_OVER_S = 120.0  # a kubelet that was not woken looks after a minute or two
_POLL_S = 0.1


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
    """The front door that serves, and how it is reached."""

    client: httpx2.Client
    restart: str

    def adapters(self) -> dict[str, Mapping[str, Any]]:
        """What it reports of each adapter.

        Raises:
            CannotRun: it does not answer as the guard does.
        """
        try:
            answer = self.client.get("/v1/models")
            if answer.status_code == HTTPStatus.OK:
                return {str(one["id"]): one for one in answer.json()["data"] if one.get("parent")}
            problem = f"HTTP {answer.status_code}: {answer.text[:200].strip()}"
        except httpx2.HTTPError as error:
            problem = str(error) or type(error).__name__
        except (ValueError, KeyError, TypeError, AttributeError):
            problem = "its list of models has another form"
        message = f"The front door at {self.client.base_url} does not report its adapters: {problem}"
        raise CannotRun(message, next_step="corral status")


@contextmanager
def _opened(args: argparse.Namespace) -> Iterator[tuple[VersionStore, _Door | None, Mapping[str, LockEntry]]]:
    """Where the choices are, the door that serves, if any does, and the models of the lock."""
    local, target = endpoints.named(args)
    _, lock = options.locked_catalog(options.catalog_dir(args, local or target))
    if local is None and target is None:
        yield LocalVersions(StackFolder(paths.state_dir()).versions), None, lock.models
        return
    with endpoints.opened(args, local, target, command="adapters") as place:
        store: VersionStore = LocalVersions(StackFolder(paths.state_dir()).versions)
        if target:
            from corral.cluster import client
            from corral.cluster.versions import ClusterVersions

            store = ClusterVersions(client.connect(target.kubeconfig, target.context), target.namespace)
        headers = {"Authorization": f"Bearer {place.api_key}"} if place.api_key else {}
        trust = place.trust if place.trust is not None else True
        with httpx2.Client(base_url=place.root, headers=headers, verify=trust, timeout=10.0, trust_env=False) as http:
            yield store, _Door(http, _restart(local)), lock.models


def _restart(local: Running | None) -> str:
    return local.start_command() if local else "corral apply"


def _adapters(locked: Mapping[str, LockEntry], door: _Door | None) -> dict[str, _Adapter]:
    known = {
        f"{model}:{name}": entry.intent.versions_of(name)
        for model, entry in locked.items()
        for name in entry.intent.adapter_names
    }
    served = door.adapters() if door else None
    found = {}
    for name in sorted({*known, *(served or ())}):
        one = (served or {}).get(name, {})
        present = tuple(map(str, one.get("versions", ()))) if served is not None else None
        found[name] = _Adapter(known.get(name, ()), present, one.get("version"))
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
    began = time.monotonic()
    if args.action == "swap":
        present = versions.serving(store.read(), name, usable)
        version = args.version or _other(name, usable, present)
        _require_loaded(name, version, one, usable, door)
        before = versions.swap(store, name, usable, version)
    else:
        before, version = versions.rollback(store, name, usable)
    if door:
        _wait(door, name, version)
    seconds = round(time.monotonic() - began, 3)
    if args.json:
        output.data_json({"adapter": name, "version": version, "before": before, "seconds": seconds if door else None})
    elif door:
        output.info(f"{name} is served by {version}, after {before}; {seconds:.2f} s, and no model was loaded.")
    else:
        output.info(f"{name} is served by {version}, after {before}, when the stack runs: corral up --detach")


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


def _wait(door: _Door, name: str, version: str) -> None:
    """Wait until the door reports *version*; raises CannotRun when it does not."""
    deadline = time.monotonic() + _TAKES_OVER_S
    while door.adapters().get(name, {}).get("version") != version:
        if time.monotonic() > deadline:
            message = f"{version} of {name} was chosen, and the front door does not serve it after {_TAKES_OVER_S:g} s."
            raise CannotRun(message, next_step="corral adapters list")
        time.sleep(_POLL_S)
