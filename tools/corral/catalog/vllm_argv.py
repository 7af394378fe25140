"""The exact command line of a model that vLLM serves, as ``corral.catalog.argv`` has it for llama.cpp."""

from __future__ import annotations

import json
import math
from typing import Final

from corral.catalog.intent import Model

BLOCK_TOKENS: Final = 32
"""Tokens of a KV page.  The kernels of a card take multiples of 16, those of the processor multiples of 32: 0.32.0
does not start there with 16, which is its default for a card (``DEFAULT_BLOCK_SIZE`` in vllm/config/cache.py)."""
DRAIN_SECONDS: Final = 30
"""How long requests under way may take after SIGTERM; vLLM's default is 0, which ends them at once."""


def vllm_argv(model_id: str, model: Model, budget_bytes: int, card_mib: int) -> list[str]:
    """The words of the command line, ``vllm serve`` first; the folder of the model and ``${PORT}`` are placeholders.

    Every default of vLLM that decides memory, answers or what leaves the machine is given.  The share of the card is
    what vLLM may take of it, rounded up: its part of the model's seat, never a share of what others were promised.

    Args:
        model_id: the catalog's name of the model, and the one that requests use.
        model: its intent; ``context`` tokens for each of ``parallel`` requests.
        budget_bytes: what vLLM may take: the seat without what it does not count (``corral.vram.vllm_seat``).
        card_mib: memory of its card.
    """
    settings = model.on_vllm
    assert settings is not None
    share = math.ceil(budget_bytes / (card_mib << 20) * 10_000) / 10_000
    argv = ["vllm", "serve", f"${{STORE}}/{model_id}", "--served-model-name", model_id, *model.aliases]
    argv += ["--dtype", settings.dtype, "--kv-cache-dtype", settings.kv_cache_dtype]
    argv += ["--max-model-len", str(model.context), "--max-num-seqs", str(model.parallel)]
    argv += ["--max-num-batched-tokens", str(settings.max_batched_tokens), "--block-size", str(BLOCK_TOKENS)]
    argv += ["--gpu-memory-utilization", f"{share:.4f}"]
    argv += ["--load-format", "safetensors", "--generation-config", "vllm", "--seed", "0"]
    argv += ["--enable-prefix-caching" if settings.prefix_caching else "--no-enable-prefix-caching"]
    argv += [] if settings.cuda_graphs else ["--enforce-eager"]
    if model.reasoning != "auto":
        thinks = json.dumps({"enable_thinking": model.reasoning == "on"}, separators=(",", ":"))
        argv += ["--default-chat-template-kwargs", thinks]
    if settings.tool_parser:
        argv += ["--enable-auto-tool-choice", "--tool-call-parser", settings.tool_parser]
    if settings.reasoning_parser:
        argv += ["--reasoning-parser", settings.reasoning_parser]
    argv += ["--shutdown-timeout", str(DRAIN_SECONDS), "--disable-uvicorn-access-log"]
    argv += ["--host", "127.0.0.1", "--port", "${PORT}"]
    return argv
