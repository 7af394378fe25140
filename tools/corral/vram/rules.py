"""What a model takes on the card beyond what the engine counts, each as a row of its own with its source.

The engine counts what it reserves when it loads.  Its count lacks the CUDA driver, is made over a pretend card that is
not CUDA's, and covers one image of warm-up size.  Every row errs to the side of too much; one that is 0 is left out.
Functions and files are those of llama.cpp (https://github.com/ggml-org/llama.cpp), as of b11434.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from corral.engine import builds
from corral.engine.embedded import ENGINE, LLAMA_CPP_BUILD
from corral.errors import EngineCannotPredict
from corral.vram.gguf_header import GgufHeader
from corral.vram.oracle import Breakdown
from corral.vram.prediction import Bytes, Prediction, Rule

ENGINE_DRIFT = "engine-drift"

RULES_VERSION = 1
"""Of these rules and the ladder: raised when either gives other bytes for the same model."""

CONTEXT_AND_POOLS = 150 << 20
"""Bytes for the CUDA context, its memory pools and cuBLAS's workspace."""

_FLOAT = 4
_BATCHED = frozenset({"gemma4v", "internvl", "deepseekocr", "deepseekocr2"})
"""Projector types whose graph takes several images at once (``support_batch`` in ``tools/mtmd/models/models.h``)."""
_TILE_TOKENS = 256
"""Tokens of one tile, of the types among them that cut an image into tiles of one size."""
_ROUTER_TENSORS = 4  # probabilities, order, selected, weights


def rules(
    headers: Sequence[GgufHeader], breakdown: Breakdown, *, padding: int = 0, runs: str | None = None
) -> tuple[Rule, ...]:
    """The rows for *breakdown*, the largest cause last; their sum and ``breakdown.gpu`` are the model's seat.

    Args:
        headers: the model's shards, and its projector last when there is one.
        breakdown: the engine's count for a command line.
        padding: bytes of ``cuda-row-padding`` of another context of the same model, where *breakdown* is without CUDA.
        runs: the build of llama.cpp in the image that runs the model; None where no image is named.
    """
    found = (
        *_projector(headers, breakdown),
        Rule(
            name="f16-scratch-for-quantised-kv",
            bytes=max(breakdown.f16_copies, _added(breakdown, "compute") if breakdown.f16_copies else 0),
            source="f16 copies of K and V of one layer, which CUDA's attention makes of a cache of another type "
            "(ggml_cuda_flash_attn_ext_get_f16_extra_data, ggml/src/ggml-cuda/fattn-common.cuh)",
        ),
        Rule(
            name="cuda-row-padding",
            bytes=padding_of(breakdown) if breakdown.cuda else padding,
            source="rows of quantised tensors padded to 512 values, buffers aligned to 128 bytes "
            "(ggml_backend_cuda_buffer_type_get_alloc_size, ggml/src/ggml-cuda/ggml-cuda.cu)",
        ),
        _moe(headers[0], breakdown),
        *([drift] if (drift := engine_drift(breakdown.gpu, runs)) else []),
        Rule(
            name="cuda-context-and-pools",
            bytes=CONTEXT_AND_POOLS,
            source="CUDA context, memory pools, cuBLAS: 116.6 MiB were left over of 6996 MiB measured for Qwen3-8B on "
            "a Tesla T4; HAMi-core reckons with 100 MiB, gguf-parser-go with 250 MiB",
        ),
    )
    return tuple(rule for rule in found if rule.bytes > 0)


def _projector(headers: Sequence[GgufHeader], breakdown: Breakdown) -> Iterator[Rule]:
    growth = breakdown.projector_growth
    if growth is None:
        message = f"{ENGINE} does not state how many tokens an image may take, and with them what the projector takes."
        raise EngineCannotPredict(message, next_step="Choose a newer build: corral upgrade engine")
    yield Rule(
        name="projector-at-image-limit",
        bytes=growth,
        source=f"an image of {breakdown.image_tokens} tokens; the engine reserves for a smaller one at load ('avoid "
        "OOM on warmup', tools/mtmd/clip.cpp); continued from its own figures for small images",
    )
    header = headers[-1]
    kind = header.metadata.get("clip.projector_type") or header.metadata.get("clip.vision.projector_type")
    if header.architecture != "clip" or kind not in _BATCHED:
        return
    at_once = breakdown.image_batch // (breakdown.image_tokens or _TILE_TOKENS)
    one = breakdown.gpu.projector + growth - sum(tensor.size for tensor in header.tensors)
    yield Rule(
        name="projector-image-batch",
        bytes=max(0, at_once - 1) * max(0, one),
        source=f"up to {at_once} images or tiles of one size are encoded at once (--mtmd-batch-max-tokens); the engine "
        "reserves for one at load (mtmd_batch_add_chunk, tools/mtmd/mtmd.cpp)",
    )


def engine_drift(gpu: Bytes, runs: str | None) -> Rule | None:
    """The row for a model that build *runs* runs, when another build counted *gpu*; None where there is none."""
    distance = builds.apart(LLAMA_CPP_BUILD, runs) if runs else None
    if distance is None:
        return None
    model, projector = distance.model.growth, distance.projector.growth
    more = math.ceil((gpu.total - gpu.projector) * model + gpu.projector * projector)
    if more == 0:
        return None
    shares = f"{float(model):.1%} of the model and {float(projector):.1%} of the projector, as the engine counts them"
    source = f"{shares} (tools/corral/engine/builds.json): {distance.sentence}"
    return Rule(name=ENGINE_DRIFT, bytes=more, source=source)


def expected_drift(prediction: Prediction, runs: str | None) -> Rule | None:
    """The row that *prediction* must have when build *runs* runs the model; None: it must have none."""
    return engine_drift(prediction.gpu, runs) if prediction.gpu else None


def drift_of(prediction: Prediction) -> Rule | None:
    """The row ``engine-drift`` that *prediction* has."""
    return next((rule for rule in prediction.rules if rule.name == ENGINE_DRIFT), None)


def padding_of(breakdown: Breakdown) -> int:
    """Bytes by which CUDA's buffers are larger than those that were counted, f16 copies aside."""
    kinds = ["weights", "context", "projector", "adapters", "draft"] + ([] if breakdown.f16_copies else ["compute"])
    return sum(_added(breakdown, kind) for kind in kinds)


def _added(breakdown: Breakdown, kind: str) -> int:
    return max(0, getattr(breakdown.cuda, kind) - getattr(breakdown.gpu, kind)) if breakdown.cuda else 0


def _moe(header: GgufHeader, breakdown: Breakdown) -> Rule:
    """An upper bound: what one layer's fused operations keep alive, had it all been given back before."""
    prefix = header.architecture
    found = (
        header.metadata.get(f"{prefix}.{key}") for key in ("embedding_length", "expert_used_count", "expert_count")
    )
    width, used, experts = (value if isinstance(value, int) else 0 for value in found)
    return Rule(
        name="moe-graph-dependencies",
        bytes=(width * used + _ROUTER_TENSORS * experts) * breakdown.ubatch * _FLOAT if used else 0,
        source="at most: the experts' outputs and the router's results of one layer, kept until CUDA's fused "
        "operations are done (ggml_backend_cuda_graph_optimize, ggml/src/ggml-cuda/ggml-cuda.cu)",
    )
