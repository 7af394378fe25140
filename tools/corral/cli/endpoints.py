"""The endpoint that a command sends requests to: one by its URL, the local stack, or one in a cluster."""

from __future__ import annotations

import argparse
import os
import resource
import shlex
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from corral import output, paths
from corral.cli import options
from corral.engine import stack
from corral.engine.llama_swap import LlamaSwap
from corral.errors import CannotRun, Refused
from corral.keys import LocalKeys
from corral.smoke.endpoint import root_of

if TYPE_CHECKING:
    from corral.cluster.target import ClusterTarget


class ServedEndpoint(NamedTuple):
    """An endpoint: its address now and in a report, its key and certificate, llama-swap itself, and commands.

    ``start`` is the one that starts what serves, or applies what is locked to it.
    """

    root: str
    url: str
    client: LlamaSwap | None = None  # for an engine's log
    key: str = ""
    trust: ssl.SSLContext | None = None
    logs: str = ""
    why: str = ""
    start: str = "corral up --detach"

    @property
    def api_key(self) -> str:
        """``CORRAL_API_KEY``, else its own."""
        return os.environ.get("CORRAL_API_KEY", "").strip() or self.key


def add_argument(parser: argparse.ArgumentParser) -> None:
    """``--endpoint URL``."""
    parser.add_argument(
        "--endpoint", metavar="URL", help="any OpenAI endpoint, with or without /v1 (default: the local llama-swap)"
    )


def local_stack() -> stack.Running | None:
    """The local stack; None where there is none.

    Raises:
        CannotRun: its llama-swap has died: who served here does not mean the cluster of the last apply.
    """
    found = stack.recorded(paths.state_dir())
    if found and not found.is_alive:
        raise CannotRun(
            f"llama-swap of the local stack (pid {found.pid}) has died.",
            next_step=f"{found.start_command()}, or name a cluster: --context NAME",
        )
    return found


def named(args: argparse.Namespace) -> tuple[stack.Running | None, ClusterTarget | None]:
    """What *args* name, or what there is: the local stack, a cluster, or neither (``--endpoint``, or nothing).

    Raises:
        Refused: they name an endpoint and a cluster.
        CannotRun: they name nothing, and the local stack has died.
    """
    target = options.cluster(args)
    if target and args.endpoint:
        raise Refused("--endpoint and a cluster were both named.", next_step="Leave out one of them")
    local = None if args.endpoint or target else local_stack()
    if not (args.endpoint or local or target):
        target = options.applied()
    return local, target


@contextmanager
def opened(
    args: argparse.Namespace, local: stack.Running | None, target: ClusterTarget | None, *, command: str
) -> Iterator[ServedEndpoint]:
    """The endpoint of what ``named`` gave, for ``corral`` *command*; in a cluster, while the block lasts.

    Raises:
        CannotRun: there is none, or the cluster cannot be reached.
    """
    if target is None:
        address = args.endpoint or (local.endpoint if local else "")
        if not address:
            raise CannotRun(
                "No local stack is running, nothing was applied to a cluster from this clone, no --endpoint was given.",
                next_step="corral up --detach here, corral apply in the cluster of terraform/stacks/homelab, "
                f"or name one: corral {command} --endpoint URL",
            )
        root = root_of(address)
        if local is None:
            yield ServedEndpoint(root, root)
            return
        key = LocalKeys(paths.state_dir()).operator_key() if local.door.keys else None
        trust, start = local.door.trust(local.folder), local.start_command()
        yield ServedEndpoint(root, root, local.client(), key or "", trust, start=start)
        return
    from corral.cluster import client, keys, port_forward, served

    cluster = client.connect(target.kubeconfig, target.context)
    logs = cluster.kubectl("logs", f"service/{target.service}", namespace=target.namespace)
    words = options.target_words(replace(target, context=cluster.context, catalog=args.catalog))
    with (
        served.served(cluster, target) as llama_swap,
        port_forward.forwarded(cluster, target.namespace, target.service) as root,
    ):
        output.info(f"{target.url} of context {cluster.context}, through {root}")
        why = shlex.join(["corral", "why", *words])
        key = keys.operator_key(cluster, target.namespace)
        yield ServedEndpoint(root, target.url, llama_swap, key, logs=logs, why=why, start="corral apply")


def allow_connections(connections: int) -> None:
    """Permit this process so many *connections*, as far as the system lets it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = max(soft, connections + 1000)
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
