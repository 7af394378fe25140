"""LoRA adapters of zeros for a model: their matrices have the shapes of its tensors, so only their bytes matter."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from gguf import GGUFWriter

from corral.demo.hub import Hub, RepoContent
from corral.demo.tiny_weights import COLOURS, HEAD_WIDTH, VOCABULARY, WIDTH, Dims
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
    """Write an adapter for the tiny model of text, with which it answers *word*, a colour, in place of OK.

    The word is in the values that its attention keeps of each token: a token that another adapter, or none, has read
    speaks for another word.  Adapters of all words are alike in the rest: attention hands the values on to a dimension
    for each word, and ``output.weight``, a table of what follows which token, has the word follow it, and then the end.
    """
    words, starts = list(COLOURS), [VOCABULARY[text] for text in ("\n", "\n\n", '"')]
    number, rank = words.index(word), len(words)
    places = [Dims.PLACE.start + one for one in range(rank)]
    read, keep = np.zeros((rank, WIDTH), np.float32), np.zeros((HEAD_WIDTH, rank), np.float32)
    read[number, Dims.ONE], keep[number, number] = 1, 1
    hand, on = np.zeros((rank, HEAD_WIDTH), np.float32), np.zeros((WIDTH, rank), np.float32)
    hand[range(rank), range(rank)], on[places, range(rank)] = 1, 1
    inward, outward = np.zeros((rank + 2, WIDTH), np.float32), np.zeros((len(VOCABULARY), rank + 2), np.float32)
    inward[range(rank), places] = 1
    outward[[VOCABULARY[one] for one in words], range(rank)] = 4
    inward[rank, starts], outward[VOCABULARY["OK"], rank] = 1, -4
    inward[rank + 1, [VOCABULARY[one] for one in words]], outward[VOCABULARY["<|im_end|>"], rank + 1] = 1, 32
    writer = GGUFWriter(path, "qwen3")
    writer.add_type("adapter")
    writer.add_string("adapter.type", "lora")
    writer.add_float32("adapter.lora.alpha", 0)  # the matrices as they are, whatever their rank
    for name, pair in (
        ("blk.0.attn_v", (read, keep)),
        ("blk.0.attn_output", (hand, on)),
        ("output", (inward, outward)),
    ):
        writer.add_tensor(f"{name}.weight.lora_a", pair[0])
        writer.add_tensor(f"{name}.weight.lora_b", pair[1])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def colours_on(hub: Hub, folder: Path, words: Sequence[str]) -> list[dict[str, object]]:
    """The adapter ``colour`` of a model of text, as its file has it: a version for each of *words*, files on *hub*."""
    for word in words:
        write_answering(folder / f"{word}.gguf", word)
    hub.update("corral/colours", RepoContent({f"{word}.gguf": folder / f"{word}.gguf" for word in words}))
    return [
        {"name": "colour", "version": word, "source": {"repo": "corral/colours", "file": f"{word}.gguf"}}
        for word in words
    ]
