"""``corral bench --budgets``: each latency budget of the catalog, measured with its consumer's own load."""

from __future__ import annotations

import argparse
import asyncio
from typing import TYPE_CHECKING

from corral import output
from corral.bench import budgets
from corral.bench.budgets import Outcome
from corral.bench.exchange import Client
from corral.bench.load import Level
from corral.bench.measuring import Question, measure
from corral.bench.verdict import Goal, State
from corral.cli import endpoints, options
from corral.errors import ExitCode, Refused
from corral.lock import lock as locks
from corral.smoke.endpoint import require_sendable

if TYPE_CHECKING:
    from corral.cli.endpoints import ServedEndpoint
    from corral.lock.lock import Lock

_USUAL_SECONDS = 1800.0
_CODES = {State.FAILS: ExitCode.FAILED, State.UNKNOWN: ExitCode.FAILED, State.INVALID: ExitCode.INVALID}
"""The exit code of a budget that is not kept; of several the greatest."""


def goals(lock: Lock, model: str) -> list[Goal]:
    """The latency budgets of *model*; none of a model that is not in *lock*."""
    entry = lock.models.get(model)
    return [
        Goal(one.consumer, one.prompt_tokens, one.answer_tokens, one.p95_seconds, one.requests_at_once)
        for one in (entry.intent.latency if entry else ())
    ]


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
    wanted = [(model, goal) for model in args.models or sorted(lock.models) for goal in goals(lock, model)]
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
    found = []
    async with Client(endpoint.root, api_key=endpoint.api_key, trust=endpoint.trust, **limits) as client:
        for model, goal in wanted:
            output.info(f"{model}: the budget of {goal.consumer}, {budgets.REQUESTS} answers")
            level = Level(
                users=goal.requests_at_once,
                seconds=args.seconds or _USUAL_SECONDS,
                requests=args.requests or budgets.REQUESTS,
            )
            question = Question(goal.prompt_tokens, goal.answer_tokens, args.may_end, args.seed)
            step = f"corral why {model}"
            measured = await measure(client, model, question, [level], output.info, next_step=step)
            parallel = lock.models[model].intent.parallel
            found.append(budgets.judge(model, goal, measured.runs[0], parallel=parallel))
    return found
