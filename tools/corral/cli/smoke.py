"""Prove that every model answers, and answers right: not a status, an answer.

A text model must give an answer (exactly `smoke.expect` where the catalog has one), a vision model must name two images
in order, both ways round, and a stream must be complete.  An embedding must have the dimension of the model's header
and be nearer to a text like it than to another; a reranker must put the relevant document first.  Resident models are
checked first, and each model is loaded at most once.  /health of llama-swap only shows that llama-swap lives;
/v1/models must equal the catalog.

Without --endpoint it checks the local stack, by default against the catalog that the stack was started with.  With
--context it checks the llama-swap in that cluster, through a forwarded port: neither kubectl nor a route into the
cluster is needed.  With neither, and no local stack, it is the cluster that terraform/stacks/homelab was applied to.

An API key is taken from CORRAL_API_KEY, never from the command line; for the local stack and in a cluster it is the
operator's own, if that variable is not set.  With --resident-only, models that are not in memory are skipped, and
nothing is loaded or evicted; with none resident, nothing is proved: exit code 3.

examples:
  corral smoke qwen3-8b --endpoint http://llama-swap.lan:8080 --junit smoke.xml
  corral smoke --context homelab
"""

from __future__ import annotations

import argparse
import asyncio
import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from corral import output
from corral.agent.progress import positive_seconds
from corral.catalog import catalog
from corral.cli import endpoints, options
from corral.cli.endpoints import ServedEndpoint
from corral.engine import log_lines
from corral.engine.llama_swap import LlamaSwap
from corral.errors import CannotRun, CorralError, ExitCode, Refused
from corral.lock import headers
from corral.lock import lock as locks
from corral.smoke import questions, report
from corral.smoke.endpoint import Endpoint
from corral.smoke.report import Report
from corral.smoke.runner import SILENCE_LIMIT_S, Runner


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.add(parser, "models", "--catalog", "--json")
    endpoints.add_argument(parser)
    seconds: dict[str, Any] = {"metavar": "SECONDS", "type": positive_seconds}
    silence = "a model that is loaded and sends no byte for so long has failed (default: 60)"
    parser.add_argument(
        "--timeout", **seconds, default=300.0, help="limit of each check, loading included (default: 300)"
    )
    parser.add_argument("--silence", **seconds, default=SILENCE_LIMIT_S, help=silence)
    parser.add_argument(
        "--resident-only", action="store_true", help="skip models that are not in memory; never cause a load"
    )
    parser.add_argument("--junit", metavar="FILE", type=Path, help="write the result as JUnit XML too")
    options.add_cluster(parser)


def run(args: argparse.Namespace) -> int:
    """Check, print each result to stderr when it is known, and report."""
    junit: Path | None = args.junit
    if junit and not junit.parent.is_dir():
        missing = f"There is no folder {junit.parent} to write {junit.name} to."
        raise Refused(missing, next_step=f"mkdir -p {junit.parent}")
    local, target = endpoints.named(args)
    intent = catalog.load(options.catalog_dir(args, local or target))
    subjects = questions.subjects(intent, args.models, _dimensions(intent))
    try:
        with endpoints.opened(args, local, target, command="smoke") as place:
            result = asyncio.run(_check(place, subjects, intent, args))
    except CannotRun as error:
        if junit:  # an old report left in place would be read as this run's
            report.write(junit, report.junit_of_error(error.message))
        raise
    if junit:
        report.write(junit, report.junit(result))
    rows = [(one.model, one.check, one.status, f"{one.seconds:.2f}", one.reason) for one in result.checks]
    columns, title = ("model", "check", "status", "seconds", "reason"), f"smoke of {result.endpoint}"
    output.result(result.as_json(), columns, rows, as_json=args.json, title=title)
    if result.failed:
        output.info(f"{len(result.failed)} of {len(result.checks)} checks failed.")
        return ExitCode.FAILED
    if not result.passed:
        raise CannotRun(
            "No model was checked: none of them is resident, so this run proves nothing about the models.",
            next_step="Leave out --resident-only to have them loaded",
        )
    return ExitCode.OK


def _dimensions(intent: catalog.Catalog) -> dict[str, int]:
    """Numbers of an embedding of each model of that task, by its header beside the lock."""
    wanted = [model_id for model_id, model in intent.models.items() if model.task == "embedding"]
    lock = locks.read(intent.lock_file) if wanted else None
    entries = {model_id: lock.models[model_id] for model_id in wanted if lock and model_id in lock.models}
    found = {model_id: headers.dimension(intent.directory, entry) for model_id, entry in entries.items()}
    return {model_id: dimension for model_id, dimension in found.items() if dimension}


async def _check(
    place: ServedEndpoint, subjects: Sequence[questions.Subject], intent: catalog.Catalog, args: argparse.Namespace
) -> Report:
    async with Endpoint(place.root, api_key=place.api_key, trust=place.trust) as api:
        runner = Runner(
            api,
            args.timeout,
            silence_s=args.silence,
            resident_only=args.resident_only,
            is_local=not (args.endpoint or place.logs),
            start=place.start,
            relock=shlex.join(["corral", "lock", "--catalog", str(intent.directory)]),
            report=output.info,
            logs=place.logs,
            why_not_loaded=lambda model: _logged_cause(place.client, model),
        )
        result = await runner.run(subjects, list(intent.models))
    if result.failed and place.why:
        output.info(f"What is behind it: {place.why}")
    return replace(result, endpoint=place.url)


def _logged_cause(client: LlamaSwap | None, model: str) -> str:
    try:
        return log_lines.cause(client.model_log(model)) if client else ""
    except CorralError:
        return ""
