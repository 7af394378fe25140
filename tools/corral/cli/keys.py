"""Give the clients of the catalog their keys for the front door, replace them, take them away.

A key is printed once, when it is made; only its sha256 is kept.  To replace a key: `rotate` prints a second one, both
are valid while the programs get it, and `revoke NAME --old` ends that.  A stack that runs with keys takes every change
over at once.

`operator` is the operator's own key, which may also load, unload and read logs, and opens the page of an exporter.
corral sends it with its own requests: `corral up` makes it where keys are required, `corral apply` in a cluster, and it
can only be replaced.  The keys of the local stack are in keys/ of CORRAL_STATE; with --context those in that cluster
are meant, in the Secret corral-keys.  A change of that reaches the pods within two minutes.  `monitor` is the key of a
card's exporter in the cluster, which reads what runs and gets no answer of a model: `corral apply` makes it where there
is none that is valid, and so does `corral keys add operator --context`.  `gateway` is the key with which the stack's
LiteLLM asks the models; the same two commands make it, and its pod reads it at its start.

examples:
  corral keys add photos                    prints the key: put it where that program reads its secrets
  corral keys rotate photos                 prints a second key; the first stays valid
  corral keys revoke photos --old           when every program has the second one
  corral keys revoke photos                 none is valid any more
  corral keys add photos --context homelab
  corral keys list --json | jq -r '.clients[] | select(.keys == 0) | .name'
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from corral import keys, output, paths
from corral.catalog import catalog
from corral.catalog.clients import Client
from corral.cli import options
from corral.engine import stack
from corral.engine.stack import Running
from corral.errors import CannotRun, CorralError, Refused
from corral.keys import GATEWAY, MONITOR, OPERATOR, KeyStore, LocalKeys

if TYPE_CHECKING:
    from corral.cluster.target import ClusterTarget

_OF_PODS = {MONITOR: "an exporter's", GATEWAY: "the gateway's"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=("add", "rotate", "revoke", "list"), help="what to do")
    parser.add_argument("name", nargs="?", metavar="NAME", help="a client of the catalog, or operator")
    parser.add_argument("--old", action="store_true", help="revoke: all keys of NAME but the newest")
    options.add(parser, "--catalog", "--json")
    options.add_cluster(parser)


def run(args: argparse.Namespace) -> None:
    if (args.name is None) != (args.action == "list"):
        what = "lists every client" if args.name else "needs the name of a client"
        raise Refused(f"`corral keys {args.action}` {what}.", next_step="corral keys list")
    if args.old and args.action != "revoke":
        raise Refused(f"--old is for revoke, not for {args.action}.", next_step="corral keys --help")
    store = _store(args)
    match args.action:
        case "list":
            _list(store, args)
        case "revoke":
            _revoke(store, args)
            _share(args)
        case _:
            _make(store, args)
            _share(args)


def _store(args: argparse.Namespace) -> KeyStore:
    """The keys of the cluster that *args* name; of the local stack when they name none."""
    if (target := options.cluster(args)) is None:
        return LocalKeys(paths.state_dir())
    from corral.cluster import client
    from corral.cluster.keys import ClusterKeys

    return ClusterKeys(client.connect(target.kubeconfig, target.context), target.namespace)


def _make(store: KeyStore, args: argparse.Namespace) -> None:
    if args.name in _OF_PODS:
        message = f"The key of {args.name} is {_OF_PODS[args.name]}: it is made where that reads it."
        revoke = options.for_cluster(f"corral keys revoke {args.name}", args)
        raise Refused(message, next_step=f"A new one: {revoke} && corral apply")
    clients = _clients(args)
    if args.name not in (OPERATOR, *clients):
        known = f"it has: {', '.join(clients)}" if clients else "it has none"
        raise Refused(
            f"The catalog has no client {args.name}; {known}.",
            next_step=f"Add it to {_catalog(args) / 'clients.yaml'}, then: {_take_over(args)}",
        )

    def hand_over(key: str) -> None:
        try:
            if args.json:
                output.data_json({"name": args.name, "key": key})
            else:
                output.data(key)
        except BrokenPipeError:  # else it would be a success
            message = "No key was made: the program that reads stdout has ended."
            raise CannotRun(message, next_step="Redirect stdout to another place") from None

    (keys.add if args.action == "add" else keys.rotate)(store, args.name, hand_over)
    if args.json:
        return
    output.info("A request has it as: Authorization: Bearer KEY. It is not shown again.")
    if args.action == "rotate":
        step = options.for_cluster(f"corral keys revoke {args.name} --old", args)
        output.info(f"The old key stays valid until: {step}")


def _revoke(store: KeyStore, args: argparse.Namespace) -> None:
    keys.revoke(store, args.name, only_old=args.old)
    if args.json:
        output.data_json({"name": args.name, "keys": len(store.read().of.get(args.name, ()))})
    else:
        when = "now" if isinstance(store, LocalKeys) else "when the pod has the changed Secret, within two minutes"
        output.info(f"{'The old key' if args.old else 'Every key'} of {args.name} is invalid {when}.")


def _share(args: argparse.Namespace) -> None:
    """Bring a change of the operator's keys in a cluster to its exporters, whose pages they open.

    Raises:
        CorralError: it may not have reached each of them.
    """
    target = options.cluster(args)
    if args.name != OPERATOR or target is None:
        return
    from corral.cluster import client, exporters, gateway

    try:
        cluster = client.connect(target.kubeconfig, target.context)
        exporters.share_operator(cluster, target.namespace)
        gateway.give_keys(cluster, target.namespace)
    except CorralError as error:
        message = f"The front door has the change; an exporter's page or the gateway may not have it. {error.message}"
        raise type(error)(message, next_step="corral apply") from None


def _list(store: KeyStore, args: argparse.Namespace) -> None:
    clients = _clients(args)
    present = {name: len(hashes) for name, hashes in store.read().of.items()}
    found = [
        _Row(name, present.get(name, 0), clients.get(name))
        for name in sorted({*clients, *present} - {OPERATOR, *_OF_PODS})
    ]
    own = {name: present.get(name, 0) for name in (OPERATOR, *_OF_PODS)}
    document = {name: {"keys": number} for name, number in own.items()} | {"clients": [one.as_json() for one in found]}
    rows = [(OPERATOR, str(own[OPERATOR]), "all", "any number", ""), *(one.cells(args) for one in found)]
    for name in (GATEWAY, MONITOR):
        if own[name]:
            rows.insert(1, (name, str(own[name]), "all" if name == GATEWAY else "none", "any number", ""))
    output.result(document, ("client", "keys", "models", "requests", "next"), rows, as_json=args.json)


class _Row(NamedTuple):
    """A client of the catalog, or one that only has keys."""

    name: str
    keys: int
    client: Client | None

    def as_json(self) -> dict[str, Any]:
        permits = self.client.model_dump(mode="json", exclude={"description"}) if self.client else None
        return {"name": self.name, "keys": self.keys, "permits": permits}

    def cells(self, args: argparse.Namespace) -> tuple[str, str, str, str, str]:
        if self.client is None:
            step = options.for_cluster(f"it is not in the catalog: corral keys revoke {self.name}", args)
            return self.name, str(self.keys), "none", "0", step
        step = {0: f"corral keys add {self.name}", 1: ""}.get(self.keys, f"corral keys revoke {self.name} --old")
        step = options.for_cluster(step, args)
        return self.name, str(self.keys), ", ".join(self.client.models or ["all"]), str(self.client.requests), step


def _clients(args: argparse.Namespace) -> Mapping[str, Client]:
    return catalog.load(_catalog(args)).clients


def _catalog(args: argparse.Namespace) -> Path:
    return options.catalog_dir(args, _served(args))


def _served(args: argparse.Namespace) -> Running | ClusterTarget | None:
    return options.cluster(args) or stack.running(paths.state_dir())


def _take_over(args: argparse.Namespace) -> str:
    """The commands after which a changed catalog is in force."""
    served, catalog_words = _served(args), shlex.join(["--catalog", str(_catalog(args))])
    steps = [f"corral lock {catalog_words}"]
    if isinstance(served, Running):
        steps.append(served.start_command())
    elif served:
        steps.append(f"corral apply {catalog_words}")
    return " && ".join(steps)
