"""Weights and context of a model computed from its header, without the engine.

`corral lock` compares the engine's count with this one: they must agree to the byte.  Where the rules below do not
cover an architecture or a flag, the result is None and never a guess.

The rules are llama.cpp's, as of b11549 (https://github.com/ggml-org/llama.cpp): which tensor is an input layer's is
in ``src/llama-arch.cpp``; the cells of a cache are in ``src/llama-kv-cache.cpp`` and ``llama-kv-cache-iswa.cpp``, the
state of a recurrent layer in ``llama-memory-recurrent.cpp`` and ``llama-hparams.cpp``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from corral.vram import parts
from corral.vram.ggml_types import BY_NAME, padded
from corral.vram.gguf_header import GgufHeader, Tensor
from corral.vram.oracle import Breakdown
from corral.vram.server_flags import ServerFlags

ALIGNMENT: Final = 32
"""Of a tensor in a buffer, in bytes: the host's, and that of the pretend GPU."""
CELLS: Final = 256
"""A cache has a multiple of so many cells."""

_MOST_LAYERS: Final = 512  # LLAMA_MAX_LAYERS

_INPUT: Final = ("token_embd.", "token_types.", "position_embd.")
"""Tensors of the input layer, which stays with the host whatever ``-ngl`` says."""

PLAIN: Final = frozenset(
    (
        *("arcee", "baichuan", "bailingmoe", "bloom", "chatglm", "command-r", "ernie4_5", "exaone", "falcon", "gemma"),
        *("glm4", "gpt2", "granite", "granitemoe", "hunyuan-dense", "hunyuan-moe", "internlm2", "llama", "minicpm"),
        *("mistral3", "mpt", "nemotron", "olmo", "orion", "phi2", "plamo", "qwen2", "qwen2moe", "qwen2vl", "qwen3"),
        *("qwen3moe", "qwen3vl", "qwen3vlmoe", "seed_oss", "smollm3", "stablelm", "starcoder2", "xverse"),
    )
)
"""Architectures in which every layer attends to the whole context."""

SLIDING: Final = {"cohere2": 4, "gemma2": 2, "gemma3": 6, "gpt-oss": 2}
"""Architectures in which only each n-th layer does, and the others look back ``attention.sliding_window`` tokens."""

LATENT: Final = frozenset({"deepseek2"})
"""Architectures that keep one latent row for key and value."""

DELTA_NET: Final = frozenset({"qwen35", "qwen35moe", "qwen3next"})
"""Architectures in which each ``full_attention_interval``-th layer attends and the others have a recurrent state."""


@dataclass(frozen=True)
class FromHeader:
    """Bytes as computed; None where no rule covers the model or its flags."""

    gpu_weights: int | None
    host_weights: int | None
    context: int | None
    adapters: int = 0


def compute(headers: Sequence[GgufHeader], argv: Sequence[str]) -> FromHeader:
    """What the model of *headers* (its shards; a projector and a draft are passed over) takes when run with *argv*."""
    own = parts.of(headers, argv)
    shards = [header for header in own.model if header.architecture != "clip"]
    adapters = sum(padded(tensor.size, ALIGNMENT) for header in own.adapters for tensor in header.tensors)
    flags = ServerFlags.parse(argv)
    if flags is None or not shards or not (model := _Hyperparameters(shards[0])).covered:
        return FromHeader(None, None, None, adapters)
    gpu, host = _weights([tensor for header in shards for tensor in header.tensors])
    return FromHeader(gpu, host, _context(model, flags), adapters)


def disagreements(headers: Sequence[GgufHeader], argv: Sequence[str], breakdown: Breakdown) -> list[str]:
    """Where the engine's *breakdown* is not what the headers give, one clause with both numbers each.

    Empty when they agree to the byte, and where there is no rule to compare with.
    """
    ours = compute(headers, argv)
    pairs = (
        ("weights on the card", breakdown.gpu.weights, ours.gpu_weights),
        ("weights on the host", breakdown.host.weights, ours.host_weights),
        ("context", breakdown.gpu.context, ours.context),
        ("context on the host", breakdown.host.context, None if ours.context is None else 0),
        ("adapters", breakdown.gpu.adapters + breakdown.host.adapters, ours.adapters),
    )
    return [
        f"{what}: the engine counts {theirs:,} bytes, the header gives {own:,}"
        for what, theirs, own in pairs
        if own is not None and own != theirs
    ]


