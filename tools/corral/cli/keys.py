"""Give the clients of the catalog their keys for the front door, replace them, take them away.

A key is printed once, when it is made; only its sha256 is kept.  To replace a key: `rotate` prints a second one, both
are valid while the programs get it, and `revoke NAME --old` ends that.  A stack that runs with keys takes every change
over at once.

`operator` is the operator's own key, which may also load, unload and read logs.  corral sends it with its own requests:
`corral up` makes it where keys are required, and it can only be replaced.  The keys of the local stack are in keys/ of
CORRAL_STATE.

examples:
  corral keys add photos                    prints the key: put it where that program reads its secrets
  corral keys rotate photos                 prints a second key; the first stays valid
  corral keys revoke photos --old           when every program has the second one
  corral keys revoke photos                 none is valid any more
  corral keys list --json | jq -r '.clients[] | select(.keys == 0) | .name'
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any, NamedTuple

from corral import keys, output, paths
from corral.catalog import catalog
from corral.catalog.intent import Client
from corral.cli import options
from corral.engine import stack
from corral.errors import Refused
from corral.keys import OPERATOR, KeyStore, LocalKeys


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=("add", "rotate", "revoke", "list"), help="what to do")
    parser.add_argument("name", nargs="?", metavar="NAME", help="a client of the catalog, or operator")
    parser.add_argument("--old", action="store_true", help="revoke: all keys of NAME but the newest")
    options.add(parser, "--catalog", "--json")


def run(args: argparse.Namespace) -> None:
    if (args.name is None) != (args.action == "list"):
        what = "lists every client" if args.name else "needs the name of a client"
        raise Refused(f"`corral keys {args.action}` {what}.", next_step="corral keys list")
    if args.old and args.action != "revoke":
        raise Refused(f"--old is for revoke, not for {args.action}.", next_step="corral keys --help")
    store = LocalKeys(paths.state_dir())
    match args.action:
        case "list":
            _list(store, _clients(args), as_json=args.json)
        case "revoke":
            _revoke(store, args)
        case _:
            _make(store, args)


def _make(store: KeyStore, args: argparse.Namespace) -> None:
    clients = _clients(args)
    if args.name not in (OPERATOR, *clients):
        known = f"it has: {', '.join(clients)}" if clients else "it has none"
        raise Refused(f"The catalog has no client {args.name}; {known}.", next_step="Add it to clients.yaml first")
    key = (keys.add if args.action == "add" else keys.rotate)(store, args.name)
    if args.json:
        output.data_json({"name": args.name, "key": key})
        return
    output.data(key)
    output.info("A request has it as: Authorization: Bearer KEY. It is not shown again.")
    if args.action == "rotate":
        output.info(f"The old key stays valid until: corral keys revoke {args.name} --old")


def _revoke(store: KeyStore, args: argparse.Namespace) -> None:
    keys.revoke(store, args.name, only_old=args.old)
    if args.json:
        output.data_json({"name": args.name, "keys": len(store.read().of.get(args.name, ()))})
    else:
        output.info(f"{'The old key' if args.old else 'Every key'} of {args.name} is invalid now.")


def _list(store: KeyStore, clients: Mapping[str, Client], *, as_json: bool) -> None:
    present = {name: len(hashes) for name, hashes in store.read().of.items()}
    found = [_Row(name, present.get(name, 0), clients.get(name)) for name in sorted({*clients, *present} - {OPERATOR})]
    operator = present.get(OPERATOR, 0)
    document = {"operator": {"keys": operator}, "clients": [one.as_json() for one in found]}
    rows = [(OPERATOR, str(operator), "all", "any number", ""), *(one.cells() for one in found)]
    output.result(document, ("client", "keys", "models", "requests", "next"), rows, as_json=as_json)


class _Row(NamedTuple):
    """A client of the catalog, or one that only has keys."""

    name: str
    keys: int
    client: Client | None

    def as_json(self) -> dict[str, Any]:
        permits = self.client.model_dump(mode="json", exclude={"description"}) if self.client else None
        return {"name": self.name, "keys": self.keys, "permits": permits}

    def cells(self) -> tuple[str, str, str, str, str]:
        if self.client is None:
            return self.name, str(self.keys), "none", "0", f"it is not in the catalog: corral keys revoke {self.name}"
        step = {0: f"corral keys add {self.name}", 1: ""}.get(self.keys, f"corral keys revoke {self.name} --old")
        return self.name, str(self.keys), ", ".join(self.client.models or ["all"]), str(self.client.requests), step


def _clients(args: argparse.Namespace) -> Mapping[str, Client]:
    return catalog.load(options.catalog_dir(args, stack.running(paths.state_dir()))).clients
