"""Find how well models do a job, on cases whose answers are known.

A set is a folder: set.yaml has what the cases share and what a model must do to pass, cases/<id>.yaml has a prompt,
images, and what is expected of the answer.  Each answer is bound to a JSON schema.  Every model is asked every case,
greedily, from no cache, one request at a time, and one model after the other: its first request, which loads it, counts
for nothing but the load.

Printed for each model: answers that are parsed (whole, JSON, by the schema), expected fields that are right, the
distribution of the scores, p50 and p95 of the seconds of an answer, and the verdict by the set's rules: least shares
of parsed answers and of right fields, most seconds, and a decisive top N: no tie across the cut, and where the set
names them, exactly these cases.  An answer that is not there or not parsed has nothing right.  A percentile needs ten
answers beyond it: 20 for p50, 200 for p95; with fewer its rule is unknown, which is no pass: --repeat asks each case
more often.  Of several models a second table has which is better, by which measure.

docs/eval.md shows how to write a set.  Without --endpoint it is the local stack, with --context the llama-swap in that
cluster; what runs there must be what the lock has.

exit codes:
  0  every model passes
  1  one does not, or it is unknown
  2  the set breaks a rule, or an engine refuses a schema of it

examples:
  corral eval triage qwen3-8b
  corral eval triage qwen3-8b qwen3-4b --repeat 7 --report "triage on the t4"
  corral eval terraform/catalog-demo/evals/digests smollm2 --json
  corral eval triage my-model --endpoint https://models.example
"""

from __future__ import annotations

import argparse
import asyncio
import shlex
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from corral import output
from corral.agent.progress import positive_seconds
from corral.catalog import tasks
from corral.cli import endpoints, options
from corral.errors import CannotRun, ExitCode, Refused

if TYPE_CHECKING:
    from corral.cli import bench_report
    from corral.cli.endpoints import ServedEndpoint
    from corral.evaluation.asking import Asked
    from corral.evaluation.cases import EvalSet
    from corral.evaluation.judging import Judged
    from corral.lock.lock import Lock, LockEntry

_MOST_REPEATS = 1000
_USUAL_LIMIT_S = 300.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("set", metavar="SET", type=Path, help="the folder of the cases")
    parser.add_argument("models", nargs="+", metavar="MODEL", help="what to ask, one after the other")
    options.add(parser, "--catalog", "--json")
    endpoints.add_argument(parser)
    repeat = "ask each case so many times (default: 1)"
    parser.add_argument("--repeat", type=options.whole_number(1, _MOST_REPEATS), default=1, metavar="N", help=repeat)
    limit = "limit of each answer, a load included (default: 300)"
    parser.add_argument("--timeout", metavar="SECONDS", type=positive_seconds, default=_USUAL_LIMIT_S, help=limit)
    document = "write docs/benchmarks/<date>-<title>.md, with the answers beside it"
    parser.add_argument("--report", metavar="TITLE", type=options.name, help=document)
    options.add_cluster(parser)


def run(args: argparse.Namespace) -> int:
    """Ask, judge and compare."""
    from corral.evaluation import cases, judging
    from corral.lock import lock as locks
    from corral.measure.live import require_locked_files

    found = cases.load(args.set)
    models = list(dict.fromkeys(args.models))
    local, target = endpoints.named(args)
    lock = locks.require(options.catalog_of(args.catalog, local or target)) if local or target else None
    entries = {model: _entry(lock, model, found) for model in models}
    report = _report(args, models, local, target) if args.report else None
    with (
        endpoints.opened(args, local, target, command=shlex.join(["eval", str(args.set), *models])) as place,
        report.watch.running() if report else nullcontext(),
    ):
        if place.client:
            for model, entry in entries.items():
                if entry:
                    require_locked_files(place.client, model, entry, apply=place.start)
        asked, error = _ask_all(args, place, found, entries, is_local=local is not None)
    judged = [judging.judge(found, one) for one in asked]
    if judged:
        _show(args, found, judged)
    if error:
        raise error
    if report:
        output.info(f"Written: {_write(args, report, found, asked, judged, place.url)}")
    return ExitCode.OK if all(one.state == "passed" for one in judged) else ExitCode.FAILED


