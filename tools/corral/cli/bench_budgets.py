"""``corral bench --budgets``: each latency budget of the catalog, measured with its consumer's own load."""

from __future__ import annotations

import argparse
import asyncio
from typing import TYPE_CHECKING

from corral import output
from corral.bench import budgets
from corral.bench.budgets import Outcome
from corral.bench.exchange import Client
from corral.bench.verdict import Goal, State
from corral.catalog import tasks
from corral.cli import endpoints, options
from corral.errors import ExitCode, Refused
from corral.lock import lock as locks
from corral.smoke.endpoint import require_sendable

if TYPE_CHECKING:
    from corral.cli.endpoints import ServedEndpoint
    from corral.lock.lock import Lock

_CODES = {State.FAILS: ExitCode.FAILED, State.UNKNOWN: ExitCode.FAILED, State.INVALID: ExitCode.INVALID}
"""The exit code of a budget that is not kept; of several the greatest."""


def run(args: argparse.Namespace) -> int:
    """Measure every budget of the models that *args* name, or of all.

    Raises:
        Refused: there is no budget, or no catalog belongs to the endpoint.
        CannotRun: a model gives no whole answer.
    """
    local, target = endpoints.named(args)
    if not (local or target):
        message = "--budgets needs the local stack or a cluster: an endpoint elsewhere has no catalog with budgets."
        raise Refused(message, next_step="corral up --detach, or --context NAME")
    lock = locks.require(options.catalog_dir(args, local or target))
    for model in args.models:
        if model not in lock.models:
            raise Refused(f"{model} is not in the lock.", next_step=f"It has: {', '.join(sorted(lock.models))}")
        tasks.require_chat(model, lock.models[model].intent, "bench --budgets")
    wanted = [
        (model, goal)
        for model in args.models or sorted(lock.models)
        for goal in budgets.goals(lock.models[model].intent)
    ]
    if not wanted:
        which = ", ".join(args.models) or "No model"
        message = f"{which} {'has no' if args.models else 'has a'} latency budget."
        raise Refused(message, next_step="Add `latency:` to the model's file: docs/models.md")
    with endpoints.opened(args, local, target, command="bench --budgets") as endpoint:
        found = asyncio.run(_measure(args, endpoint, lock, wanted))
    output.result(
        [one.as_json() for one in found], budgets.COLUMNS, [budgets.row(one) for one in found], as_json=args.json
    )
    if not args.json:
        output.info(
            "p95: seconds to the end of 95 of 100 answers, waiting included; serving: the engine's own part of it"
        )
    states = {one.state for one in found}
    return max((code for state, code in _CODES.items() if state in states), default=ExitCode.OK)


async def _measure(
    args: argparse.Namespace, endpoint: ServedEndpoint, lock: Lock, wanted: list[tuple[str, Goal]]
) -> list[Outcome]:
    require_sendable(endpoint.api_key)
    limits = {"silence_s": args.silence, "timeout_s": args.timeout}
    how = {
        "seconds": args.seconds or budgets.SECONDS,
        "requests": args.requests or budgets.REQUESTS,
        "may_end": args.may_end,
        "seed": args.seed,
    }
    async with Client(endpoint.root, api_key=endpoint.api_key, trust=endpoint.trust, **limits) as client:
        return [
            await budgets.measure(client, model, lock.models[model].intent, goal, output.info, **how)
            for model, goal in wanted
        ]
