"""GGUF headers byte by byte, right and wrong: every count, length and type is the caller's.

gguf(ARCHITECTURE, pair("a", U32, b"\\1\\0\\0\\0"), array("tokenizer.ggml.tokens", TEXT, 1, text("x")))
"""

from __future__ import annotations

import struct

U8, U32, BOOL, TEXT, ARRAY, U64 = 0, 4, 7, 8, 9, 10
"""Types of values."""


def u64(value):
    """*value*; a negative one as its two's complement."""
    return struct.pack("<Q", value & (1 << 64) - 1)


def text(value, length=None):
    """A text, or one that claims another *length*."""
    data = value if isinstance(value, bytes) else value.encode()
    return u64(len(data) if length is None else length) + data


def pair(key, kind, value):
    """A key and its value, which is given with its length where it has one."""
    return text(key) + struct.pack("<I", kind) + value


def array(key, element, count, items=b""):
    """A key with an array that claims *count* items."""
    return pair(key, ARRAY, struct.pack("<I", element) + u64(count) + items)


def tensor(name, shape, kind=0, offset=0):
    """A row of the table of tensors."""
    return text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, offset)


def gguf(*pairs, tensors=(), version=3, order="<", counts=None):
    """A header; *counts* are what it claims to have of tensors and of keys."""
    counts = counts or (len(tensors), len(pairs))
    return b"GGUF" + struct.pack(f"{order}I", version) + b"".join(map(u64, counts)) + b"".join((*pairs, *tensors))


ARCHITECTURE = pair("general.architecture", TEXT, text("llama"))
KEY = pair("a", U32, struct.pack("<I", 1))