def _entry(lock: Lock | None, model: str, found: EvalSet) -> LockEntry | None:
    """The lock's entry of *model*; None: it is at an endpoint elsewhere, and nothing is known of it.

    Raises:
        Refused: it is not in the lock, or takes no images and the set has some.
    """
    if lock is None:
        return None
    if model not in lock.models:
        raise Refused(f"The lock has no model {model}.", next_step="corral status lists the models")
    entry = lock.models[model]
    tasks.require_chat(model, entry.intent, "eval")
    shown = next((case.id for case in found.cases if case.images), None)
    if shown and not entry.intent.vision:
        message = f"{model} takes no images, and case {shown} of {found.name} has some."
        raise Refused(message, next_step=f"Name a model with modalities: [text, image] in place of {model}")
    return entry


def _ask_all(
    args: argparse.Namespace,
    place: ServedEndpoint,
    found: EvalSet,
    entries: Mapping[str, LockEntry | None],
    *,
    is_local: bool,
) -> tuple[list[Asked], CannotRun | None]:
    """What the models answered, and the error of the one that ended it."""
    asked: list[Asked] = []
    for model, entry in entries.items():
        try:
            asked.append(asyncio.run(_ask(args, place, found, model, entry, is_local=is_local)))
        except CannotRun as error:
            return asked, error
    return asked, None


async def _ask(
    args: argparse.Namespace,
    place: ServedEndpoint,
    found: EvalSet,
    model: str,
    entry: LockEntry | None,
    *,
    is_local: bool,
) -> Asked:
    from corral.evaluation import asking
    from corral.smoke.endpoint import Endpoint

    how = asking.Asking(
        model,
        thinks=entry is not None and entry.intent.reasoning != "off",
        rounds=args.repeat,
        limit_s=args.timeout,
        logs=place.logs or (f"corral logs {model}" if is_local else "the log of the server"),
        report=output.info,
        once_loaded=partial(_require_locked, args, place, model, entry),
    )
    async with Endpoint(place.root, api_key=place.api_key, trust=place.trust) as api:
        return await asking.ask(api, found, how)


def _require_locked(args: argparse.Namespace, place: ServedEndpoint, model: str, entry: LockEntry | None) -> None:
    from corral.measure.live import require_locked_command

    if entry and place.client:
        again = options.again(args, "eval", str(args.set), model)
        require_locked_command(place.client, model, entry.argv, again=again, apply=place.start)


def _show(args: argparse.Namespace, found: EvalSet, judged: Sequence[Judged]) -> None:
    from corral.evaluation import judging, ranking, table

    compared = list(ranking.compare(judged)) if judged[1:] else []
    if args.json:
        document: dict[str, Any] = {"set": found.name, "sha256": found.sha256, "cases": len(found.cases)}
        document |= {"rounds": args.repeat, "models": table.as_json(judged)}
        output.data_json(document | {"compared": [one.as_json(judged) for one in compared]})
    else:
        for one in judged:
            output.table(table.COLUMNS, list(table.rows(one)), title=one.model)
        if compared:
            columns = ("measure", *(one.model for one in judged), "better")
            output.table(columns, [(one.measure, *one.cells, one.better) for one in compared], title="models")
        for name, text in judging.DEFINITIONS:
            output.info(f"{name} = {text}")
    for line in (line for one in judged for line in table.lines(one, args.repeat)):
        output.info(line)
    for one in judged:
        output.info(f"{ranking.headline(one)}.")


def _report(args: argparse.Namespace, models: Sequence[str], local: Any, target: Any) -> bench_report.Report:
    from corral.cli import bench_report

    return bench_report.Report(args.report, models, args.catalog, local, target)


def _write(
    args: argparse.Namespace,
    document: bench_report.Report,
    found: EvalSet,
    asked: Sequence[Asked],
    judged: Sequence[Judged],
    url: str,
) -> Path:
    from corral.evaluation import report

    words = ["--repeat", str(args.repeat)] if args.repeat > 1 else []
    words += ["--timeout", f"{args.timeout:g}"] if args.timeout != _USUAL_LIMIT_S else []
    models = [one.model for one in judged]
    command = options.again(args, "eval", str(args.set), *models, *words, "--report", args.report)
    around = document.surroundings(command, url)
    report.write(document.files, args.report, time.strftime("%Y-%m-%d"), found, asked, judged, around)
    return document.files.document
