"""Published models as header-only GGUFs: every tensor in its real shape and type, and not one byte of weights.

The files are sparse: as long as the real ones, a few KB (with a tokenizer, some MB) on disk.  llama.cpp counts their
memory to the byte, because it never reads a weight for that.

    write("qwen3-8b-q4km", path)                        # the header as `corral lock` stores it: no token list
    write("qwen3-8b-q4km", path, tokenizer=True)        # as a hub serves it: token list, types and merges
    write_shards("qwen3-30b-a3b-q4km", folder, 3)       # model-00001-of-00003.gguf, …
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from gguf import GGML_QUANT_SIZES
from gguf import GGMLQuantizationType as T

from corral.vram.gguf_header import GgufHeader, parse
from tests.support import gguf_projectors as projectors
from tests.support import gguf_shapes as shapes
from tests.support.gguf_shapes import I32, U16, Shape, Tensor

ALIGNMENT = 32

MODELS: Mapping[str, Callable[[], Shape]] = {
    "qwen3-0.6b-q8": shapes.qwen3_06b,
    "qwen3-4b-q4km": shapes.qwen3_4b,
    "qwen3-8b-q4km": shapes.qwen3_8b,
    "qwen3vl-4b-q4km": shapes.qwen3vl_4b,
    "qwen3vl-8b-q4km": shapes.qwen3vl_8b,
    "qwen3-30b-a3b-q4km": shapes.qwen3_30b_a3b,
    "gemma3-4b-q4km": shapes.gemma3_4b,
    "llama-3.1-8b-q4km": shapes.llama31_8b,
    "qwen2.5-7b-q4km": shapes.qwen25_7b,
    "gpt-oss-20b-mxfp4": shapes.gpt_oss_20b,
    "deepseek-v2-lite-q4km": shapes.deepseek_v2_lite,
    "qwen3.6-27b-q2k": shapes.qwen36_27b,
    "minicpm-v-4.5-q4km": shapes.minicpm_v45,
    "nomic-embed-1.5-f16": shapes.nomic_embed,
    "mmproj-qwen3vl-4b-f16": projectors.qwen3vl_4b,
    "mmproj-qwen3vl-8b-f16": projectors.qwen3vl_8b,
    "mmproj-qwen3vl-8b-q8": lambda: projectors.qwen3vl_8b(T.Q8_0),
    "mmproj-qwen2.5vl-7b-f16": projectors.qwen25vl_7b,
    "mmproj-minicpm-v-4.5-f16": projectors.minicpm_v45,
    "mmproj-gemma3-4b-f16": projectors.gemma3_4b,
}
"""Every model that can be written, by the name of its file without ``.gguf``."""


def write(name: str, path: Path, *, tokenizer: bool = False, **changes: Any) -> None:
    """Write the model *name* to *path*.

    Args:
        name: a key of ``MODELS``.
        path: the file to write; an existing one is replaced.
        tokenizer: with token list, token types and merges of real size, instead of the bare number of tokens.
        changes: metadata to set or replace, without the architecture's prefix and with ``__`` for a dot
            (``attention__head_count_kv=4``).

    Raises:
        KeyError: there is no such model.
        OSError: the file cannot be written.
    """
    head, length = _content(name, tokenizer=tokenizer, **changes)
    _write_sparse(path, head, length)


@cache
def header(name: str, *, tokenizer: bool = False, **changes: Any) -> GgufHeader:
    """The header of what ``write`` would write."""
    head, length = _content(name, tokenizer=tokenizer, **changes)
    return parse(head, file_size=length)


def write_shards(name: str, folder: Path, count: int, *, tokenizer: bool = False) -> list[Path]:
    """Write the model *name* into *folder* as *count* shards with llama.cpp's file names, and return their paths."""
    shape = MODELS[name]()
    each = -(-len(shape.tensors) // count)
    paths = []
    for number in range(count):
        metadata = _metadata(shape, tokenizer=tokenizer) if number == 0 else {}
        split = {"split.no": U16(number), "split.count": U16(count), "split.tensors.count": I32(len(shape.tensors))}
        paths.append(folder / f"model-{number + 1:05}-of-{count:05}.gguf")
        _write_sparse(paths[-1], *_encoded(metadata | split, shape.tensors[number * each : (number + 1) * each]))
    return paths


def _content(name: str, *, tokenizer: bool, **changes: Any) -> tuple[bytes, int]:
    shape = MODELS[name]()
    prefix = "clip.vision" if shape.architecture == "clip" else shape.architecture
    metadata = _metadata(shape, tokenizer=tokenizer)
    metadata |= {f"{prefix}.{key.replace('__', '.')}": value for key, value in changes.items()}
    return _encoded(metadata, shape.tensors)


def _metadata(shape: Shape, *, tokenizer: bool) -> dict[str, Any]:
    metadata: dict[str, Any] = {"general.architecture": shape.architecture, "general.type": shape.kind}
    metadata |= shape.metadata
    if not shape.vocabulary:
        return metadata
    if not tokenizer:
        vocabulary = {f"{shape.architecture}.vocab_size": shape.vocabulary, "tokenizer.ggml.model": "no_vocab"}
        return metadata | vocabulary
    return metadata | _tokenizer(shape.vocabulary)


@cache
def _tokenizer(vocabulary: int) -> dict[str, Any]:
    """Seven bytes a token and as many merges as tokens: what the vocabularies of today average."""
    tokens = b"".join(b"\7\0\0\0\0\0\0\0t%06x" % number for number in range(vocabulary))
    merges = b"".join(b"\14\0\0\0\0\0\0\0t%05x %05x" % (number, number) for number in range(vocabulary))
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "qwen2",
        "tokenizer.ggml.tokens": _array(8, vocabulary, tokens),
        "tokenizer.ggml.token_type": _array(5, vocabulary, struct.pack("<i", 1) * vocabulary),
        "tokenizer.ggml.merges": _array(8, vocabulary, merges),
        "tokenizer.ggml.eos_token_id": 1,
        "tokenizer.chat_template": "{%- for m in messages %}{{- m.content }}{%- endfor %}",
    }


