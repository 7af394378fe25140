"""Prove that every model answers, and answers right: not a status, an answer.

Text models must say something (and exactly `smoke.expect` where the catalog has one), vision models must name two
images in order, both ways round, and a stream must come to its end.  Resident models come first, and each model is
loaded at most once.  /health of llama-swap only shows that llama-swap lives; /v1/models must equal the catalog.

Without --endpoint the local stack is asked, and by default about the catalog that it was started with.  With --context
it is the llama-swap in that cluster, through a forwarded port: neither kubectl nor a route into the cluster is needed.
With neither, and no local stack, it is the cluster that terraform/stacks/homelab was applied to.

An API key is taken from CORRAL_API_KEY, never from the command line.

With --resident-only, models that are not in memory are skipped, and nothing is loaded or evicted.  When nothing at all
is resident there is no answer to judge: that is no pass but exit code 3.

examples:
  corral smoke qwen3-8b --endpoint http://llama-swap.lan:8080 --junit smoke.xml
  corral smoke --context homelab
"""

from __future__ import annotations

import argparse
import asyncio
import math
import os
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from corral import output, paths
from corral.catalog import catalog
from corral.cli import options
from corral.engine import log_lines, stack
from corral.engine.llama_swap import LlamaSwap
from corral.errors import CannotRun, CorralError, ExitCode, Refused
from corral.smoke import questions, report, runner
from corral.smoke.endpoint import Endpoint, root_of
from corral.smoke.report import CheckResult, Report

if TYPE_CHECKING:
    from corral.cluster.target import ClusterTarget

