"""Why did my request fail, or take so long?  Prints one reason, its culprit, the evidence and the next commands.

Of the local stack it reads llama-swap's state and log, the preflight's line, the lock, the store, the processes and the
ports, within two seconds.  It loads nothing and changes nothing.  Without MODEL it diagnoses every model of the
catalog, the worst first.

The class is one of: healthy not-in-catalog stack-down engine-missing file-missing file-damaged bad-argument
out-of-memory port-in-use load-timeout crashed hung over-concurrency slow unknown.  "unknown" is a result too: no
evidence explains a failure, or some evidence is missing.  What is true now comes first.  A model whose engine died and
was loaded again, or whose file was damaged and is whole again, is "healthy": the evidence states what failed, and when.

"slow" is a model that answers, for a cause that figures show: a pause of all models, requests that wait in the engine's
queue, models of a group that unload each other, a long load, a cold page cache, or, on this machine, the processor in
place of the card, or another program that computes on the card while the stack does not.

With --json: {"model", "class", "culprit", "evidence": [...], "next": [...]}; without MODEL the worst of them, and all
under "answers".  "next" holds commands that can be typed as they are.

With --context it diagnoses the llama-swap in that cluster (without, and without a local stack, the one that
terraform/stacks/homelab was applied to): the state of the pod in Kubernetes, llama-swap's state and log, and the
engine's log.  No process, port or file can be read there; where that leaves a question open, the class is "unknown".

Exit code 0: healthy.  1: a reason was found.  3: unknown.

examples:
  corral why qwen3-8b
  corral why qwen3-8b --context homelab
  corral why --json | jq -r '.answers[] | [.model, .class] | @tsv'
"""

from __future__ import annotations

import argparse
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from corral import output, paths
from corral.cli import options
from corral.engine import stack
from corral.errors import ExitCode, Refused
from corral.why import local
from corral.why.next_steps import StepOptions
from corral.why.verdict import Reason, Verdict, one_line

if TYPE_CHECKING:
    from corral.cluster.target import ClusterTarget

_SENTENCES = {
    Reason.HEALTHY: "nothing is wrong with it",
    Reason.NOT_IN_CATALOG: "it is not in the catalog that is served",
    Reason.STACK_DOWN: "the stack is down",
    Reason.ENGINE_MISSING: "its engine is missing",
    Reason.FILE_MISSING: "a file is missing",
    Reason.FILE_DAMAGED: "a file is damaged",
    Reason.BAD_ARGUMENT: "the engine does not accept an argument",
    Reason.OUT_OF_MEMORY: "there is not enough memory",
    Reason.PORT_IN_USE: "its port is in use",
    Reason.LOAD_TIMEOUT: "it took too long to load",
    Reason.CRASHED: "its engine crashed",
    Reason.HUNG: "it hangs",
    Reason.OVER_CONCURRENCY: "too many requests at a time",
    Reason.SLOW: "it is slow",
    Reason.UNKNOWN: "the evidence does not explain it",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "model", nargs="?", metavar="MODEL", help="an id, an alias or MODEL:ADAPTER (default: all of the catalog)"
    )
    options.add(parser, "--catalog", "--store", "--json")
    options.add_cluster(parser)


def run(args: argparse.Namespace) -> int:
    """Diagnose the models and print the verdicts."""
    if args.model is not None and not args.model.strip():
        raise Refused("MODEL is empty: it must be an id or an alias.", next_step="For all of the catalog: corral why")
    target = options.cluster(args)
    if target is None and stack.recorded(paths.state_dir()) is None and args.catalog is None and args.store is None:
        target = options.applied()
    verdicts = investigated(args, target, args.model)
    worst = verdicts[0]
    if args.json:
        output.data_json(worst.as_json() | ({} if args.model else {"answers": [one.as_json() for one in verdicts]}))
    else:
        if not args.model:
            rows = [(one.model, one.reason.value, one.culprit) for one in verdicts]
            output.table(("model", "class", "culprit"), rows)
        if args.model or worst.reason is not Reason.HEALTHY:
            output.data(text(worst))
    if worst.reason is Reason.HEALTHY:
        return ExitCode.OK
    return ExitCode.CANNOT_RUN if worst.reason is Reason.UNKNOWN else ExitCode.FAILED


def investigated(args: argparse.Namespace, target: ClusterTarget | None, model: str | None) -> list[Verdict]:
    """The verdict on *model*, None: on every one, in the cluster of *target*, or in the local stack; *args*: --catalog.

    Raises:
        Refused, CannotRun: as ``why.local`` and ``why.in_cluster``.
    """
    return _in_cluster(args, target, model) if target else local.investigate(_scope(args), model)


def text(verdict: Verdict) -> str:
    """*verdict* for people."""
    culprit = f" ({verdict.culprit})" if verdict.culprit else ""
    details = [*verdict.evidence, *(f"→ {step}" for step in verdict.next_steps)]
    return "\n  ".join([f"{one_line(verdict.model)}: {_SENTENCES[verdict.reason]}{culprit}.", *details])


def _in_cluster(args: argparse.Namespace, target: ClusterTarget, model: str | None) -> list[Verdict]:
    if args.store:
        raise Refused("--store is for the local stack; a cluster has its own.", next_step="Leave it out")
    from corral.cluster import client
    from corral.why import in_cluster

    catalog = options.catalog_dir(args, target)
    shown = None if catalog == _default_catalog() else catalog
    cluster = client.connect(target.kubeconfig, target.context)
    return in_cluster.investigate(cluster, target, catalog, shown, model)


def _scope(args: argparse.Namespace) -> local.Scope:
    state = paths.state_dir()
    recorded = stack.recorded(state)
    catalog = options.catalog_dir(args, recorded)
    store = options.store_dir(args, recorded)
    shown = argparse.Namespace(
        catalog=None if catalog == _default_catalog() else catalog,
        store=None if store == paths.default_store() else store,
    )
    start = recorded.start_command() if recorded else options.again(shown, "up", "--detach")
    step_options = StepOptions(catalog=shown.catalog, store=shown.store, start=start)
    assumed = not args.catalog and recorded is None
    return local.Scope(state, catalog, store, step_options, catalog_is_assumed=assumed)


def _default_catalog() -> Path | None:
    with suppress(Refused):
        return paths.find_catalog()
    return None
