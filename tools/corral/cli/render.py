"""Write what is made from the catalogs: docs/models.md, docs/clients.md, docs/seating-demo.svg, the README's table.

With --print, nothing is written: one of them is printed to stdout, for any catalog; so is the configuration of a
LiteLLM (docs/clients.md), and that of the llama-swap of another machine, whose store and engine are named by their
paths there, and what the lock promises on each card, as JSON in bytes for the exporter of another machine.

With --manifests, DIR gets what `corral apply` would make in a cluster as plain Kubernetes manifests with a
kustomization, for `kubectl apply --server-side -k DIR`, Argo CD or Flux: from Terraform's own plan, with the variables
of the homelab's stack, and no cluster is asked.  Files of objects that went are removed.  docs/gitops.md explains it.

examples:
  corral render --check
  corral render --print litellm --api-base http://127.0.0.1:8080/v1
  corral render --manifests ../cluster/llama-cpp
  corral render --manifests ../cluster/llama-cpp --check      exit 1 where a file is stale
  corral render --print llama-swap --store /srv/models --engine /opt/llama-server --preflight /opt/preflight.sh
"""

from __future__ import annotations

import argparse
import shlex
import tempfile
from pathlib import Path

from corral import documents, output, paths
from corral.catalog import catalog
from corral.cli import options
from corral.errors import ExitCode, Refused
from corral.files import refuse_unwritable, write_atomically
from corral.lock import lock
from corral.terraform import local


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.add(parser, "--catalog", "--store")
    options.add_gateway(parser)
    parser.add_argument("--api-key-env", metavar="NAME", help="litellm: the variable of its environment with the key")
    way = parser.add_mutually_exclusive_group()
    way.add_argument("--check", action="store_true", help="only list which files are stale; exit 1 when one is")
    way.add_argument(
        "--print", choices=("models", "litellm", "llama-swap", "promises"), dest="show", help="print this one to stdout"
    )
    parser.add_argument("--manifests", metavar="DIR", type=_folder, help="write the manifests of the homelab's stack")
    parser.add_argument(
        "--var-file", metavar="FILE", type=Path, action="append", default=[], help="more variables of that stack"
    )
    parser.add_argument(
        "--engine", metavar="PATH", type=Path, default=Path("llama-server"), help="llama-server of that machine"
    )
    parser.add_argument("--preflight", metavar="PATH", type=Path, help="preflight.sh on that machine")
    parser.add_argument(
        "--first-engine-port", metavar="PORT", type=int, default=5800, help="loopback port of its first model"
    )


def _folder(text: str) -> Path:
    if not text:
        raise argparse.ArgumentTypeError("an empty name would be the working folder: name it with .")
    return Path(text)


def run(args: argparse.Namespace) -> int:
    if args.manifests:
        return _manifests(args)
    wanted = catalog.load(options.catalog_dir(args))
    present = lock.read(wanted.lock_file)
    if args.show:
        shown = {
            "models": lambda: documents.models_table(wanted, present),
            "litellm": lambda: _litellm(args, wanted),
            "llama-swap": lambda: _llama_swap(args, wanted),
            "promises": lambda: _promises(wanted),
        }
        output.data(shown[args.show]())
        return ExitCode.OK
    if wanted.directory.resolve() != paths.REPOSITORY / "terraform" / "catalog":
        raise Refused(
            f"The documents of the repository are about its own catalog, not about {wanted.directory}.",
            next_step="For another catalog: corral render --print models",
        )
    rendered = [*documents.repository_documents(wanted, present), documents.seating_picture()]
    stale = [item for item in rendered if item.stale]
    for item in stale:
        if not args.check:
            with refuse_unwritable(item.path, next_step=f"ls -l {shlex.quote(str(item.path))}"):
                write_atomically(item.path, item.text)
        output.data(f"{item.path} {'is stale' if args.check else 'written'}")
    if args.check and stale:
        output.info("Rendered files do not match the catalog and its lock. Run: corral render")
        return ExitCode.FAILED
    if not stale:
        output.info("All rendered files are fresh.")
    return ExitCode.OK


def _manifests(args: argparse.Namespace) -> int:
    from corral.terraform import manifests
    from corral.terraform.homelab import Homelab

    if args.show:
        raise Refused("--manifests and --print are two commands.", next_step="corral render --help")
    if args.manifests.exists() and not args.manifests.is_dir():
        raise Refused(f"{args.manifests} is not a folder.", next_step="Name a folder: --manifests DIR")
    lab = Homelab(catalog=args.catalog, var_files=args.var_file, report=output.info)
    if folder := args.catalog or lab.target().catalog:
        options.locked_catalog(folder)
    changes = manifests.changes(args.manifests, manifests.of_plan(lab.plan_from_nothing()))
    if args.check:
        for name in changes:
            output.data(f"{args.manifests / name} is stale")
        return ExitCode.FAILED if changes else ExitCode.OK
    with refuse_unwritable(args.manifests, next_step=f"ls -ld {shlex.quote(str(args.manifests))}"):
        manifests.write(args.manifests, changes)
    for name, text in changes.items():
        output.data(f"{args.manifests / name} {'written' if text is not None else 'removed'}")
    if not changes:
        output.info("All manifests are fresh.")
    return ExitCode.OK


def _llama_swap(args: argparse.Namespace, wanted: catalog.Catalog) -> str:
    """The configuration of a llama-swap elsewhere; nothing of it is kept here."""
    lock.require_fresh(wanted)
    with tempfile.TemporaryDirectory(prefix="corral-") as state:
        return local.render_local(
            wanted.directory,
            options.store_dir(args),
            args.engine,
            state=Path(state),
            start_port=args.first_engine_port,
            preflight=args.preflight,
        ).rstrip()


def _litellm(args: argparse.Namespace, wanted: catalog.Catalog) -> str:
    return options.gateway_list(args, wanted.directory, api_key_env=args.api_key_env).yaml.rstrip()


def _promises(wanted: catalog.Catalog) -> str:
    lock.require_fresh(wanted)
    with tempfile.TemporaryDirectory(prefix="corral-") as state:
        return local.render_promises(wanted.directory, state=Path(state))
