"""Predicts what a model takes: the engine's count, the rules on top, and the same for a ladder of contexts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pydantic import ValidationError

from corral.agent.lock_file import LockedFile
from corral.catalog.argv import llama_server_argv
from corral.catalog.intent import Model
from corral.errors import EngineCannotPredict
from corral.vram import from_header, oracle
from corral.vram.gguf_header import GgufHeader
from corral.vram.oracle import Breakdown
from corral.vram.prediction import Prediction, Rule, Rung
from corral.vram.rules import RULES_VERSION, padding_of, rules

SMALLEST_RUNG = 2048
"""Tokens per request slot of the lowest rung; each further one has twice as many."""

_STATES_ANOTHER_CONTEXT = frozenset({"--override-kv", "--rope-scale", "--rope-freq-scale"})
"""Flags with which the engine's trained context is not the header's."""


def predict_model(
    model_id: str,
    model: Model,
    files: Sequence[LockedFile],
    headers: Sequence[GgufHeader],
    argv: Sequence[str],
    *,
    names: Sequence[str],
    runs: str | None = None,
) -> Prediction:
    """What *argv* takes, and beside it what the same model would take with other contexts.

    Args:
        model_id: the catalog's name of the model.
        model: its intent, from which the other contexts' command lines are made.
        files: its locked files.
        headers: of these files, in the same order.
        argv: its command line, as the lock has it.
        names: the sha256 of each header, under which it is kept.
        runs: the build of llama.cpp in the image that runs it; None where no image is named.

    Raises:
        EngineCannotPredict: the engine cannot, or the headers give other numbers than the engine.
        ProgramMissing: the embedded engine is not installed.
    """
    contexts = dict(_rungs(model_id, model, files, headers[0]))
    argvs = [argv, *contexts.values()]
    first, *others = found = oracle.ask(headers, argvs, at_least=1)
    for words, breakdown in zip(argvs, found, strict=False):
        _cross_check(model_id, headers, words, breakdown)
    rows = rules(headers, first, runs=runs)
    ladder = []
    for context, breakdown in zip(contexts, others, strict=False):
        on_card = total(breakdown, rules(headers, breakdown, padding=padding_of(first), runs=runs))
        ladder.append(Rung(context=context, gpu_bytes=on_card, host_bytes=breakdown.host.total))
    return Prediction(
        engine=oracle.ENGINE,
        rules_version=RULES_VERSION,
        headers=tuple(names),
        context_trained=trained_context(headers[0]),
        gpu=first.gpu,
        host=first.host,
        rules=rows,
        gpu_bytes=total(first, rows),
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
    trained = trained_context(header) or 0
    context = SMALLEST_RUNG
    while context < 2 * trained:
        at = min(context, trained)
        try:
            other = Model.model_validate(model.model_dump(exclude_unset=True) | {"context": at})
        except ValidationError:
            pass  # for example, two images no longer fit into it
        else:
            yield at, llama_server_argv(model_id, other, files)
        context *= 2


def trained_context(header: GgufHeader) -> int | None:
    """Tokens that the model of *header* was trained for, by its own metadata; None when it does not state them."""
    trained = header.metadata.get(f"{header.architecture}.context_length")
    return trained if isinstance(trained, int) and trained > 0 else None


def dimension(header: GgufHeader) -> int | None:
    """Numbers of a pooled text of the model of *header*; None when it does not state them."""
    found = (header.metadata.get(f"{header.architecture}.embedding_length{end}") for end in ("_out", ""))
    return next((one for one in found if isinstance(one, int) and one > 0), None)


def _cross_check(model_id: str, headers: Sequence[GgufHeader], argv: Sequence[str], breakdown: Breakdown) -> None:
    problems = from_header.disagreements(headers, argv, breakdown)
    trained = trained_context(headers[0])
    if trained not in (None, breakdown.context_trained) and _STATES_ANOTHER_CONTEXT.isdisjoint(argv):
        problems.append(f"trained context: the engine states {breakdown.context_trained:,}, the header {trained:,}")
    if problems:
        message = f"{model_id}: the engine and the model's own header disagree: {'; '.join(problems)}."
        raise EngineCannotPredict(message, next_step=f"Report it; then correct its YAML file, {oracle.DECLARE}")
