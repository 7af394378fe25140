"""What a card must be for vLLM, by NVIDIA's compute capability; each rule with its place in vLLM's source.

Paths are those of vLLM (https://github.com/vllm-project/vllm), as of ``VERSION``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from corral.catalog.card import Card
from corral.catalog.intent import Model
from corral.catalog.yaml_reader import KeyPath

VERSION: Final = "0.32.0"
"""The vLLM whose flags, rules and defaults these are."""

_LONGEST_SERVICE: Final = 63

_LEAST: Final = (7, 5)
_LEAST_SOURCE: Final = "docs/getting_started/installation/gpu.cuda.inc.md"
_BFLOAT16: Final = (8, 0)
_BFLOAT16_SOURCE: Final = "vllm/platforms/cuda.py, supported_dtypes"
_FP8_CACHE: Final = (8, 9)
_FP8_CACHE_SOURCE: Final = "vllm/platforms/cuda.py, supports_fp8; FlashAttention and FlashInfer begin at 8.0"

QUANTISATIONS: Final[Mapping[str, tuple[int, int]]] = {
    "awq": (7, 5),
    "bitsandbytes": (7, 0),
    "compressed-tensors": (7, 5),
    "fp8": (7, 5),
    "gptq": (6, 0),
    "modelopt": (8, 0),
    "mxfp4": (8, 0),
}
"""The least capability for weights of each quant_method; AWQ, GPTQ and, below 8.9, FP8 are computed by Marlin kernels.

Source: get_min_capability of vllm/model_executor/layers/quantization/ (auto_awq.py, bitsandbytes.py, fp8.py,
auto_gptq.py, modelopt.py, mxfp4.py); of compressed-tensors the schemes that store 4 or 8 bits of a weight alone.
"""


def capability(card: Card) -> tuple[int, int] | None:
    """Major and minor number of the compute capability of *card*; None where its file does not state it."""
    if card.compute_capability is None:
        return None
    major, minor = card.compute_capability.split(".")
    return int(major), int(minor)


def problems(model: Model, card: Card) -> Iterator[tuple[KeyPath, str]]:
    """Why vLLM cannot run *model* on *card*, by the key that has to change."""
    settings, has = model.on_vllm, capability(card)
    if settings is None:
        return
    if has is None:
        yield (
            ("engine",),
            f"is vllm, whose rules depend on the card: write compute_capability in cards/{model.card}.yaml.",
        )
        return
    this = f"{model.card} has compute capability {card.compute_capability}"
    if has < _LEAST:
        yield ("engine",), f"is vllm, which needs {_shown(_LEAST)}, and {this} (vLLM {VERSION}: {_LEAST_SOURCE})."
        return
    if settings.dtype == "bfloat16" and has < _BFLOAT16:
        needs = f"needs {_shown(_BFLOAT16)}, and {this} (vLLM {VERSION}: {_BFLOAT16_SOURCE})"
        yield ("vllm", "dtype"), f"is bfloat16, which {needs}: write dtype: float16."
    if settings.kv_cache_dtype == "fp8" and has < _FP8_CACHE:
        needs = f"needs {_shown(_FP8_CACHE)}, and {this} (vLLM {VERSION}: {_FP8_CACHE_SOURCE})"
        yield ("vllm", "kv_cache_dtype"), f"is fp8, which {needs}: leave kv_cache_dtype out."


def no_service(model_id: str, models: Mapping[str, Model]) -> str:
    """Why the pod of *model_id*, of *models*, can have no Service in a cluster; empty: it can.

    ``terraform/stacks/homelab/vllm.tf`` names it; the name of a Service is a label of DNS, RFC 1035.
    """
    name = _service(model_id)
    if len(name) > _LONGEST_SERVICE:
        return f"is vllm, and {name}, its pod's Service, has more than {_LONGEST_SERVICE} characters: rename the file."
    for other, model in models.items():
        if other != model_id and model.engine == "vllm" and _service(other) == name:
            return f"is vllm, and {name} would be the Service of {other}, too: rename one of the two files."
    return ""


def _service(model_id: str) -> str:
    return f"vllm-{model_id.replace('.', '-')}"


def no_quantisation(method: str, card_name: str, card: Card) -> str:
    """Why *card* cannot run weights of the quant_method *method*; empty: it can."""
    least = QUANTISATIONS.get(method)
    if least is None:
        return f"its weights are quantised by {method}; corral knows vLLM's rules for: {', '.join(QUANTISATIONS)}"
    has = capability(card)
    if has is not None and has < least:
        return (
            f"its weights are quantised by {method}, which vLLM {VERSION} runs from compute capability {_shown(least)} "
            f"on (get_min_capability), and {card_name} has {card.compute_capability}"
        )
    return ""


def _shown(one: tuple[int, int]) -> str:
    return f"{one[0]}.{one[1]}"
