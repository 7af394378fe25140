"""Golden questions to real engines: as they are, and each with one fault that HTTP 200 does not show."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from gguf import GGUFReader

from corral.golden import asking, comparison, questions
from corral.golden.asking import Asked
from corral.golden.comparison import Checked
from corral.golden.questions import Question
from corral.golden.record import ModelRecord, Serving
from corral.smoke.endpoint import Endpoint
from corral.vram import gguf_header
from tests.support.engine_process import engine

HERE = Serving(engine="b1", machine="this one", argv_sha256="a" * 64, files={"model.gguf": "b" * 64})
ELSEWHERE = HERE.model_copy(update={"engine": "b2", "machine": "another"})
TEXT = questions.TEXT
VISION = questions.VISION
PLAIN = ("-t", "1", "-np", "1", "-fa", "on", "--reasoning", "off")
"""One thread: on a busy machine two wait for each other."""


@contextlib.contextmanager
def serving(folder: Path, weights: Path, *flags: object) -> Iterator[str]:
    """The address of an engine of *weights* with *flags* (the last of a kind counts)."""
    with engine(folder, "-m", weights, *PLAIN, *flags) as running:
        running.wait_until_ready()
        yield running.root


def ask(root: str, asks: Sequence[Question]) -> Asked:
    """The answers of the engine at *root*."""

    async def go() -> Asked:
        async with Endpoint(root) as api:
            return await asking.ask(api, "m", asks, thinks=False, limit_s=250, logs="its log")

    return asyncio.run(go())


def answers(folder: Path, weights: Path, *flags: object, asks: Sequence[Question] = TEXT) -> Asked:
    """The answers of an engine that is started for them."""
    with serving(folder, weights, *flags) as root:
        return ask(root, asks)


def recorded(asked: Asked) -> ModelRecord:
    """*asked* as a record of ``HERE``."""
    assert not asked.problems, asked.problems
    return ModelRecord(
        date="2026-11-24T00:00:00Z", serving=HERE, tokens_per_second=asked.tokens_per_second, answers=asked.answers
    )


def check(record: ModelRecord, now: Asked, where: Serving = HERE, asks: Sequence[Question] = TEXT) -> Checked:
    """*now*, of an engine *where*, against *record*."""
    return comparison.check("m", record, now, {one.name: one for one in asks}, where)


def flip_bits(source: Path, target: Path, count: int, *, seed: int = 1) -> Path:
    """Write *source* to *target* with a bit flipped in each of *count* bytes of its tensors."""
    content = bytearray(source.read_bytes())
    first = gguf_header.parse(content).size
    chosen = random.Random(seed)
    for at in chosen.sample(range(first, len(content)), count):
        content[at] ^= 1 << chosen.randrange(8)
    target.write_bytes(content)
    return target


def foreign_projector(source: Path, target: Path) -> Path:
    """Write the projector *source* to *target* as one of another model: of the same shape, with other weights."""
    target.write_bytes(source.read_bytes())
    tensors = {tensor.name: tensor for tensor in GGUFReader(target, "r+").tensors}
    for name in ("mm.0.weight", "mm.2.weight"):
        data = tensors[name].data
        data[...] = np.random.default_rng(1).normal(0, 0.3, data.shape)
    return target
