"""The largest context of each model that its card has room for, to within 256 tokens, as the engine predicts.

The lock's ladder gives a first guess; then the embedded engine predicts over the headers beside the lock, until it
has predicted a context that fits and the next one, which does not.
"""

from __future__ import annotations

import bisect
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from corral.catalog.argv import llama_server_argv
from corral.catalog.catalog import Catalog
from corral.catalog.intent import Model
from corral.errors import CannotRun, EngineCannotPredict, UnreadableHeader
from corral.lock import headers
from corral.lock.lock import Lock, LockEntry
from corral.seating.chart import Chart
from corral.vram import vllm_seat
from corral.vram.prediction import MIB
from corral.vram.vllm_facts import Facts

STEP = 256
"""Tokens between the contexts that are offered; llama.cpp pads the KV cache to as many."""

_ALIGNMENT = 64 << 10
"""Bytes.  A rung differs by less than 4 KiB from a prediction with that context: buffers are aligned otherwise."""

_WINDOW = (0, 1)
"""Steps around the guess that the engine predicts in one request."""

Predict = Callable[[Sequence[int]], Mapping[int, int]]
"""Gives predicted bytes on the card by context, for each of the contexts in the request."""


@dataclass(frozen=True)
class Largest:
    """The largest context that fits.

    Attributes:
        tokens: per request slot; None when none fits.
        proved: whether the engine has predicted it and the next one; else it is the ladder's rung.
    """

    tokens: int | None
    proved: bool


@dataclass(frozen=True)
class _Question:
    """What decides whether a context of one model fits.

    Attributes:
        context: the present one.
        grid: the contexts that may be offered, ascending.
        known: predicted bytes by context, of the lock.
        floor: bytes that are declared.
        limit: bytes that the prediction or the declaration may take; negative where other models leave no room.
    """

    context: int
    grid: Sequence[int]
    known: Mapping[int, int]
    floor: int
    limit: int

    def fits(self, predicted: int) -> bool:
        return max(predicted, self.floor) <= self.limit

    def without_engine(self) -> Largest | None:
        """The result that takes no engine: nothing fits, only a declaration is known, or the largest context fits."""
        if self.floor > self.limit or not self.grid:
            return Largest(None, proved=True)
        if not self.known:
            return Largest(self.context, proved=False)
        top = self.known.get(self.grid[-1])
        return Largest(self.grid[-1], proved=True) if top is not None and self.fits(top + _ALIGNMENT) else None

    def by_engine(self, predict: Predict) -> Largest:
        """The result by the engine; where it is not here, or cannot, the largest rung of the ladder that fits."""
        try:
            return Largest(search(self.grid, self.known, self.fits, predict), proved=True)
        except (CannotRun, EngineCannotPredict, UnreadableHeader):
            on_ladder = (context for context, total in self.known.items() if self.fits(total))
            return Largest(max(on_ladder, default=None), proved=False)


def largest(catalog: Catalog, lock: Lock, chart: Chart, models: Iterable[str] | None = None) -> dict[str, Largest]:
    """The largest context of each of *models* (all when None) that fits when nothing else changes.

    Up to the trained context, or the present one where RoPE scaling makes that larger.  What was measured above the
    prediction is added for every context: it is not assumed to vanish with the context.  *catalog* has the intents as
    they are written: a default may depend on the context.
    """
    runs = lock.engine.runs if lock.engine else None
    questions = {
        model_id: _question(catalog.models[model_id], lock.models[model_id], chart, model_id)
        for model_id in (lock.models if models is None else models)
    }
    found = {model_id: known for model_id, question in questions.items() if (known := question.without_engine())}

    def search_by_engine(model_id: str) -> Largest:
        model, entry = catalog.models[model_id], lock.models[model_id]
        return questions[model_id].by_engine(partial(_predict, catalog.directory, model_id, model, entry, runs))

    if rest := [model_id for model_id in questions if model_id not in found]:
        from concurrent.futures import ThreadPoolExecutor  # slow to import

        with ThreadPoolExecutor(os.cpu_count()) as pool:
            found |= zip(rest, pool.map(search_by_engine, rest), strict=True)
    return found


