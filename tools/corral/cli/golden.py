"""Record what a model answers to pinned questions, and prove after a change that it still answers so.

A model that loads and answers may answer worse: weights with flipped bits, a wrong chat template, the projector of
another model, a quantised cache and a new engine can all give HTTP 200.  `record` asks each model pinned questions,
greedily and from no cache, and writes the answers to golden.json of the catalog: review and commit it.  `check` asks
the same of what runs now, and prints what is different: the question, the field, the first other token, both answers.

Compared exactly: the fields of answers that a JSON schema binds, and the tokens of each prompt.  Compared by distance:
the log-probabilities of the first 8 tokens, mean difference over the 10 likeliest, in nats; the limit is 0.05 on the
same engine and machine, and 0.2 across them, and three times that for each question alone.  docs/golden.md has the
measurements behind them, and what they find.

Engine build, files and command line may be others than recorded: that is what is compared, and each is named.  What
cannot be compared (no record, another question, no log-probabilities) is unknown, and exit code 1 like a difference.

Questions of your own go into golden.yaml of the catalog.  Models that take images get images.  Without --endpoint it is
the local stack, with --context the llama-swap in that cluster; what runs there must be what the lock has.

examples:
  corral golden record                        every model, after corral smoke: then commit golden.json
  corral golden check                         exit 1 when an answer is another
  corral golden check qwen3-8b --context homelab --json
  corral golden record qwen3-8b               a difference was wanted: record anew, and review the diff
"""

from __future__ import annotations

import argparse
import asyncio
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from corral import output
from corral.agent.progress import positive_seconds
from corral.catalog import catalog, ledger, tasks
from corral.cli import bench_report, endpoints, options
from corral.errors import ExitCode, Failed, Refused
from corral.golden import asking, comparison, questions, record
from corral.golden.comparison import Checked
from corral.golden.record import UNKNOWN, ModelRecord, Serving
from corral.lock import lock as locks
from corral.measure.live import require_locked_command, require_locked_files
from corral.smoke.endpoint import Endpoint

if TYPE_CHECKING:
    from corral.catalog.catalog import Catalog
    from corral.cli.endpoints import ServedEndpoint
    from corral.engine.stack import Running
    from corral.golden.asking import Asked
    from corral.lock.lock import Lock, LockEntry

_COLUMNS = ("model", "question", "state", "distance", "first difference")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=("record", "check"), help="write golden.json, or compare with it")
    options.add(parser, "models", "--catalog", "--json")
    endpoints.add_argument(parser)
    limit = "limit of each answer, a load included (default: 300)"
    parser.add_argument("--timeout", metavar="SECONDS", type=positive_seconds, default=300.0, help=limit)
    options.add_cluster(parser)


def run(args: argparse.Namespace) -> int:
    """Record, or check."""
    local, target = endpoints.named(args)
    intent = catalog.load(options.catalog_dir(args, local or target))
    chosen = intent.select(args.models) if args.models else []
    models = tasks.chats(intent.models, chosen, f"golden {args.action}")
    recorded = record.read(intent.directory)
    if args.action == "check" and not recorded.models:
        path = record.path_of(intent.directory)
        raise Refused(
            f"Nothing is recorded in {path}.", next_step=options.again(args, "golden", "record", *args.models)
        )
    lock = locks.require(intent.directory) if local or target else None
    with endpoints.opened(args, local, target, command=f"golden {args.action}") as place:
        served = _Served(args, intent, lock, local, place)
        if args.action == "record":
            return _record(served, models)
        found = [_check(served, model, recorded.models.get(model)) for model in models]
    return _show(args, found)


@dataclass(frozen=True)
class _Served:
    """The endpoint, and what is known of what it serves; no *lock*: it is none of corral's."""

    args: argparse.Namespace
    catalog: Catalog
    lock: Lock | None
    local: Running | None
    place: ServedEndpoint

    def ask(self, model: str) -> tuple[Asked, Serving]:
        """What *model* answers, and what serves it.

        Raises:
            Refused: what runs is not what the lock has.
            CannotRun: it is not known what runs.
        """
        entry = self._entry(model)
        output.info(f"{model}: asking its questions …")
        asked = asyncio.run(self._ask(model))
        runs_llama_cpp = entry is None or entry.intent.engine == "llama.cpp"
        engine = self.local.engine.build if self.local and runs_llama_cpp else asked.engine
        if entry is None or self.lock is None:
            return asked, Serving(engine=engine, machine=UNKNOWN, argv_sha256=None, files=None)
        if asked.answers:
            assert self.place.client
            again = options.again(self.args, "golden", self.args.action, model)
            require_locked_command(self.place.client, model, entry.argv, again=again, apply=self.place.start)
        if not self.local:
            engine = ", ".join((engine, self.lock.engine_image or UNKNOWN))
        files = {_file(one.path): one.sha256 for one in entry.files}
        machine = self._machine(entry)
        argv_sha256 = ledger.argv_sha256(entry.argv)
        return asked, Serving(engine=engine, machine=machine, argv_sha256=argv_sha256, files=files)

    async def _ask(self, model: str) -> Asked:
        place, intent = self.place, self.catalog.models[model]
        logs = place.logs or (f"corral logs {model}" if self.local else "the log of the server")
        async with Endpoint(place.root, api_key=place.api_key, trust=place.trust) as api:
            return await asking.ask(
                api,
                model,
                questions.of(self.catalog, model),
                thinks=intent.reasoning != "off",
                limit_s=self.args.timeout,
                logs=logs,
            )

    def _entry(self, model: str) -> LockEntry | None:
        """The lock's entry of *model*, whose files are served."""
        if self.lock is None or self.place.client is None:
            return None
        entry = self.lock.models.get(model)
        if entry is None:
            raise Refused(f"{model} is not in the lock.", next_step="corral lock")
        require_locked_files(self.place.client, model, entry, apply=self.place.start)
        return entry

    def _machine(self, entry: LockEntry) -> str:
        """The machine that serves it: its numbers are repeated exactly by the same engine only."""
        card = entry.intent.card
        if self.local:
            return f"{bench_report.processor()}, {os.cpu_count() or 1} cores, card {card}"
        assert self.lock
        node = self.lock.cards[card].node if card in self.lock.cards else None
        return f"node {node}, card {card}" if node else UNKNOWN


