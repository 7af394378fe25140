"""A test cluster on the command line, as root, in tools/:

    python -m tests.support.cluster up              start one that stays, and print how to use it
    python -m tests.support.cluster list            those that stay, and the lines that choose one
    python -m tests.support.cluster enter [CMD]     a shell (or CMD) on the node of the last one: ctr, iptables-save, …
    python -m tests.support.cluster down [NAME...]  end these (default: all that stay); clean up after those that died
    python -m tests.support.cluster build           only make what a cluster is made of

CLUSTER=kept lets `make test-cluster` use the last one instead of starting its own.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

import psutil

from corral.errors import CorralError, Refused
from tests.support.cluster import parts, throwaway
from tests.support.cluster.cluster import Cluster
from tests.support.cluster.place import Place


def main(argv: Sequence[str] | None = None) -> int:
    """Return 0; 3 with words on stderr when it cannot be done here."""
    words = _parser().parse_args(argv)
    try:
        match words.what:
            case "up":
                _show(throwaway.up(keep=True))
            case "list":
                for cluster in throwaway.kept():
                    _show(cluster)
            case "enter":
                _enter(words.command or [os.environ.get("SHELL", "sh")])
            case "down":
                _end(words.names)
            case _:
                throwaway.build()
    except CorralError as error:
        sys.stderr.write(f"{error.message}\n{error.next_step}\n")
        return error.exit_code
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.support.cluster",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    kinds = parser.add_subparsers(dest="what", required=True, metavar="COMMAND")

    def kind(name: str, words: str) -> argparse.ArgumentParser:
        return kinds.add_parser(name, help=words, description=f"{words[0].upper()}{words[1:]}.")

    kind("up", "start a cluster that stays, and print how to use it")
    kind("list", "name those that stay, with the lines that choose one")
    enter = kind("enter", "run a shell, or CMD, on the node of the last one")
    enter.add_argument("command", nargs=argparse.REMAINDER, metavar="CMD", help="with its arguments (default: $SHELL)")
    down = kind("down", "end clusters, and clean up after those that died")
    down.add_argument("names", nargs="*", metavar="NAME", help="as list shows them (default: all that stay)")
    kind("build", "only make what a cluster is made of")
    return parser


def _show(cluster: Cluster) -> None:
    sys.stdout.write(f"export KUBECONFIG={cluster.kubeconfig}  # {cluster.context}\n")
    sys.stdout.write(f"# registry {cluster.registry}, this machine is {cluster.hub_host}, logs {cluster.folder}/log\n")
    for name, image in cluster.images.items():
        sys.stdout.write(f"# {name}: {image}\n")


def _end(names: list[str]) -> None:
    known = {Place(int(cluster.folder.name)).context: cluster for cluster in throwaway.kept() if cluster.folder}
    for name in names or known:
        if name not in known:
            raise Refused(f"{name} is not one that stays: {', '.join(known) or 'none does'}.")
        if throwaway.down(Place(int(name.rpartition("-")[2]))):
            sys.stderr.write(f"{name}: gone\n")
    throwaway.sweep()


def _enter(command: list[str]) -> None:
    found = throwaway.kept()
    if not found or found[-1].folder is None:
        sys.exit("no cluster runs: python -m tests.support.cluster up")
    shell = psutil.Process(int((found[-1].folder / "pid").read_text()))
    environment = dict(os.environ) | {"CONTAINERD_ADDRESS": parts.CONTAINERD, "CONTAINERD_NAMESPACE": "k8s.io"}
    os.execvpe("nsenter", ["nsenter", "-t", str(shell.children()[0].pid), "-m", "-n", "-p", *command], environment)


if __name__ == "__main__":
    sys.exit(main())
