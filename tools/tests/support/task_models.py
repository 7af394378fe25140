"""Tiny models without answers in words, whose results are known: an embedding, rerankers, and encoders like BERT.

The embedding of a text is the mean of one-hot letters, so two texts are close when they have the same letters.

The reranker reads query and document as one text.  Its last token attends to all of them equally, so it holds the share
of each letter; the feed-forward part squares the shares, and the head adds the squares.  Of two documents of different
letters, the one that has those of the query has the larger sum.
"""

from __future__ import annotations

import string
from pathlib import Path

import numpy as np
from gguf import GGUFWriter, LlamaFileType, PoolingType, TokenType

from corral.demo import tiny_gguf
from corral.demo import tiny_weights as weights
from corral.demo.tiny_weights import HEAD_WIDTH, VOCABULARY, WIDTH

LETTERS = [VOCABULARY[letter] for letter in string.ascii_lowercase]
_SCORE = WIDTH - 1
ENCODER_CONTEXT, _ENCODER_WIDTH, _ENCODER_FF = 1024, 64, 128


def write_embedding(path: Path, *, pooling: PoolingType | None = PoolingType.MEAN) -> None:
    """Write a qwen3 that embeds a text; without *pooling* its header does not state how."""
    writer = _qwen3(path, pooling)
    tensors = dict(weights.text_tensors(thinking=False, vision=False, n_ff=tiny_gguf.DEFAULT_FF))
    tiny_gguf.finish(writer, tensors.items(), halves=True)


def write_reranker(path: Path, *, head: bool = True) -> None:
    """Write a qwen3 that scores a document for a query; without *head* it has no classifier."""
    writer = _qwen3(path, PoolingType.RANK)
    writer.add_add_eos_token(True)  # the last token is the same one for every document
    tensors = dict(weights.text_tensors(thinking=False, vision=False, n_ff=tiny_gguf.DEFAULT_FF))
    value, out = np.zeros((HEAD_WIDTH, WIDTH), np.float32), np.zeros((WIDTH, HEAD_WIDTH), np.float32)
    places = range(len(LETTERS))
    value[places, LETTERS] = 1
    out[LETTERS, places] = 1 / 32  # small beside the token itself, so that the norm leaves their size
    gate, up = tensors["blk.0.ffn_gate.weight"].copy(), tensors["blk.0.ffn_up.weight"].copy()
    down = tensors["blk.0.ffn_down.weight"].copy()
    gate[places, LETTERS] = up[places, LETTERS] = 4  # silu(4x) 4x is near 16 x² where 4x is large
    down[_SCORE, places] = 1 / 1024
    tensors |= {"blk.0.attn_v.weight": value, "blk.0.attn_output.weight": out}
    tensors |= {"blk.0.ffn_gate.weight": gate, "blk.0.ffn_up.weight": up, "blk.0.ffn_down.weight": down}
    if head:
        score = np.zeros((2, WIDTH), np.float32)
        score[0, _SCORE] = 1
        tensors["cls.output.weight"] = score
        writer.add_classifier_output_labels(["yes", "no"])
    tiny_gguf.finish(writer, tensors.items(), halves=True)


def write_encoder(path: Path, *, rerank: bool = False) -> None:
    """Write a BERT of one layer that reads a text in both directions, with weights of a fixed seed."""
    writer = GGUFWriter(path, "bert")
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *(f"\u2581{letter}" for letter in string.ascii_lowercase)]
    words += list(string.ascii_lowercase)
    writer.add_type("model")
    writer.add_file_type(LlamaFileType.ALL_F32)
    writer.add_context_length(ENCODER_CONTEXT)
    writer.add_embedding_length(_ENCODER_WIDTH)
    writer.add_block_count(1)
    writer.add_feed_forward_length(_ENCODER_FF)
    writer.add_head_count(2)
    writer.add_layer_norm_eps(1e-12)
    writer.add_causal_attention(False)
    writer.add_pooling_type(PoolingType.RANK if rerank else PoolingType.MEAN)
    writer.add_vocab_size(len(words))
    writer.add_token_type_count(2)
    writer.add_tokenizer_model("bert")
    writer.add_tokenizer_pre("jina-v2-en")
    writer.add_token_list(words)
    writer.add_token_types([int(TokenType.CONTROL)] * 4 + [int(TokenType.NORMAL)] * (len(words) - 4))
    for name, token in (("unk", 1), ("sep", 3), ("pad", 0), ("bos", 2), ("eos", 3)):
        getattr(writer, f"add_{name}_token_id")(token)
    dice = np.random.default_rng(7)

    def matrix(*shape: int) -> np.ndarray:
        return (dice.standard_normal(shape) / 8).astype(np.float32)

    width, ff = _ENCODER_WIDTH, _ENCODER_FF
    tensors = {
        "token_embd.weight": matrix(len(words), width),
        "token_types.weight": matrix(2, width),
        "position_embd.weight": matrix(ENCODER_CONTEXT, width),
    }
    for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
        tensors |= {f"blk.0.{name}.weight": matrix(width, width), f"blk.0.{name}.bias": matrix(width)}
    tensors |= {"blk.0.ffn_up.weight": matrix(ff, width), "blk.0.ffn_up.bias": matrix(ff)}
    tensors |= {"blk.0.ffn_down.weight": matrix(width, ff), "blk.0.ffn_down.bias": matrix(width)}
    for name in ("token_embd_norm", "blk.0.attn_output_norm", "blk.0.layer_output_norm"):
        tensors |= {f"{name}.weight": np.ones(width, np.float32), f"{name}.bias": np.zeros(width, np.float32)}
    if rerank:
        tensors |= {"cls.weight": matrix(width, width), "cls.bias": matrix(width)}
        tensors |= {"cls.output.weight": matrix(1, width), "cls.output.bias": matrix(1)}
    tiny_gguf.finish(writer, tensors.items())


def _qwen3(path: Path, pooling: PoolingType | None) -> GGUFWriter:
    writer = GGUFWriter(path, "qwen3")
    tiny_gguf.add_text_header(writer, n_ff=tiny_gguf.DEFAULT_FF, layers=1)
    if pooling is not None:
        writer.add_pooling_type(pooling)
    tiny_gguf.add_tokenizer(writer, thinking=False, begins=False)
    return writer
