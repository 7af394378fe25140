"""Why did my request fail?  One reason, who or what is behind it, the evidence, and what to type next.

Of the local stack it reads llama-swap's state and log, the preflight's line, the lock, the store, the processes and the
ports, and answers within two seconds.  It loads nothing and changes nothing.  Without MODEL every model of the catalog
is looked at, the worst first.

The class is one of: healthy not-in-catalog stack-down engine-missing file-missing file-damaged bad-argument
out-of-memory port-in-use load-timeout crashed hung over-concurrency unknown.  "unknown" is an answer too: nothing that
was seen explains a failure, or something could not be seen.

What is true now comes first.  A model whose engine died and was loaded again, or whose file was damaged and is whole
again, is "healthy": the next request works.  The evidence says what ended badly, when, and that it is over.

With --json: {"model", "class", "culprit", "evidence": [...], "next": [...]}; without MODEL the worst of them, and all
under "answers".  "next" holds commands that can be typed as they are.

With --context it is asked of the llama-swap in that cluster (without, and without a local stack, of the one that
terraform/stacks/homelab was applied to): what Kubernetes says of the pod, llama-swap's state and log, and the engine's
own words.  No process, port or file can be looked at there; where that leaves a question open, the class is "unknown".

examples:
  corral why qwen3-8b
  corral why qwen3-8b --context homelab
  corral why --json | jq -r '.answers[] | [.model, .class] | @tsv'

Exit code 0: healthy.  1: a reason was found.  3: unknown.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from corral import output, paths
from corral.cli import options
from corral.engine import ports, stack
from corral.errors import ExitCode, Refused
from corral.why import investigate
from corral.why.answer import Answer, Reason, one_line
from corral.why.facts import Place

if TYPE_CHECKING:
    from corral.cluster.target import ClusterTarget

_SENTENCES = {
    Reason.HEALTHY: "nothing is wrong with it",
    Reason.NOT_IN_CATALOG: "it is not in the catalog that is served",
    Reason.STACK_DOWN: "the stack is down",
    Reason.ENGINE_MISSING: "its engine is missing",
    Reason.FILE_MISSING: "a file is missing",
    Reason.FILE_DAMAGED: "a file is damaged",
    Reason.BAD_ARGUMENT: "the engine does not take an argument",
    Reason.OUT_OF_MEMORY: "there is not enough memory",
    Reason.PORT_IN_USE: "its port is in use",
    Reason.LOAD_TIMEOUT: "it took too long to load",
    Reason.CRASHED: "its engine crashed",
    Reason.HUNG: "it hangs",
    Reason.OVER_CONCURRENCY: "too many requests at once",
    Reason.UNKNOWN: "nothing that was seen explains it",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare options."""
    parser.add_argument("model", nargs="?", metavar="MODEL", help="an id or an alias (default: all of the catalog)")
    options.add_catalog(parser)
    options.add_store(parser)
    options.add_json(parser)
    options.add_cluster(parser)


def run(args: argparse.Namespace) -> int:
    """Look, and say it."""
    if args.model is not None and not args.model.strip():
        raise Refused("MODEL is empty: it must be an id or an alias.", next_step="For all of the catalog: corral why")
    where = options.cluster(args)
    if where is None and stack.recorded(paths.state_dir()) is None and args.catalog is None and args.store is None:
        where = options.applied()
    answers = _in_cluster(args, where) if where else investigate.ask(_scope(args), args.model)
    worst = answers[0]
    if args.json:
        output.data_json(worst.as_json() | ({} if args.model else {"answers": [one.as_json() for one in answers]}))
    else:
        if not args.model:
            rows = [(one.model, one.reason.value, one.culprit) for one in answers]
            output.table(("model", "class", "culprit"), rows)
        if args.model or worst.reason is not Reason.HEALTHY:
            output.data(_told(worst))
    if worst.reason is Reason.HEALTHY:
        return ExitCode.OK
    return ExitCode.CANNOT_RUN if worst.reason is Reason.UNKNOWN else ExitCode.FAILED


def _in_cluster(args: argparse.Namespace, where: ClusterTarget) -> list[Answer]:
    if args.store:
        raise Refused("--store is for the local stack; a cluster has its own.", next_step="Leave it out")
    from corral.cluster import client
    from corral.why import in_cluster

    catalog = where.catalog if where.catalog and args.catalog is None else options.catalog_dir(args)
    shown = None if catalog == _default_catalog() else catalog
    return in_cluster.ask(client.connect(where.kubeconfig, where.context), where, catalog, shown, args.model)


def _scope(args: argparse.Namespace) -> investigate.Scope:
    state = paths.state_dir()
    recorded = stack.recorded(state)
    catalog = options.catalog_dir(args) if args.catalog or recorded is None else recorded.catalog
    store = options.store_dir(args)
    place = Place(
        catalog=None if catalog == _default_catalog() else catalog,
        store=None if store == paths.default_store() else store,
        port=recorded.port if recorded and recorded.port != ports.LLAMA_SWAP else None,
    )
    return investigate.Scope(state, catalog, store, place, catalog_is_a_guess=not args.catalog and recorded is None)


def _default_catalog() -> Path | None:
    try:
        return paths.find_catalog()
    except Refused:
        return None


def _told(answer: Answer) -> str:
    culprit = f" ({answer.culprit})" if answer.culprit else ""
    lines = [f"{one_line(answer.model)}: {_SENTENCES[answer.reason]}{culprit}."]
    lines += [f"  {line}" for line in answer.evidence]
    lines += [f"  → {line}" for line in answer.next_steps]
    return "\n".join(lines)
