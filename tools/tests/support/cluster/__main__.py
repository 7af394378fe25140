"""A test cluster by hand, as root, in tools/:

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

import psutil

from corral.errors import CorralError, Refused
from tests.support.cluster import parts, throwaway
from tests.support.cluster.cluster import Cluster
from tests.support.cluster.place import Place


def main() -> int:
    """Return 0; 3 with words on stderr when it cannot be done here."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("up", "list", "enter", "down", "build"))
    parser.add_argument("command", nargs=argparse.REMAINDER)
    words = parser.parse_args()
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
                _end(words.command)
            case _:
                throwaway.build()
    except CorralError as error:
        sys.stderr.write(f"{error.message}\n{error.next_step}\n")
        return error.exit_code
    return 0


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