def _encoded(metadata: Mapping[str, Any], tensors: Sequence[Tensor]) -> tuple[bytes, int]:
    """The header, and how long the whole file is."""
    head = [struct.pack("<4sIQQ", b"GGUF", 3, len(tensors), len(metadata))]
    head += [_string(key) + _value(value) for key, value in metadata.items()]
    offset = 0
    for name, shape, kind in tensors:
        head.append(_string(name) + struct.pack(f"<I{len(shape)}Q", len(shape), *shape))
        head.append(struct.pack("<IQ", kind, offset))
        offset += _aligned(size_of(shape, kind))
    content = b"".join(head)
    return content, _aligned(len(content)) + offset


def _write_sparse(path: Path, head: bytes, length: int) -> None:
    with path.open("wb") as file:
        file.write(head)
        file.truncate(length)


def size_of(shape: tuple[int, ...], kind: Any) -> int:
    """Bytes of a tensor of that shape (row length first) and type."""
    block, size = GGML_QUANT_SIZES[kind]
    assert shape[0] % block == 0, (shape, kind)
    elements = 1
    for extent in shape:
        elements *= extent
    return elements // block * size


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def _string(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def _value(value: Any) -> bytes:
    kind, data = _typed(value)
    return struct.pack("<I", kind) + data


def _array(kind: int, count: int, items: bytes) -> bytes:
    return struct.pack("<IQ", kind, count) + items


def _typed(value: Any) -> tuple[int, bytes]:
    """GGUF's number of the type of *value*, and its bytes."""
    match value:
        case U16():
            return 2, struct.pack("<H", value)
        case I32():
            return 5, struct.pack("<i", value)
        case bool():
            return 7, struct.pack("<?", value)
        case int():
            return 4, struct.pack("<I", value)
        case float():
            return 6, struct.pack("<f", value)
        case str():
            return 8, _string(value)
        case list():
            kind = 5 if type(value[0]) is int else _typed(value[0])[0]
            whole = kind == 5
            items = struct.pack(f"<{len(value)}i", *value) if whole else b"".join(_typed(item)[1] for item in value)
            return 9, _array(kind, len(value), items)
        case bytes():
            return 9, value
    raise TypeError(f"GGUF has no type for {value!r}")
