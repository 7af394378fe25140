"""The llama-swap that `corral load` and `unload` mean, and the model in it."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from corral.cli import endpoints, options
from corral.engine import stack
from corral.engine.llama_swap import LlamaSwap
from corral.errors import CannotRun, Refused
from corral.why import evidence

if TYPE_CHECKING:
    from corral.cluster.target import ClusterTarget


@dataclass(frozen=True)
class OneModel:
    """A model by its id, its llama-swap, and the cluster where that is; None: it is the local stack's."""

    model: str
    client: LlamaSwap
    target: ClusterTarget | None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """``MODEL``, ``--catalog``, ``--json`` and the options of a cluster."""
    parser.add_argument("model", metavar="MODEL", type=options.name, help="an id or an alias")
    options.add(parser, "--catalog", "--json")
    options.add_cluster(parser)
    parser.set_defaults(store=None)  # `corral why` has it


@contextmanager
def opened(args: argparse.Namespace) -> Iterator[OneModel]:
    """What *args* name, or what there is: of the local stack, else of the cluster of the last apply.

    Raises:
        Refused: the llama-swap there has no such model.
        CannotRun: nothing runs, the local stack has died, or it does not answer.
    """
    target = options.cluster(args)
    running = None if target else endpoints.local_stack()
    target = target if target or running else options.applied()
    if running:
        yield OneModel(_found(args, running.client(), running), running.client(), None)
    elif target:
        from corral.cluster import client
        from corral.cluster.served import of_card, served

        cluster = client.connect(target.kubeconfig, target.context)
        try:
            with ExitStack() as forwards:
                llama_swap = forwards.enter_context(served(cluster, target))
                model = _found(args, llama_swap, target)
                card = next((one.card for one in llama_swap.residents() if one.model == model), "")
                if card:  # its own llama-swap knows the requests that it has under way
                    llama_swap = forwards.enter_context(served(cluster, of_card(cluster, target, card)))
                yield OneModel(model, llama_swap, target)
        except CannotRun as error:
            logs = cluster.kubectl("logs", f"service/{target.service}", namespace=target.namespace)
            status = shlex.join(["corral", "status", *options.target_words(replace(target, context=cluster.context))])
            steps = {"corral logs": logs, "corral status": status}  # llama-swap's own are for the local stack
            error.next_step = steps.get(error.next_step, error.next_step)
            raise
    else:
        raise CannotRun(
            "No local stack is running, and nothing was applied to a cluster from this clone.",
            next_step="corral up --detach here, corral apply in a cluster; another's: --context NAME",
        )


def _found(args: argparse.Namespace, client: LlamaSwap, of: stack.Running | ClusterTarget) -> str:
    """The id of the model that *args* name, an id or an alias, among those that *client* of *of* serves."""
    ids = {}
    with suppress(Refused):  # without a catalog there are no aliases
        ids = evidence.model_ids(options.catalog_dir(args, of))
    model: str = ids.get(args.model, args.model)
    served = client.models()
    if model not in served:
        serve = of.start_command() if isinstance(of, stack.Running) else "corral apply"
        step = f"Name one of these; one of the catalog that was added since: {serve}"
        raise Refused(f"No model {args.model} is served here. There are: {', '.join(served)}.", next_step=step)
    return model
