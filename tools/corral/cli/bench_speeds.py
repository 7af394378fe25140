"""``corral bench --speeds``: what the time of any answer is predicted from, written to the catalog's measured.json."""

from __future__ import annotations

import argparse
import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from corral import output
from corral.bench import speeds
from corral.bench.exchange import Client
from corral.bench.measuring import Question, measure
from corral.catalog import ledger, tasks
from corral.catalog.ledger import CPU, Speed
from corral.cli import card, endpoints, latency_table, options
from corral.cli.local_loader import LocalLoader
from corral.errors import CannotRun, ExitCode, Refused
from corral.latency.budgets import State
from corral.lock.relock import write_measurements
from corral.measure.live import require_locked_command
from corral.smoke.endpoint import require_sendable

if TYPE_CHECKING:
    from collections.abc import Callable

    from corral.bench.speeds import Runs
    from corral.cli.endpoints import ServedEndpoint
    from corral.exporter.account import CardAccount
    from corral.lock.lock import LockEntry

_USUAL_SECONDS = 1800.0
_USUAL_LOADS = 3
_COLUMNS = ("model", "tokens", "at once", "first token", "next token")
_MEASURE_AGAIN = "Measure again with less other work on this machine, or from another machine"


def run(args: argparse.Namespace) -> int:
    """Measure the models that *args* name, or all, and write each down.

    Raises:
        Refused: no fresh catalog belongs to the endpoint, or another command line runs.
        CannotRun: a model gives no whole answers, or its card is unknown.
    """
    local, target = endpoints.named(args)
    if not (local or target):
        message = "--speeds needs the local stack or a cluster: an endpoint elsewhere has no catalog to write to."
        raise Refused(message, next_step="corral up --detach, or --context NAME")
    wanted, lock = options.locked_catalog(options.catalog_dir(args, local or target))
    if local is None and args.loads:
        message = "--loads needs the local stack: the page cache is that of the machine that serves."
        raise Refused(message, next_step="Leave out --loads")
    models = tasks.chats(wanted.models, wanted.select(args.models) if args.models else [], "bench --speeds")
    read = card.reader(wanted.directory, target)
    home, invalid = wanted.directory, False
    found: list[Speed] = []
    with endpoints.opened(args, local, target, command="bench --speeds") as endpoint:
        assert endpoint.client
        for model_id in models:
            entry = lock.models[model_id]
            loader = None
            if local:
                locked, store = options.lock_and_store(args, local)
                loader = LocalLoader(locked, store, model_id, local.client())
            runs = asyncio.run(_measure(args, endpoint, model_id, entry, loader))
            if runs.invalid:
                output.info(f"{model_id}: nothing was written, the run is invalid: {'; '.join(runs.invalid)}")
                output.info(f"  → {_MEASURE_AGAIN}")
                invalid = True
                break
            one = speeds.speed(
                runs,
                model=model_id,
                argv_sha256=ledger.argv_sha256(entry.argv),
                card=entry.intent.card,
                engine=local.engine.build if local else lock.engine_image or "unknown",
                device=_device(read, entry.intent.card, is_local=local is not None),
                date=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            )
            write_measurements(home, model_id, entry, ledger.read(home).with_speed(one))
            found.append(one)
    forecasts = latency_table.forecasts({one.model: lock.models[one.model] for one in found}, ledger.read(home))
    document = {
        "ledger": str(ledger.path_of(home)),
        "speeds": [one.model_dump(mode="json") for one in found],
        "latency": [one.as_json() for one in forecasts],
    }
    output.result(document, _COLUMNS, [row for one in found for row in _rows(one)], as_json=args.json)
    if found and not args.json:
        latency_table.show(forecasts)
        output.info(f"{ledger.path_of(home)} and {wanted.lock_file} written")
    if invalid:
        return ExitCode.INVALID
    return ExitCode.FAILED if any(one.state is State.IMPOSSIBLE for one in forecasts) else ExitCode.OK


async def _measure(
    args: argparse.Namespace, endpoint: ServedEndpoint, model_id: str, entry: LockEntry, loader: LocalLoader | None
) -> Runs:
    require_sendable(endpoint.api_key)
    limits = {"silence_s": args.silence, "timeout_s": args.timeout}
    step = f"corral why {model_id}"
    async with Client(endpoint.root, api_key=endpoint.api_key, trust=endpoint.trust, **limits) as client:
        await measure(client, model_id, Question(speeds.ANSWER_TOKENS, 1), [], output.info, next_step=step)
        assert endpoint.client
        steps = {"again": f"corral bench --speeds {model_id}", "apply": endpoint.start}
        await asyncio.to_thread(require_locked_command, endpoint.client, model_id, entry.argv, **steps)
        return await speeds.run(
            client,
            model_id,
            entry.intent,
            output.info,
            seconds=args.seconds or _USUAL_SECONDS,
            answers=args.requests or speeds.ANSWERS,
            next_step=step,
            loader=loader,
            loads_each=args.loads or _USUAL_LOADS,
        )


def _device(read: Callable[[], tuple[CardAccount, ...]], name: str, *, is_local: bool) -> str:
    """The card *name* as its driver names it; the processor of a local stack without one."""
    account = next((one for one in read() if one.name == name), None)
    if account and account.driver:
        return account.driver.name
    if account and is_local and account.unknown in card.NO_CARD:
        return CPU
    problem = f"Which device card {name} is, is unknown{f': {account.problem}' if account else ''}."
    raise CannotRun(problem, next_step="corral card")


def _rows(one: Speed) -> list[tuple[str, ...]]:
    first = {each.prompt_tokens: each.seconds for each in one.first_token}
    prompt_of = dict(zip([each.context_tokens for each in one.next_token if each.at_once == 1], first, strict=True))
    return [
        (
            one.model,
            str(prompt_of[each.context_tokens]),
            str(each.at_once),
            f"{1000 * first[prompt_of[each.context_tokens]]:.0f} ms",
            f"{1000 * each.seconds:.2f} ms",
        )
        for each in one.next_token
    ]