def _file(path: str) -> str:
    """A file of a repository by its path in it, one of this machine by its name."""
    return PurePosixPath(path).name if path.startswith("/") else path


def _record(served: _Served, models: Sequence[str]) -> int:
    folder = served.catalog.directory
    written: dict[str, ModelRecord] = {}
    failed: list[str] = []
    for model in models:
        asked, serving = served.ask(model)
        if asked.problems:
            failed += [f"{model}, {name}: {reason}" for name, reason in asked.problems.items()]
            continue
        date = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        written[model] = ModelRecord(
            date=date, serving=serving, tokens_per_second=asked.tokens_per_second, answers=dict(asked.answers)
        )
        before = record.read(folder)  # one by one: the next model may fail
        record.write(folder, before.model_copy(update={"models": {**before.models, model: written[model]}}))
    rows = [
        (model, name, _on_one_line(answer.fields) if answer.fields is not None else answer.text)
        for model, one in written.items()
        for name, answer in one.answers.items()
    ]
    document = {model: one.model_dump(mode="json") for model, one in written.items()}
    output.result(document, ("model", "question", "answer"), rows, as_json=served.args.json)
    if written:
        output.info(f"Written: {record.path_of(folder)}; read the answers before you commit it")
    if failed:
        lines = "\n".join(failed)
        raise Failed(f"{lines}\nA model without all of its answers is not recorded.", next_step="corral smoke")
    return ExitCode.OK


def _on_one_line(fields: dict[str, Any]) -> str:
    return ", ".join(f"{name}: {value!r}" for name, value in fields.items())


def _check(served: _Served, model: str, recorded: ModelRecord | None) -> Checked:
    if recorded is None:
        anew = options.again(served.args, "golden", "record", model)
        return Checked(model, "unknown", why=f"no answers of it are recorded: {anew}")
    asked, serving = served.ask(model)
    asks = {one.name: one for one in questions.of(served.catalog, model)}
    return comparison.check(model, recorded, asked, asks, serving)


def _show(args: argparse.Namespace, found: Sequence[Checked]) -> int:
    output.result(
        [_document(one) for one in found], _COLUMNS, [row for one in found for row in _rows(one)], as_json=args.json
    )
    for line in (line for one in found for line in _lines(one)):
        output.info(line)
    bad = [one.model for one in found if one.state != "passed"]
    if not bad:
        return ExitCode.OK
    anew = options.again(args, "golden", "record", *bad)
    output.info(f"  → If this was wanted: {anew}, and review the diff. If not: docs/golden.md has causes by difference")
    return ExitCode.FAILED


def _document(one: Checked) -> dict[str, Any]:
    compared = [asdict(each) | {"distance": each.distance} for each in one.compared]
    return asdict(one) | {"compared": compared}


def _rows(one: Checked) -> Iterator[tuple[str, ...]]:
    for each in one.compared:
        yield one.model, each.question, each.state, _nats(each.distance), next(iter(each.differences), "")
    far = one.distance is None or one.distance > one.limit
    state = "unknown" if one.distance is None else "failed" if far else "passed"
    yield (
        one.model,
        "first tokens",
        state,
        _nats(one.distance),
        f"limit {one.limit:g}, {one.why}" if one.compared else one.why,
    )


def _lines(one: Checked) -> Iterator[str]:
    """What a table has no room for: what has moved, the speed, and both answers where they differ."""
    if not one.compared:
        return
    for fact in one.moved:
        yield f"{one.model}: {fact}"
    before, now, wanted = one.parsed
    speeds = " → ".join("?" if speed is None else f"{speed:g}" for speed in one.tokens_per_second)
    yield f"{one.model}: required JSON {before} → {now} of {wanted}; tokens per second {speeds} (not judged)"
    if one.state == "passed":
        return
    for each in one.compared:
        for difference in each.differences:
            yield f"{one.model}, {each.question}: {difference}"
        if each.texts and each.texts[0] != each.texts[1]:
            yield f"{one.model}, {each.question}: recorded {each.texts[0]!r}"
            yield f"{one.model}, {each.question}: now      {each.texts[1]!r}"


def _nats(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
