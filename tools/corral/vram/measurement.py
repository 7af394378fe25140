"""All VRAM rows of one model: the engine's count, the rules on top, and the same for a ladder of contexts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pydantic import ValidationError

from corral.agent.lock_file import LockedFile
from corral.catalog.argv import llama_server_argv
from corral.catalog.intent import Model
from corral.errors import EngineCannotMeasure
from corral.vram import from_header, oracle
from corral.vram.gguf_header import GgufHeader
from corral.vram.oracle import Breakdown, Bytes
from corral.vram.rules import Rule, padding_of, rules

SMALLEST_RUNG = 2048
"""Tokens per request slot of the lowest rung; each further one has twice as many."""

_STATES_ANOTHER_CONTEXT = frozenset({"--override-kv", "--rope-scale", "--rope-freq-scale"})
"""Flags with which the engine's trained context is not the header's."""


@dataclass(frozen=True)
class Rung:
    """What the model takes with another context.

    Attributes:
        context: tokens per request slot.
        gpu_total: bytes on the card, rules included.
        host_total: bytes of host memory.
    """

    context: int
    gpu_total: int
    host_total: int


@dataclass(frozen=True)
class Measurement:
    """What a model takes with its command line.

    Attributes:
        engine: the build that was asked.
        context_trained: tokens that the model was trained for.
        gpu: bytes on the card as the engine counts them.
        host: bytes of host memory.
        rules: further bytes on the card.
        gpu_total: all bytes on the card.
        ladder: the same with other contexts, smallest first; the trained one is the last.
        projector_type: number format of most of the projector's bytes; None without a projector.
    """

    engine: str
    context_trained: int
    gpu: Bytes
    host: Bytes
    rules: tuple[Rule, ...]
    gpu_total: int
    ladder: tuple[Rung, ...]
    projector_type: str | None


def measure_model(
    model_id: str, model: Model, files: Sequence[LockedFile], headers: Sequence[GgufHeader], argv: Sequence[str]
) -> Measurement:
    """Measure *argv*, and beside it what the same model would take with other contexts.

    Args:
        model_id: the catalog's name of the model.
        model: its intent, from which the other contexts' command lines are made.
        files: its locked files.
        headers: of these files, in the same order.
        argv: its command line, as the lock has it.

    Raises:
        EngineCannotMeasure: the engine cannot, or the headers give other numbers than the engine.
        ProgramMissing: the embedded engine is not installed.
    """
    contexts = dict(_rungs(model_id, model, files, headers[0]))
    first, *others = oracle.measure(headers, [argv, *contexts.values()], at_least=1)
    measured = [(list(argv), first), *zip(contexts.values(), others, strict=False)]
    for words, breakdown in measured:
        _cross_check(model_id, headers, words, breakdown)
    rows = rules(headers, argv, first)
    padding = padding_of(first)
    ladder = [
        Rung(context, total(breakdown, rules(headers, words, breakdown, padding=padding)), breakdown.host.total)
        for context, (words, breakdown) in zip(contexts, measured[1:], strict=False)
    ]
    return Measurement(
        engine=first.engine,
        context_trained=first.context_trained,
        gpu=first.gpu,
        host=first.host,
        rules=rows,
        gpu_total=total(first, rows),
        ladder=tuple(ladder),
        projector_type=headers[-1].main_type if files[-1].role == "projector" else None,
    )


def total(breakdown: Breakdown, rows: Sequence[Rule]) -> int:
    """Bytes on the card in all."""
    return breakdown.gpu.total + sum(rule.bytes for rule in rows)


def _rungs(
    model_id: str, model: Model, files: Sequence[LockedFile], header: GgufHeader
) -> Iterator[tuple[int, list[str]]]:
    """Contexts (tokens per request slot) with the command lines they would have; those that the intent allows."""
    trained = _trained(header)
    context = SMALLEST_RUNG
    while context < 2 * trained:
        at = min(context, trained)
        try:
            other = Model.model_validate(model.model_dump(exclude_unset=True) | {"context": at})
        except ValidationError:
            pass  # two images no longer fit into it, say
        else:
            yield at, llama_server_argv(model_id, other, files)
        context *= 2


def _trained(header: GgufHeader) -> int:
    return int(header.metadata.get(f"{header.architecture}.context_length", 0))


def _cross_check(model_id: str, headers: Sequence[GgufHeader], argv: Sequence[str], breakdown: Breakdown) -> None:
    problems = from_header.disagreements(headers, argv, breakdown)
    trained = _trained(headers[0])
    if trained not in (0, breakdown.context_trained) and _STATES_ANOTHER_CONTEXT.isdisjoint(argv):
        problems.append(f"trained context: the engine says {breakdown.context_trained:,}, the header {trained:,}")
    if problems:
        message = f"{model_id}: the engine and the model's own header disagree: {'; '.join(problems)}."
        raise EngineCannotMeasure(message, next_step=f"Report it; then correct its YAML file, {oracle.DECLARE}")
