"""Options that several commands share, each defined once, and what they name."""

from __future__ import annotations

import argparse
import math
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from corral import paths

if TYPE_CHECKING:  # `corral --help` imports this module: keep it light
    from corral.agent import lock_file
    from corral.agent.store import Store
    from corral.catalog.catalog import Catalog
    from corral.cluster.target import ClusterTarget
    from corral.engine.stack import Running
    from corral.lock.lock import Lock
    from corral.terraform.gateway_list import GatewayList

_T = TypeVar("_T", int, float)
IN_CLUSTER = "http://llama-swap.llama-cpp.svc.cluster.local:8080/v1"
"""The endpoint of the Service in the cluster, in the stack's usual namespace."""
_SHARED: Mapping[str, Mapping[str, Any]] = {
    "models": {"nargs": "*", "metavar": "MODEL", "help": "ids of models (default: all)"},
    "--catalog": {"metavar": "DIR", "type": Path, "help": "the catalog (default: terraform/catalog, here or above)"},
    "--store": {"metavar": "DIR", "type": Path, "help": "the model store (default: store/ in CORRAL_STATE)"},
    "--json": {"action": "store_true", "help": "print JSON to stdout instead of a table"},
}
_OF_A_CLUSTER = re.compile(
    r"\bcorral (?:keys (?:list|(?:add|rotate|revoke) [\w.-]*\w(?: --old)?)|stand-down(?: [\w-]+ --(?:end|for \w+))?)"
    r"(?=[;,.]?(?:\s(?!--)|$))"
)
_CLUSTER = ("context", "namespace", "kubeconfig")
_OF_A_CATALOG = re.compile(
    r"\bcorral (add|lock|remove|seat|up --detach|validate)\b(?! --(?:what-if|help))(?![^\n;&]*--catalog)"
)


def add(parser: argparse.ArgumentParser, *names: str) -> None:
    """Declare the shared arguments *names*: ``models``, ``--catalog``, ``--store``, ``--json``."""
    for name in names:
        parser.add_argument(name, **_SHARED[name])


_SERVED = "where llama-swap is (default: the homelab stack's, if it means that context; else llama-cpp)"


def add_cluster(parser: argparse.ArgumentParser, *, namespace: str = _SERVED) -> None:
    """``--context NAME``, ``--namespace NS``, ``--kubeconfig FILE``; *namespace* says what the second one is."""
    group = parser.add_argument_group("in a cluster, instead of the local stack")
    group.add_argument("--context", metavar="NAME", type=name, help="a context of the kubeconfig")
    group.add_argument("--namespace", metavar="NS", type=name, help=namespace)
    kubeconfig = "the kubeconfig (default: the applied stack's, else KUBECONFIG, else ~/.kube/config)"
    group.add_argument("--kubeconfig", metavar="FILE", type=Path, help=kubeconfig)


def add_gateway(parser: argparse.ArgumentParser) -> None:
    """``--api-base URL``, ``--load-seconds N``, ``--answer-seconds N``: what LiteLLM is given with the models."""
    parser.add_argument(
        "--api-base", metavar="URL", default=IN_CLUSTER, help="where LiteLLM reaches llama-swap (default: %(default)s)"
    )
    for what, meaning in (("load", "the cluster's timeouts.load_seconds, 300"), ("answer", "llama-server's, 3600")):
        parser.add_argument(
            f"--{what}-seconds",
            metavar="N",
            type=whole_number(1, 86400),
            help=f"LiteLLM waits for a load and an answer (default: {meaning})",
        )


def gateway_list(args: argparse.Namespace, catalog: Path, *, api_key_env: str | None = None) -> GatewayList:
    """The models of the lock of *catalog* for a LiteLLM, with the options of ``add_gateway``.

    Raises:
        CorralError: the lock is missing or stale, or Terraform does not render it.
    """
    from corral.terraform import gateway_list as lists

    locked_catalog(catalog)
    limits = {"load_seconds": args.load_seconds, "answer_seconds": args.answer_seconds}
    return lists.render(catalog, args.api_base, api_key_env=api_key_env, **limits)


def whole_number(least: int, most: int | None = None) -> Callable[[str], int]:
    """The type of an option that takes a number from *least* to *most*."""

    def parse(text: str) -> int:
        if not text.isdecimal() or int(text) < least or (most and int(text) > most):
            limits = f"from {least} to {most}" if most else f"of {least} or more"
            raise argparse.ArgumentTypeError(f"{text!r} is no whole number {limits}")
        return int(text)

    return parse


