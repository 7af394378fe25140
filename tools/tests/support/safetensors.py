"""Repositories with safetensors of random content, for tests of what corral reads of them."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping
from typing import Any

CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "hidden_size": 64,
    "intermediate_size": 128,
    "vocab_size": 512,
    "max_position_embeddings": 8192,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
}
TENSORS = {"model.embed_tokens.weight": ("BF16", (512, 64)), "model.layers.0.mlp.up_proj.weight": ("F32", (128, 64))}
_BYTES = {"BF16": 2, "F16": 2, "F32": 4, "I32": 4}


def file(tensors: Mapping[str, tuple[str, tuple[int, ...]]], **changed: Any) -> bytes:
    """A safetensors file; *changed* replaces entries of its header, by name."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name, (dtype, shape) in tensors.items():
        size = math.prod(shape) * _BYTES[dtype]
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header | changed).encode()
    return struct.pack("<Q", len(text)) + text + b"\x3c" * at


def repository(config: Mapping[str, Any] | None = None, **files: bytes) -> dict[str, bytes]:
    """The files of a repository by path: a small whole model, beside others that are never taken."""
    plain = {
        "config.json": json.dumps({**CONFIG, **(config or {})}).encode(),
        "model.safetensors": file(TENSORS),
        "tokenizer.json": b'{"version": "1.0"}',
        "tokenizer_config.json": b"{}",
        "modeling_custom.py": b"raise SystemExit",
        "pytorch_model.bin": b"pickle",
        "onnx/model.safetensors": b"no",
        "README.md": b"# read me",
    }
    return plain | files
