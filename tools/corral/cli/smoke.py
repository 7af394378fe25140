"""Prove that every model answers, and answers right: not a status, an answer.

Text models must say something (and exactly `smoke.expect` where the catalog has one), vision models must name two
images in order, both ways round, and a stream must come to its end.  Resident models come first, and each model is
loaded at most once.  /health of llama-swap only shows that llama-swap lives; /v1/models must equal the catalog.

Without --endpoint the local stack is asked, and by default about the catalog that it was started with.

An API key is taken from CORRAL_API_KEY, never from the command line.

With --resident-only, models that are not in memory are skipped, and nothing is loaded or evicted.  When nothing at all
is resident there is no answer to judge: that is no pass but exit code 3.

example:
  corral smoke qwen3-8b --endpoint http://llama-swap.lan:8080 --junit smoke.xml
"""

from __future__ import annotations

import argparse
import asyncio
import math
import os
from collections.abc import Callable
from pathlib import Path

from corral import output, paths
from corral.catalog import catalog
from corral.cli import options
from corral.engine import llama_swap, stack
from corral.engine.llama_swap import LlamaSwap
from corral.errors import CannotRun, CorralError, ExitCode, Refused
from corral.smoke import questions, report, runner
from corral.smoke.endpoint import Endpoint, root_of
from corral.smoke.report import CheckResult, Report

_COLUMNS = ("model", "check", "status", "seconds", "reason")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare options."""
    parser.add_argument("models", nargs="*", metavar="MODEL", help="ids of models (default: all of the catalog)")
    parser.add_argument(
        "--endpoint",
        metavar="URL",
        help="a llama-swap or another OpenAI endpoint, with or without /v1 (default: local)",
    )
    options.add_catalog(parser)
    parser.add_argument(
        "--timeout",
        metavar="SECONDS",
        type=_seconds,
        default=300.0,
        help="time limit of each check, loading included (default: 300)",
    )
    parser.add_argument(
        "--resident-only", action="store_true", help="skip models that are not in memory; never cause a load"
    )
    parser.add_argument("--junit", metavar="FILE", type=Path, help="write the result as JUnit XML too")
    options.add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Ask, tell each result on stderr as it comes, and report."""
    junit: Path | None = args.junit
    if junit and not junit.parent.is_dir():
        raise Refused(
            f"There is no folder {junit.parent} to write {junit.name} to.", next_step=f"mkdir -p {junit.parent}"
        )
    local = None if args.endpoint else stack.running(paths.state_dir())
    intent = catalog.load(local.catalog if local and args.catalog is None else options.catalog_dir(args))
    subjects = questions.subjects(intent, args.models)
    try:
        root = root_of(args.endpoint or _local_endpoint(local))
        result = asyncio.run(_ask(root, subjects, list(intent.models), args))
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


async def _ask(
    root: str, subjects: tuple[questions.Subject, ...], listed: list[str], args: argparse.Namespace
) -> Report:
    async with Endpoint(root, api_key=os.environ.get("CORRAL_API_KEY", "").strip()) as api:
        return await runner.run(
            api,
            subjects,
            listed,
            watcher=_Progress(),
            limit_s=args.timeout,
            resident_only=args.resident_only,
            is_local=not args.endpoint,
            why_not_loaded=_engines_word(root) if not args.endpoint else lambda _model: "",
        )


def _engines_word(root: str) -> Callable[[str], str]:
    def cause(model: str) -> str:
        try:
            return llama_swap.cause(LlamaSwap(root).model_log(model))
        except CorralError:
            return ""

    return cause


def _local_endpoint(local: stack.Running | None) -> str:
    if local is None:
        raise CannotRun(
            "No local stack is running, and no --endpoint was given.",
            next_step="corral up --detach, or name one: corral smoke --endpoint URL",
        )
    return local.endpoint


def _exit_code(result: Report) -> int:
    if result.failed:
        count = len(result.failed)
        output.talk(f"{count} of {len(result.checks)} checks failed.")
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
        output.talk(f"{model} is not resident: its first check loads it …")

    def checked(self, result: CheckResult) -> None:
        reason = "" if result.status == "passed" else f"  {result.reason}"
        output.talk(f"{result.status:7}  {result.model}  {result.check}  {result.seconds:.2f} s{reason}")


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
