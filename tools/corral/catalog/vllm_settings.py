"""How vLLM serves a model, as its file in the catalog has it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, Field, StringConstraints

from corral.catalog.forms import ID_PATTERN, STRICT
from corral.catalog.source import Source


class Vllm(BaseModel):
    """How vLLM serves a model; it counts when ``engine`` is vllm, so that this one key moves a model there and back."""

    model_config = STRICT

    source: Source | None = Field(None, description="the repository with its safetensors, where source has its GGUF")
    dtype: Literal["float16", "bfloat16", "float32"] = Field(
        "float16", description="of weights that are not quantised, activations and KV cache; bfloat16 needs 8.0"
    )
    kv_cache_dtype: Literal["auto", "fp8"] = Field("auto", description="of the KV cache; auto: dtype; fp8 needs 8.9")
    max_batched_tokens: int = Field(
        2048, ge=16, le=131_072, description="tokens that one step computes; longer prompts take several steps"
    )
    cuda_graphs: bool = Field(True, description="false: --enforce-eager, less memory and slower answers")
    prefix_caching: bool = Field(True, description="reuse the KV pages of equal beginnings of prompts")
    tool_parser: Annotated[str, StringConstraints(pattern=ID_PATTERN)] | None = Field(
        None, description="vLLM's parser of tool calls for this model, e.g. hermes; without one it has no tools"
    )
    reasoning_parser: Annotated[str, StringConstraints(pattern=ID_PATTERN)] | None = Field(
        None, description="vLLM's parser of the thoughts of this model, e.g. qwen3"
    )
