"""Options that several commands share, each defined once."""

from __future__ import annotations

import argparse
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from corral import paths

if TYPE_CHECKING:
    from corral.cluster.target import ClusterTarget

_BARE_LOCK = re.compile(r"\bcorral lock\b(?![^\n;&]*--catalog)")


def add_catalog(parser: argparse.ArgumentParser) -> None:
    """``--catalog DIR``."""
    parser.add_argument(
        "--catalog",
        metavar="DIR",
        type=Path,
        help="the catalog folder (default: terraform/catalog, here or in a folder above)",
    )


def add_store(parser: argparse.ArgumentParser) -> None:
    """``--store DIR``."""
    parser.add_argument(
        "--store",
        metavar="DIR",
        type=Path,
        help="the model store (default: store/ in the state folder, see CORRAL_STATE)",
    )


def add_json(parser: argparse.ArgumentParser) -> None:
    """``--json``."""
    parser.add_argument("--json", action="store_true", help="print JSON to stdout instead of a table")


def add_cluster(parser: argparse.ArgumentParser) -> None:
    """``--context NAME``, ``--namespace NS``, ``--kubeconfig FILE``."""
    group = parser.add_argument_group("in a cluster, instead of the local stack")
    group.add_argument("--context", metavar="NAME", type=_name, help="a context of the kubeconfig")
    group.add_argument(
        "--namespace",
        metavar="NS",
        type=_name,
        help="where llama-swap is (default: the homelab stack's, if it means that context; else llama-cpp)",
    )
    group.add_argument(
        "--kubeconfig",
        metavar="FILE",
        type=Path,
        help="the kubeconfig (default: the applied stack's, else KUBECONFIG, else ~/.kube/config)",
    )


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


def _name(text: str) -> str:
    if not text.strip():
        raise argparse.ArgumentTypeError("it is empty: it must be a name")
    return text


def again(args: argparse.Namespace, *words: str) -> str:
    """``corral`` *words* for the catalog and the store that *args* name: a next step to be typed as it is."""
    given = [(f"--{name}", getattr(args, name, None)) for name in ("catalog", "store")]
    options = [part for option, value in given if value is not None for part in (option, str(value))]
    return shlex.join(["corral", *words, *options])


def for_catalog(step: str, args: argparse.Namespace) -> str:
    """The next step *step* with the catalog that *args* name in each `corral lock` of it that names none."""
    if getattr(args, "catalog", None) is None:
        return step
    return _BARE_LOCK.sub(lambda _: shlex.join(["corral", "lock", "--catalog", str(args.catalog)]), step)


def catalog_dir(args: argparse.Namespace) -> Path:
    """The catalog that *args* names, or the nearest one.

    Raises:
        Refused: there is none.
    """
    chosen: Path | None = args.catalog
    return chosen.absolute() if chosen else paths.find_catalog()


def store_dir(args: argparse.Namespace) -> Path:
    """The store that *args* names, or the local stack's own."""
    chosen: Path | None = args.store
    return chosen.absolute() if chosen else paths.default_store()