def _question(model: Model, entry: LockEntry, chart: Chart, model_id: str) -> _Question:
    predicted, context = entry.predicted, entry.intent.context
    declared = entry.intent.vram.bytes if entry.intent.vram else 0
    surplus = entry.seat.bytes - max(predicted.gpu_bytes or 0, declared)
    room_mib = chart.room_mib(model_id)
    limit = room_mib * MIB - surplus if chart.others_mib(model_id) <= room_mib else -1
    known = {rung.context: rung.gpu_bytes for rung in predicted.ladder}
    if predicted.gpu_bytes is not None:
        known[context] = predicted.gpu_bytes
    top = max(predicted.context_trained or 0, context)
    # An image of that many tokens must fit in; without a number of its own the limit follows the context.
    above = model.image_max_tokens or (1 if model.vision else 0)
    grid = sorted(at for at in {*range(STEP, top + 1, STEP), *known, top} if above < at <= top)
    return _Question(context, grid, {at: known[at] for at in grid if at in known}, declared, limit)


def search(grid: Sequence[int], known: Mapping[int, int], fits: Callable[[int], bool], predict: Predict) -> int | None:
    """The largest of *grid* that fits; *predict* has given its bytes, and those of the next one, which does not fit.

    Args:
        grid: contexts, ascending.
        known: bytes by context that a guess is made from; contexts of *grid*.
        fits: whether so many bytes fit.
        predict: gives the bytes that count.
    """
    predicted: dict[int, int] = {}
    while True:
        found = {**known, **predicted}
        fitting = [at for at, total in found.items() if fits(total)]
        low = bisect.bisect_left(grid, max(fitting)) if fitting else -1
        above = [at for at, total in found.items() if not fits(total) and (low < 0 or at > grid[low])]
        high = bisect.bisect_left(grid, min(above)) if above else len(grid)
        proved = (low < 0 or grid[low] in predicted) and (high == len(grid) or grid[high] in predicted)
        if high - low == 1 and proved:
            return grid[low] if low >= 0 else None
        guess = min(max(_guess(grid, found, fits, low, high), low), high - 1)
        window = {guess + step for step in _WINDOW} | ({(low + high) // 2} if predicted else set())
        inside = [grid[at] for at in sorted(window) if max(low, 0) <= at <= min(high, len(grid) - 1)]
        predicted |= predict([context for context in inside if context not in predicted])


def _guess(grid: Sequence[int], found: Mapping[int, int], fits: Callable[[int], bool], low: int, high: int) -> int:
    """The place in *grid* of the largest context that fits on a straight line through what is known around it."""
    if low >= 0 and high < len(grid):
        ends = [grid[low], grid[high]]
    else:  # beyond what is known: the line through the two nearest points
        ends = sorted(found)[:2] if low < 0 else sorted(found)[-2:]
    if len(ends) < 2:
        return (low + high) // 2
    start, slope = ends[0], (found[ends[1]] - found[ends[0]]) / (ends[1] - ends[0])
    between = range(max(low, 0), min(high, len(grid)))
    fitting = bisect.bisect_left(
        between, True, key=lambda at: not fits(round(found[start] + (grid[at] - start) * slope))
    )
    return between.start + fitting - 1


def _predict(
    catalog: Path, model_id: str, model: Model, entry: LockEntry, runs: str | None, contexts: Sequence[int]
) -> dict[int, int]:
    """Bytes on the card by context, by the embedded engine over the headers that were kept."""
    from corral.vram import oracle, predict, rules
    from corral.vram.gguf_header import parse_fixture

    kept = [headers.read(catalog, sha256) for sha256 in entry.predicted.headers]
    if model.engine == "vllm" and kept and kept[0] is not None:
        facts = Facts.parse(kept[0])
        return {context: vllm_seat.seat_bytes(facts, model, context) for context in contexts}
    parsed = [parse_fixture(header) for header in kept if header is not None]
    if not parsed or len(parsed) < len(kept):
        raise UnreadableHeader(f"{model_id}: its headers are not beside the lock.", next_step="corral lock")
    argvs = [llama_server_argv(model_id, at_context(model, context), entry.files) for context in contexts]
    counts = oracle.ask(parsed, argvs, cuda="all")
    return {
        context: predict.total(count, rules.rules(parsed, count, runs=runs))
        for context, count in zip(contexts, counts, strict=True)
    }


def at_context(model: Model, context: int) -> Model:
    """*model* as its file would be read with another *context* (tokens per request slot)."""
    return Model.model_validate(model.model_dump(exclude_unset=True) | {"context": context})
