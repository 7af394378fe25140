"""What a model takes on the card when vLLM serves it, calculated: each part by a rule with its source.

vLLM has no allocator that could be asked without a card, as llama.cpp's is.  It takes the share of the card that it is
given, fills what is left of it with KV pages, and refuses to start when not even one request fits.  So the calculation
begins with the pages that the intent needs, and the share follows.  Every rule errs to the side of too much; a
measurement replaces their sum.  Paths are those of vLLM (https://github.com/vllm-project/vllm), as of ``VERSION``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

from corral.catalog.intent import Model
from corral.catalog.vllm_argv import BLOCK_TOKENS
from corral.catalog.vllm_rules import VERSION
from corral.vram.prediction import Bytes, Prediction, Rule, Rung
from corral.vram.vllm_facts import Facts

ENGINE: Final = f"rules for vLLM {VERSION}"
RULES_VERSION: Final = 1
"""Raised when the rules give other bytes for the same model."""

UNCOUNTED: Final = 612 << 20
"""Bytes of a process that are not in vLLM's share: PyTorch's CUDA context."""
_UNCOUNTED_SOURCE: Final = (
    "not in the share: the CUDA context, made before the first snapshot (vllm/v1/worker/gpu_worker.py, init_device); "
    "612 MiB by nvidia-smi for PyTorch 2.11 with CUDA 13.0 on an H200; smaller cards have less"
)
_WORKSPACES: Final = 144 << 20
_SAMPLER_BYTES: Final = 49
_UNSEEN: Final = 50
"""A fiftieth of the share: what nvidia-smi counts of a card and PyTorch does not see of it."""
_GRAPH_BYTES: Final = 1 << 20
_SMALLEST_RUNG: Final = 2048
_FLOATS: Final = {"float16": 2, "bfloat16": 2, "float32": 4}
_CONVERTED: Final = frozenset({"F64", "F32", "F16", "BF16"})


def predict(facts: Facts, model: Model, name: str) -> Prediction:
    """What *model* takes, and what it would take with other contexts.

    Args:
        facts: of its configuration and weights.
        model: its intent, with ``engine: vllm``.
        name: the sha256 under which the facts are kept.
    """
    gpu, rows = _parts(facts, model, model.context)
    ladder = [Rung(context=at, gpu_bytes=seat_bytes(facts, model, at), host_bytes=0) for at in _rungs(facts)]
    return Prediction(
        engine=ENGINE,
        rules_version=RULES_VERSION,
        headers=(name,),
        context_trained=facts.trained,
        gpu=gpu,
        host=Bytes(weights=0, context=0, compute=0, projector=0),
        rules=rows,
        gpu_bytes=gpu.total + sum(row.bytes for row in rows),
        ladder=tuple(ladder),
    )


def seat_bytes(facts: Facts, model: Model, context: int) -> int:
    """Bytes on the card of *model* with another *context*, in tokens for each request."""
    gpu, rows = _parts(facts, model, context)
    return gpu.total + sum(row.bytes for row in rows)


def budget_bytes(seat: int) -> int:
    """Bytes of a *seat* that are vLLM's own share; the rest is taken outside of it."""
    return max(1, seat - UNCOUNTED)


def pages(model: Model, context: int) -> int:
    """KV pages for ``parallel`` requests of *context* tokens, and the null block (vllm/v1/core/block_pool.py)."""
    return model.parallel * math.ceil(context / BLOCK_TOKENS) + 1


def _parts(facts: Facts, model: Model, context: int) -> tuple[Bytes, tuple[Rule, ...]]:
    settings = model.on_vllm
    assert settings is not None
    wide = _FLOATS[settings.dtype]
    weights = sum(one.elements * wide if name in _CONVERTED else one.bytes for name, one in facts.weights.items())
    cache = 1 if settings.kv_cache_dtype == "fp8" else wide
    kv = pages(model, context) * BLOCK_TOKENS * 2 * facts.kv_heads * facts.head_dim * cache * facts.layers
    query, both = facts.heads * facts.head_dim, 2 * facts.kv_heads * facts.head_dim
    widest = max(3 * facts.intermediate, query + both + query)
    compute = settings.max_batched_tokens * (3 * facts.hidden + widest) * wide
    gpu = Bytes(weights=weights, context=kv, compute=compute, projector=0)
    rows = tuple(row for row in _rules(facts, model, wide) if row.bytes)
    inside = gpu.total + sum(row.bytes for row in rows)
    return gpu, (
        *rows,
        Rule(
            name="vllm-memory-that-pytorch-does-not-see",
            bytes=math.ceil(inside / _UNSEEN),
            source="the share is of what PyTorch sees (request_memory, vllm/v1/worker/utils.py), which is less "
            "than nvidia-smi counts: 143155 of 143771 MiB of an H200",
        ),
        Rule(name="vllm-cuda-context", bytes=UNCOUNTED, source=_UNCOUNTED_SOURCE),
    )


def _rules(facts: Facts, model: Model, wide: int) -> Iterator[Rule]:
    settings = model.on_vllm
    assert settings is not None
    padded = -(-facts.vocabulary // 64) * 64 - facts.vocabulary
    yield Rule(
        name="vllm-vocabulary-padding",
        bytes=padded * facts.hidden * wide * (1 if facts.tied else 2),
        source="rows of the embedding up to a multiple of 64 "
        "(DEFAULT_VOCAB_PADDING_SIZE, vllm/model_executor/layers/vocab_parallel_embedding.py)",
    )
    yield Rule(
        name="vllm-sampler",
        bytes=model.parallel * facts.vocabulary * (wide + _SAMPLER_BYTES),
        source="logits of every request, and top-p over them: 48.5 bytes a logit at most, measured on an H200 for the "
        "operations of vllm/v1/sample/ops/topk_topp_sampler.py; profile_run asks for them (gpu_model_runner.py)",
    )
    sizes = _captured(min(model.parallel * 2, 512, settings.max_batched_tokens)) if settings.cuda_graphs else 0
    yield Rule(
        name="vllm-cuda-graphs",
        bytes=2 * sizes * facts.layers * _GRAPH_BYTES,
        source=f"{sizes} sizes, captured piecewise and whole (vllm/config/vllm.py), 1 MiB a layer each: published are "
        "0.4 MiB (35 sizes of Llama-3.2-1B in 0.21 GiB, vLLM pull request 11349) to 26 MiB a size (22897)",
    )
    yield Rule(
        name="vllm-workspaces",
        bytes=_WORKSPACES,
        source="cuBLAS, and what PyTorch's allocator keeps for compiled kernels: 144 MiB on an H200",
    )


def _captured(largest: int) -> int:
    """How many batch sizes vLLM captures up to *largest*: 1, 2, 4, each 8 up to 256, each 16 above."""
    small = sum(size <= largest for size in (1, 2, 4))
    return small + min(largest, 255) // 8 + max(0, (largest - 256) // 16 + 1)


def _rungs(facts: Facts) -> Iterator[int]:
    context = _SMALLEST_RUNG
    while context < 2 * facts.trained:
        yield min(context, facts.trained)
        context *= 2
