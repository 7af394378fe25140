"""Measures a model: the first answer, which loads it, then one level of load after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from corral.bench import load, loads, neighbours
from corral.bench.exchange import Client, Sample, described
from corral.bench.load import Level, Run, Send
from corral.bench.loads import Load, Loader
from corral.bench.prompts import Prompts, body
from corral.errors import CannotRun

_CORRECTIONS = 2  # of the length of a prompt


@dataclass(frozen=True)
class Question:
    """What is asked: the tokens of a prompt and of its answer, which *may_end* by itself before that."""

    prompt_tokens: int
    answer_tokens: int
    may_end: bool = False
    seed: int = 0


@dataclass(frozen=True)
class Measured:
    """A model: seconds to its first answer, a load included, the run of each level, and loads that were measured."""

    model: str
    first_answer_s: float
    runs: tuple[Run, ...]
    loads: tuple[Load, ...] = ()


async def measure(
    client: Client,
    model: str,
    question: Question,
    levels: Sequence[Level],
    report: Callable[[str], None],
    *,
    next_step: str,
    loader: Loader | None = None,
    loads_each: int = 0,
    prompts: Prompts | None = None,
) -> Measured:
    """Measure *model*; what begins is *report*-ed as a line, and *next_step* is for a model without an answer.

    Users begin within the time of an answer, where that is less than their level has for it.

    Before the *levels*, *loader* prepares *loads_each* cold loads and as many warm ones.  *prompts* are those of an
    earlier measurement of the model, which know what its tokenizer makes of a word.

    Raises:
        CannotRun: it gives no whole answer at all, or a neighbour of a level ended by itself.
    """
    is_first = prompts is None
    if prompts is None:
        prompts = Prompts(question.prompt_tokens, question.seed)
    else:
        prompts.resize(question.prompt_tokens)

    async def send(scheduled: float | None) -> Sample:
        asked = body(model, prompts.next(), question.answer_tokens, may_end=question.may_end)
        return await client.send(asked, scheduled)

    first_answer_s = 0.0
    for number in range(1 + _CORRECTIONS):
        sample = await send(None)
        if not sample.is_ok:
            example = f": {sample.example}" if sample.example else ""
            raise CannotRun(
                f"{model} gave no whole answer before the load, but {described(sample.outcome)}{example}",
                next_step=next_step,
            )
        if sample.prompt_tokens is not None:
            prompts.correct(sample.prompt_tokens)
        if number == 0:
            first_answer_s = sample.ended - sample.sent
            if is_first:
                report(f"{model}: its first answer after {first_answer_s:.2f} s, a load included")
    measured = await loads.measure(partial(send, None), loader, loads_each, report, model=model) if loader else ()
    # Of a fast model the first users would otherwise have sent all requests before the last one begins.
    ramp_s = sample.ended - sample.sent
    runs = []
    for level in (replace(one, ramp_s=min(one.ramp_s, ramp_s)) for one in levels):
        most = f", {level.requests} requests at most" if level.requests else ""
        report(f"{model}: {level.name}, {level.seconds:g} s{most} …")
        runs.append(await _run(level, send))
    return Measured(model, first_answer_s, tuple(runs), measured)


async def _run(level: Level, send: Send) -> Run:
    if level.neighbours is None:
        return await load.run(level, send)
    with neighbours.running(level.neighbours) as beside:
        run = await load.run(level, send)
    run.beside = beside
    return run