def numbers(kind: Callable[[str], _T], least: float, most: float) -> Callable[[str], tuple[_T, ...]]:
    """The type of an option that takes several numbers from *least* to *most*, with commas between them."""

    def parse(text: str) -> tuple[_T, ...]:
        try:
            found = tuple(kind(part) for part in text.split(","))
        except ValueError:
            found = ()
        if not found or not all(math.isfinite(one) and least <= one <= most for one in found):
            raise argparse.ArgumentTypeError(f"{text!r} is no list of numbers from {least:g} to {most:g}, as 1,10")
        return found

    return parse


def cluster(args: argparse.Namespace) -> ClusterTarget | None:
    """The cluster that *args* name; None when they name none."""
    if args.context is None and args.namespace is None and args.kubeconfig is None:
        return None
    from corral.terraform import target

    return target.resolve_target(args.kubeconfig, args.context, args.namespace)


def applied() -> ClusterTarget | None:
    """The cluster that the homelab's stack was applied to; None when it never was."""
    from corral.terraform import target

    return target.applied_target()


def target_words(target: ClusterTarget) -> list[str]:
    """The options that name *target* and its catalog."""
    return _words(target, *_CLUSTER, "catalog")


def again(args: argparse.Namespace, *command: str) -> str:
    """``corral`` *command* for the endpoint, cluster, catalog and store that *args* name: to be typed as it is."""
    return shlex.join(["corral", *command, *_words(args, "endpoint", *_CLUSTER, "catalog", "store")])


def for_catalog(step: str, args: argparse.Namespace) -> str:
    """The next step *step* with the catalog that *args* name in each of its commands of a catalog that names none."""
    if getattr(args, "catalog", None) is None:
        return step
    return _OF_A_CATALOG.sub(lambda found: shlex.join([*found[0].split(), "--catalog", str(args.catalog)]), step)


def for_cluster(step: str, args: argparse.Namespace) -> str:
    """The next step *step* with the cluster that *args* name in each command of a cluster alone that names none."""
    words = shlex.join(_words(args, *_CLUSTER))
    return _OF_A_CLUSTER.sub(rf"\g<0> {words}", step) if words else step


def catalog_dir(args: argparse.Namespace, served: Running | ClusterTarget | None = None) -> Path:
    """The catalog folder that *args* name, else that of *served*, else the nearest one.

    Raises:
        Refused: there is none.
    """
    return catalog_of(args.catalog, served)


def catalog_of(chosen: Path | None, served: Running | ClusterTarget | None) -> Path:
    """The same of the option's value."""
    return chosen.absolute() if chosen else (served and served.catalog) or paths.find_catalog()


def locked_catalog(directory: Path) -> tuple[Catalog, Lock]:
    """The catalog in *directory*, and its lock, which is fresh.

    Raises:
        CatalogInvalid, LockStale: the catalog breaks a rule, or the lock is missing or not of this catalog.
    """
    from corral.catalog import catalog
    from corral.lock import lock

    found = catalog.load(directory)
    return found, lock.require_fresh(found)


def require_chats(
    args: argparse.Namespace, served: Running | ClusterTarget | None, models: Sequence[str], command: str
) -> None:
    """Refuse *command*, which sends chats, where the lock of what is *served* has a task without them for a model.

    Raises:
        Refused: it has; an endpoint elsewhere, and a model that is not in the lock, are not known.
    """
    from corral.catalog import tasks
    from corral.lock import lock as locks

    found = locks.read(catalog_dir(args, served) / "lock.json") if served else None
    if found:
        tasks.require_no_other({name: entry.intent for name, entry in found.models.items()}, models, command)


def store_dir(args: argparse.Namespace, served: Running | None = None) -> Path:
    """The store that *args* name, else that of *served*, else the state folder's own."""
    chosen: Path | None = args.store
    return chosen.absolute() if chosen else (served and served.store) or paths.default_store()


def lock_and_store(args: argparse.Namespace, served: Running | None = None) -> tuple[lock_file.Lock, Store]:
    """The lock of ``catalog_dir``, as the agent reads it, and the store of ``store_dir``.

    Raises:
        Refused: there is no lock, or it cannot be read.
    """
    from corral.agent.lock_file import read_lock
    from corral.agent.store import Store

    return read_lock(catalog_dir(args, served) / "lock.json"), Store(store_dir(args, served))


def name(text: str) -> str:
    """The type of an option that takes a name, which is not empty."""
    if not text.strip():
        raise argparse.ArgumentTypeError("it is empty: it must be a name")
    return text


def _words(source: object, *names: str) -> list[str]:
    found = ((f"--{name}", getattr(source, name, None)) for name in names)
    values = ((option, one) for option, value in found for one in (value if isinstance(value, list) else [value]))
    return [word for option, value in values if value for word in (option, str(value))]
