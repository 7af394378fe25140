"""Measures what the time of any answer is predicted from: its first token by its prompt, and the others by company."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from corral.bench import figures
from corral.bench.exchange import Client, Sample
from corral.bench.load import Level, Run
from corral.bench.loads import Loader
from corral.bench.measuring import Question, measure
from corral.bench.prompts import Prompts
from corral.catalog.intent import Model
from corral.catalog.ledger import FirstToken, NextToken, Speed
from corral.errors import CannotRun
from corral.latency import prediction

ANSWERS = figures.least_samples(0.95)
"""Answers that the spread of all is measured with."""
ANSWER_TOKENS = 32
_PROMPTS = (64, 256, 1024)
_LEAST_ANSWERS = figures.least_samples(0.5)
_LEAST_OUTPUT = ANSWER_TOKENS // 2
_TEMPLATE_TOKENS = 32
"""Of a prompt, left free for what a chat template adds."""


@dataclass(frozen=True)
class Shape:
    """Requests with prompts of so many tokens, so many at a time."""

    prompt_tokens: int
    at_once: int


def shapes(model: Model) -> tuple[Shape, ...]:
    """What is measured of *model*: each length of a prompt alone, and the shortest with others side by side.

    The longest prompt is that of its latency budgets, where one has a longer one.  Lengths that are nearly the same
    would make a line of noise, and are left out.
    """
    most = max(4, model.context - ANSWER_TOKENS - _TEMPLATE_TOKENS)
    prompts = [min(_PROMPTS[0], most)]
    for tokens in (*_PROMPTS, max((one.prompt_tokens for one in model.latency), default=0)):
        if min(tokens, most) >= prediction.BEYOND * prompts[-1]:
            prompts.append(min(tokens, most))
    if len(prompts) == 1:
        prompts = [prompts[0] // 4, *prompts]
    beside = {2**power for power in range(1, model.parallel.bit_length())} | {model.parallel}
    return (
        *(Shape(tokens, 1) for tokens in prompts),
        *(Shape(prompts[0], at_once) for at_once in sorted(beside - {1})),
    )


@dataclass(frozen=True)
class Runs:
    """The run of each shape, and the median seconds that a cold load adds; None: none was measured."""

    of: Mapping[Shape, Run]
    load_seconds: float | None

    @property
    def invalid(self) -> tuple[str, ...]:
        """Why they show this client, and not the server."""
        return tuple(dict.fromkeys(reason for run in self.of.values() for reason in figures.of(run).invalid))


async def run(
    client: Client,
    model_id: str,
    model: Model,
    report: Callable[[str], None],
    *,
    seconds: float,
    answers: int,
    next_step: str,
    loader: Loader | None = None,
    loads_each: int = 0,
) -> Runs:
    """Measure each of ``shapes``, the first with *loads_each* cold loads before.

    Args:
        client: of the endpoint.
        model_id: the model.
        model: its intent.
        report: receives what begins, as a line.
        seconds: the most that a shape takes.
        answers: of all shapes together.
        next_step: for a model without an answer.
        loader: unloads it.
        loads_each: cold loads, and as many warm ones.

    Raises:
        CannotRun: an answer is not whole, or there are too few.
    """
    wanted, found, load = shapes(model), {}, None
    prompts = Prompts(wanted[0].prompt_tokens)
    each = max(_LEAST_ANSWERS, math.ceil(answers / len(wanted)))
    for number, shape in enumerate(wanted):
        level = Level(users=shape.at_once, seconds=seconds, requests=each + 2 * _edge(shape))
        loads: dict[str, Any] = {"loader": loader, "loads_each": loads_each} if loader and not number else {}
        question = Question(shape.prompt_tokens, ANSWER_TOKENS)
        report(f"{model_id}: {number + 1} of {len(wanted)}, prompts of {shape.prompt_tokens} tokens")
        measured = await measure(
            client, model_id, question, [level], report, next_step=next_step, prompts=prompts, **loads
        )
        (found[shape],) = measured.runs
        _require_whole(model_id, shape, found[shape])
        if cold := [one.seconds for one in measured.loads if one.cold]:
            load = max(0.0, statistics.median(cold) - _median(figures.ttft, found[shape].samples))
    return Runs(found, load)


def speed(runs: Runs, *, model: str, argv_sha256: str, card: str, engine: str, device: str, date: str) -> Speed:
    """What *runs* show, for the ledger; the rest names what was measured, as the fields of ``Speed``."""
    samples = {shape: _steady(shape, one) for shape, one in runs.of.items()}
    alone = {shape.prompt_tokens: of for shape, of in samples.items() if shape.at_once == 1}
    prompts = {asked: round(_median(lambda one: one.prompt_tokens, of)) for asked, of in alone.items()}
    first = {asked: _median(figures.ttft, of) for asked, of in alone.items()}
    following = []
    for shape, of in samples.items():
        output = _median(lambda one: one.output_tokens, of)
        token = (_median(figures.e2e, of) - shape.at_once * first[shape.prompt_tokens]) / (output - 1)
        context = prompts[shape.prompt_tokens] + round(output / 2)
        following.append(NextToken(at_once=shape.at_once, context_tokens=context, seconds=_rounded(max(0.0, token))))
    found = Speed(
        model=model,
        argv_sha256=argv_sha256,
        card=card,
        engine=engine,
        device=device,
        date=date,
        first_token=tuple(
            FirstToken(prompt_tokens=prompts[asked], seconds=_rounded(first[asked])) for asked in sorted(first)
        ),
        next_token=tuple(following),
        answers=sum(map(len, samples.values())),
        p95_ratio=None,
        load_seconds=None if runs.load_seconds is None else _rounded(runs.load_seconds),
    )
    ratios = [figures.e2e(one) / _predicted(found, shape, one) for shape, of in samples.items() for one in of]
    p95 = figures.spread(ratios).p95
    return found.model_copy(update={"p95_ratio": None if p95 is None else _rounded(p95)})


def _predicted(found: Speed, shape: Shape, one: Sample) -> float:
    seconds = prediction.answer_seconds(
        found,
        prompt_tokens=one.prompt_tokens or shape.prompt_tokens,
        answer_tokens=one.output_tokens or ANSWER_TOKENS,
        at_once=shape.at_once,
        parallel=shape.at_once,
    )
    assert seconds, "what was measured is within what was measured"
    return seconds


def _rounded(value: float) -> float:
    """To a microsecond: people read the ledger."""
    return round(value, 6)


def _steady(shape: Shape, run: Run) -> list[Sample]:
    """Without those at the beginning and the end, which had fewer beside them."""
    ordered, edge = sorted(run.samples, key=lambda one: one.sent), _edge(shape)
    return ordered[edge : len(ordered) - edge]


def _edge(shape: Shape) -> int:
    return shape.at_once if shape.at_once > 1 else 0


def _require_whole(model_id: str, shape: Shape, run: Run) -> None:
    shown, what = figures.of(run), f"{model_id}, {shape.at_once} at a time with {shape.prompt_tokens} tokens"
    if shown.failures:
        causes = ", ".join(f"{times} {outcome}" for outcome, times in shown.failures.items())
        raise CannotRun(f"{what}: of {shown.requests} requests {causes}.", next_step=f"corral why {model_id}")
    if len(_steady(shape, run)) < _LEAST_ANSWERS:
        few = f"{shown.ok} answers in {run.level.seconds:g} s, and {_LEAST_ANSWERS + 2 * _edge(shape)} are needed"
        raise CannotRun(f"{what}: {few}.", next_step="Measure longer: --seconds")
    if _median(lambda one: one.output_tokens, run.samples) < _LEAST_OUTPUT:
        short = f"its answers have fewer than {_LEAST_OUTPUT} tokens, and {ANSWER_TOKENS} were asked for"
        raise CannotRun(f"{what}: {short}.", next_step="Serve it with a llama-server that takes ignore_eos")


def _median(of: Callable[[Sample], float | None], samples: Iterable[Sample]) -> float:
    return statistics.median(value for one in samples if (value := of(one)) is not None)
