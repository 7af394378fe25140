"""The golden command lines of published models: what the engine counts for them, and what the rules add."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import pytest

from corral.vram.oracle import ask
from corral.vram.rules import CONTEXT_AND_POOLS, rules
from tests.support import gguf_models

MODELS = json.loads((Path(__file__).parents[1] / "fixtures" / "vram-golden-b11549.json").read_text())["models"]


@cache
def breakdowns(name):
    """Of every golden command line of a model, in bytes."""
    return ask([gguf_models.header(name)], [cell["argv"] for cell in MODELS[name]], cuda="all")


def parts(counted):
    return {"model": counted.weights, "context": counted.context, "compute": counted.compute}


@pytest.mark.parametrize("name", MODELS)
def test_every_golden_cell_is_equal_in_bytes(name):
    cells = MODELS[name]
    assert [(parts(one.gpu), parts(one.host)) for one in breakdowns(name)] == [
        (cell["gpu"], cell["host"]) for cell in cells
    ]
    assert len(cells) == 15


@pytest.mark.parametrize("name", MODELS)
def test_the_rules_cover_what_cudas_own_buffer_sizes_add(name):
    """The same graph through the same allocator, with alignment, padding and f16 copies as on CUDA."""
    for breakdown in breakdowns(name):
        added = sum(rule.bytes for rule in rules([gguf_models.header(name)], breakdown)) - CONTEXT_AND_POOLS
        more = breakdown.cuda.total - breakdown.gpu.total
        assert more <= added
