"""The number formats of ggml: how many bytes a row of a tensor takes.

From ``enum ggml_type`` in ggml/include/ggml.h and the blocks in ggml/src/ggml-common.h, as of llama.cpp b11549
(https://github.com/ggml-org/llama.cpp).  Numbers that llama.cpp has removed (4, 5, 31 to 33, 36 to 38) are missing.
"""

from __future__ import annotations

from typing import NamedTuple


class GgmlType(NamedTuple):
    """One number format: *block_size* bytes hold *block_length* values."""

    name: str
    block_length: int
    block_size: int

    def size_of(self, values: int) -> int:
        """Bytes of a row of *values*, which must be whole blocks."""
        return values // self.block_length * self.block_size


TYPES: dict[int, GgmlType] = {
    0: GgmlType("F32", 1, 4),
    1: GgmlType("F16", 1, 2),
    2: GgmlType("Q4_0", 32, 18),
    3: GgmlType("Q4_1", 32, 20),
    6: GgmlType("Q5_0", 32, 22),
    7: GgmlType("Q5_1", 32, 24),
    8: GgmlType("Q8_0", 32, 34),
    9: GgmlType("Q8_1", 32, 36),
    10: GgmlType("Q2_K", 256, 84),
    11: GgmlType("Q3_K", 256, 110),
    12: GgmlType("Q4_K", 256, 144),
    13: GgmlType("Q5_K", 256, 176),
    14: GgmlType("Q6_K", 256, 210),
    15: GgmlType("Q8_K", 256, 292),
    16: GgmlType("IQ2_XXS", 256, 66),
    17: GgmlType("IQ2_XS", 256, 74),
    18: GgmlType("IQ3_XXS", 256, 98),
    19: GgmlType("IQ1_S", 256, 50),
    20: GgmlType("IQ4_NL", 32, 18),
    21: GgmlType("IQ3_S", 256, 110),
    22: GgmlType("IQ2_S", 256, 82),
    23: GgmlType("IQ4_XS", 256, 136),
    24: GgmlType("I8", 1, 1),
    25: GgmlType("I16", 1, 2),
    26: GgmlType("I32", 1, 4),
    27: GgmlType("I64", 1, 8),
    28: GgmlType("F64", 1, 8),
    29: GgmlType("IQ1_M", 256, 56),
    30: GgmlType("BF16", 1, 2),
    34: GgmlType("TQ1_0", 256, 54),
    35: GgmlType("TQ2_0", 256, 66),
    39: GgmlType("MXFP4", 32, 17),
    40: GgmlType("NVFP4", 64, 36),
    41: GgmlType("Q1_0", 128, 18),
    42: GgmlType("Q2_0", 64, 18),
}
"""Every format by the number that a GGUF file has for it."""

BY_NAME: dict[str, GgmlType] = {kind.name: kind for kind in TYPES.values()}
"""Every format by name, in capitals; llama-server's ``--cache-type-k q8_0`` is the same name in small letters."""


def padded(count: int, to: int) -> int:
    """*count* rounded up to a multiple of *to*, as ggml's ``GGML_PAD`` does."""
    return -(-count // to) * to