def _weights(tensors: Sequence[Tensor]) -> tuple[int, int]:
    """Bytes on the card and on the host; a tied output is the token embedding once more, on the card."""
    host = [tensor for tensor in tensors if tensor.name.startswith(_INPUT)]
    card = [tensor for tensor in tensors if not tensor.name.startswith(_INPUT)]
    if not any(tensor.name == "output.weight" for tensor in tensors):
        card += [tensor for tensor in tensors if tensor.name == "token_embd.weight"]
    on_card, on_host = (sum(padded(tensor.size, ALIGNMENT) for tensor in side) for side in (card, host))
    return on_card, on_host


@dataclass(frozen=True)
class _Hyperparameters:
    """Those of a header, with llama.cpp's defaults."""

    header: GgufHeader

    @property
    def architecture(self) -> str:
        return self.header.architecture

    @property
    def covered(self) -> bool:
        """Whether a rule covers it; layers that predict further tokens are loaded or not, as speculation needs them."""
        known = self.architecture in (*PLAIN, *SLIDING, *LATENT, *DELTA_NET)
        return known and not self.get("nextn_predict_layers")

    def get(self, key: str) -> Any:
        return self.header.metadata.get(f"{self.architecture}.{key}")

    def number(self, key: str, default: int | None = None) -> int:
        """The value of *key*.

        Raises:
            KeyError: it is not there and has no default, or is no number.
        """
        value = self.get(key)
        if value is None:
            value = default
        if not isinstance(value, int):
            raise KeyError(key)
        return value

    @property
    def layers(self) -> int:
        layers = self.number("block_count")
        if not 0 < layers <= _MOST_LAYERS:
            raise KeyError("block_count")
        return layers

    def per_layer(self, key: str) -> Sequence[int]:
        """The value of *key* for each layer; one number stands for all."""
        value = self.get(key)
        if isinstance(value, tuple) and len(value) == self.layers and all(isinstance(one, int) for one in value):
            return value
        return [self.number(key)] * self.layers

    @property
    def kv_heads(self) -> Sequence[int]:
        few = self.get("attention.head_count_kv") is not None
        return self.per_layer("attention.head_count_kv" if few else "attention.head_count")

    def head_width(self, which: str) -> int:
        """``key`` or ``value`` values a head."""
        if self.get(f"attention.{which}_length") is not None:
            return self.number(f"attention.{which}_length")
        return self.number("embedding_length") // self.per_layer("attention.head_count")[0]


def _context(model: _Hyperparameters, flags: ServerFlags) -> int | None:
    """Bytes of cache and recurrent state; None when the header lacks what the rule needs."""
    try:
        if model.architecture in PLAIN and model.number("attention.sliding_window", 0):
            return None  # newer files of an old architecture: the rule above does not say which layers
        return sum(_layer_bytes(model, flags))
    except (KeyError, ZeroDivisionError):
        return None


def _layer_bytes(model: _Hyperparameters, flags: ServerFlags) -> Iterator[int]:
    every = padded(flags.context_per_sequence, CELLS)
    streams = 1 if flags.unified else flags.sequences
    near = every
    if model.architecture in SLIDING and not flags.swa_full:
        window = model.number("attention.sliding_window") * (flags.sequences if flags.unified else 1)
        near = padded(min(every, window + flags.ubatch), CELLS)
    key, value = model.head_width("key"), model.head_width("value")
    heads = model.kv_heads
    for layer in range(model.layers):
        cells = streams * (near if _looks_back(model, layer) else every)
        if _is_recurrent(model, layer):
            yield flags.sequences * _delta_net_state(model)
        elif model.architecture in LATENT and model.get("attention.key_length_mla") is not None:
            yield _row(flags.cache_type_k, key * heads[layer]) * cells
        else:
            # Without flash attention V lies across, in rows of the widest layer.
            width = value * (heads[layer] if flags.flash_attention else max(heads))
            yield (_row(flags.cache_type_k, key * heads[layer]) + _row(flags.cache_type_v, width)) * cells


def _looks_back(model: _Hyperparameters, layer: int) -> bool:
    every = SLIDING.get(model.architecture)
    return every is not None and layer % every < every - 1


def _is_recurrent(model: _Hyperparameters, layer: int) -> bool:
    return model.architecture in DELTA_NET and bool((layer + 1) % model.number("full_attention_interval", 4))


def _delta_net_state(model: _Hyperparameters) -> int:
    """Bytes of the state of one layer for one sequence: the last inputs of the convolution, and the state proper."""
    inner, state = model.number("ssm.inner_size"), model.number("ssm.state_size")
    convolution = (model.number("ssm.conv_kernel") - 1) * (inner + 2 * model.number("ssm.group_count") * state)
    return 4 * (convolution + state * inner)


def _row(kind: str, values: int) -> int:
    return BY_NAME[kind.upper()].size_of(values)
