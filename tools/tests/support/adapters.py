"""LoRA adapters of zeros for a model: their matrices have the shapes of its tensors, so only their bytes matter."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from gguf import GGUFWriter

from corral.demo.tiny_weights import VOCABULARY, WIDTH
from corral.vram.gguf_header import GgufHeader, parse


def header_of(path: Path) -> GgufHeader:
    """The header of the file *path*."""
    return parse(path.read_bytes(), file_size=path.stat().st_size)


def write_adapter(
    path: Path,
    base: GgufHeader,
    rank: int,
    *,
    of: Sequence[str] = ("attn_q", "attn_v", "ffn_up", "ffn_down"),
    architecture: str = "",
    kind: type[np.floating] = np.float32,
) -> None:
    """Write an adapter of *rank* for *base*, for each of its matrices whose name has one of the words *of*.

    With another *architecture* its header states that one.
    """
    writer = GGUFWriter(path, architecture or base.architecture)
    writer.add_type("adapter")
    writer.add_string("adapter.type", "lora")
    writer.add_float32("adapter.lora.alpha", float(rank))
    for tensor in base.tensors:
        if len(tensor.shape) == 2 and any(word in tensor.name for word in of):
            columns, rows = tensor.shape
            writer.add_tensor(f"{tensor.name}.lora_a", np.zeros((rank, columns), kind))
            writer.add_tensor(f"{tensor.name}.lora_b", np.zeros((rows, rank), kind))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_answering(path: Path, word: str) -> None:
    """Write an adapter of rank 2 for the tiny model of text, with which it answers *word* in place of OK.

    ``output.weight`` is a table of what follows which token; the adapter adds to it.
    """
    starts = [VOCABULARY[text] for text in ("\n", "\n\n", '"')]
    inward, outward = np.zeros((2, WIDTH), np.float32), np.zeros((len(VOCABULARY), 2), np.float32)
    inward[0, starts], outward[VOCABULARY[word], 0], outward[VOCABULARY["OK"], 0] = 1, 2, -1
    inward[1, VOCABULARY[word]], outward[VOCABULARY["<|im_end|>"], 1] = 1, 4
    writer = GGUFWriter(path, "qwen3")
    writer.add_type("adapter")
    writer.add_string("adapter.type", "lora")
    writer.add_float32("adapter.lora.alpha", 2.0)
    writer.add_tensor("output.weight.lora_a", inward)
    writer.add_tensor("output.weight.lora_b", outward)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