_COLUMNS = ("model", "check", "status", "seconds", "reason")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare options."""
    options.add(parser, "models", "--catalog", "--json")
    parser.add_argument(
        "--endpoint",
        metavar="URL",
        help="a llama-swap or another OpenAI endpoint, with or without /v1 (default: local)",
    )
    parser.add_argument(
        "--timeout",
        metavar="SECONDS",
        type=_seconds,
        default=300.0,
        help="time limit of each check, loading included (default: 300)",
    )
    parser.add_argument(
        "--silence",
        metavar="SECONDS",
        type=_seconds,
        default=runner.SILENCE_LIMIT_S,
        help="a model that is loaded and sends no byte for so long has failed (default: 60)",
    )
    parser.add_argument(
        "--resident-only", action="store_true", help="skip models that are not in memory; never cause a load"
    )
    parser.add_argument("--junit", metavar="FILE", type=Path, help="write the result as JUnit XML too")
    options.add_cluster(parser)


def run(args: argparse.Namespace) -> int:
    """Ask, tell each result on stderr as it comes, and report."""
    junit: Path | None = args.junit
    if junit and not junit.parent.is_dir():
        raise Refused(
            f"There is no folder {junit.parent} to write {junit.name} to.", next_step=f"mkdir -p {junit.parent}"
        )
    where = options.cluster(args)
    if where and args.endpoint:
        raise Refused("--endpoint and a cluster were both named.", next_step="Leave out one of them")
    local = None if args.endpoint or where else stack.running(paths.state_dir())
    if not (args.endpoint or local or where):
        where = options.applied()
    intent = catalog.load(_catalog_dir(args, local, where))
    subjects = questions.subjects(intent, args.models)
    try:
        with _at(args, local, where) as place:
            result = asyncio.run(_ask(place, subjects, list(intent.models), args))
    except CannotRun as error:
        if junit:  # an old report left in place would be read as this run's
            report.write(junit, report.junit_of_error(error.message))
        raise
    if junit:
        report.write(junit, report.junit(result))
    if args.json:
        output.data_json(result.as_json())
    else:
        output.table(_COLUMNS, [_row(check) for check in result.checks], title=f"smoke of {result.endpoint}")
    return _exit_code(result)


def _catalog_dir(args: argparse.Namespace, local: stack.Running | None, where: ClusterTarget | None) -> Path:
    """The one that is named; else the one that is served."""
    served = None
    if args.catalog is None and (local or where):
        served = local.catalog if local else where.catalog if where else None
    return served or options.catalog_dir(args)


@dataclass(frozen=True)
class _Place:
    """Whom to ask.

    Attributes:
        root: its address, here and now.
        shown: its address in the report.
        logs: the command that shows a model's log; None: the endpoint's own.
        why: the command that says more; empty when there is none.
    """

    root: str
    shown: str
    logs: Callable[[str], str] | None = None
    why: str = ""
    is_local: bool = False


@contextmanager
def _at(args: argparse.Namespace, local: stack.Running | None, where: ClusterTarget | None) -> Iterator[_Place]:
    if where is None:
        root = root_of(args.endpoint or _local_endpoint(local))
        yield _Place(root, root, is_local=not args.endpoint)
        return
    from corral.cluster import client, port_forward

    cluster = client.connect(where.kubeconfig, where.context)
    logs = cluster.kubectl("logs", f"service/{where.service}", namespace=where.namespace)
    named = ["--context", cluster.context, "--namespace", where.namespace]
    named += ["--kubeconfig", str(where.kubeconfig)] if where.kubeconfig else []
    named += ["--catalog", str(args.catalog)] if args.catalog else []
    with port_forward.forwarded(cluster, where.namespace, where.service) as root:
        output.info(f"{where.url} of context {cluster.context}, through {root}")
        yield _Place(root, where.url, logs=lambda _model: logs, why=shlex.join(["corral", "why", *named]))


async def _ask(
    place: _Place, subjects: tuple[questions.Subject, ...], listed: list[str], args: argparse.Namespace
) -> Report:
    async with Endpoint(place.root, api_key=os.environ.get("CORRAL_API_KEY", "").strip()) as api:
        result = await runner.run(
            api,
            subjects,
            listed,
            watcher=_Progress(),
            limit_s=args.timeout,
            silence_s=args.silence,
            resident_only=args.resident_only,
            is_local=place.is_local,
            logs=place.logs,
            why_not_loaded=_engines_word(place.root) if not args.endpoint else lambda _model: "",
        )
    if result.failed and place.why:
        output.info(f"What is behind it: {place.why}")
    return replace(result, endpoint=place.shown)


def _engines_word(root: str) -> Callable[[str], str]:
    def cause(model: str) -> str:
        try:
            return log_lines.cause(LlamaSwap(root).model_log(model))
        except CorralError:
            return ""

    return cause


def _local_endpoint(local: stack.Running | None) -> str:
    if local is None:
        raise CannotRun(
            "No local stack is running, nothing was applied to a cluster from this clone, and no --endpoint was given.",
            next_step="corral up --detach here, corral apply in the cluster of terraform/stacks/homelab, "
            "or name one: corral smoke --endpoint URL",
        )
    return local.endpoint


def _exit_code(result: Report) -> int:
    if result.failed:
        count = len(result.failed)
        output.info(f"{count} of {len(result.checks)} checks failed.")
        return ExitCode.FAILED
    if not result.passed:
        raise CannotRun(
            "No model was asked: none of them is resident, so this run proves nothing about the models.",
            next_step="Leave out --resident-only to have them loaded",
        )
    return ExitCode.OK


class _Progress:
    """Tells each step on stderr."""

    def loading(self, model: str) -> None:
        output.info(f"{model} is not resident: its first check loads it …")

    def checked(self, result: CheckResult) -> None:
        reason = "" if result.status == "passed" else f"  {result.reason}"
        output.info(f"{result.status:7}  {result.model}  {result.check}  {result.seconds:.2f} s{reason}")


def _row(check: CheckResult) -> tuple[str, ...]:
    return (check.model, check.check, check.status, f"{check.seconds:.2f}", check.reason)


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (0 < value < math.inf):
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds above 0")
    return value
