"""Chosen weights of a one-layer transformer whose answers are known in advance.

    text                    → OK
    images [red, blue]      → red, blue      (the colour of the first image, then of the last)
    one red image           → red, red
    with a thinking template → reasoning "hm", then OK

How.  The embedding of token t is 1 in dimension t (and 1/4 in ``Dims.ONE``), and the feed-forward part is zero, so
what leaves the layer is still "which token was last".  The output matrix is therefore a table: ``out[next, last]``
is how much *next* is wanted after *last*.  After RMS norm a 1 has become about 17, so an entry of 2 beats all others
by e^17 and sampling at temperature 1 changes nothing.

The one attention head brings in the colours.  An image token, made by the projector, carries its mean colour in
``Dims.RGB`` and a mark in ``Dims.IMAGE``.  Keys depend on the mark alone: a text token's key is zero.  Queries exist
only for the tokens after which a colour is due.  Two rotary pairs do the rest: one turns with the position, so its
product of query and key grows (or falls) with the distance by about e^1.7 a token and picks the farthest or the
nearest image; the other does not turn, and lifts any image token above all text.  The value is the colour, written to
``Dims.COLOUR``, from where the output matrix prefers the colour's name over ``OK``.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Final, TypeAlias

import numpy as np
from gguf import TokenType
from numpy.typing import NDArray

Array: TypeAlias = NDArray[np.float32]

WIDTH: Final = 320
"""n_embd: one dimension a token, then those of ``Dims``; a multiple of 32."""
HEAD_WIDTH: Final = 64
ROPE_BASE: Final = 1634.6
"""Slow enough that distance grows monotonically over about 1600 tokens in ``_DISTANCE``."""
ROPE_SECTIONS: Final = (12, 10, 10, 0)
"""Rotary pairs that turn with time, height and width of an image, and never."""
COLOURS: Final = ("red", "green", "blue")

PATCH: Final = 16  # pixels
MERGE: Final = 2  # patches a side that become one image token
VISION_WIDTH: Final = 32
VISION_FF: Final = 32
TRAINED_IMAGE: Final = 128  # pixels a side

# Rotary pairs (i, i + 32) of the head.  With ROPE_SECTIONS the last pair is turned by the section that never turns.
_DISTANCE: Final = (30, 62)
_CONSTANT: Final = 31
_NORM: Final = np.float32(21)  # weight of the query and key norms: one token of distance is worth e^1.7


class Vocabulary:
    """256 byte tokens, the words of the answers, and Qwen's control tokens."""

    def __init__(self) -> None:
        # GPT-2's printable letter for each byte: printable ones first, the rest from U+0100 on.
        printable = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
        rest = [byte for byte in range(256) if byte not in printable]
        self._letters = {byte: chr(byte) for byte in printable}
        self._letters |= {byte: chr(256 + index) for index, byte in enumerate(rest)}
        newline, space = self._letters[0x0A], self._letters[0x20]
        words = [newline * 2, "OK", *COLOURS, *(space + colour for colour in COLOURS), "hm"]
        names = ("endoftext", "im_start", "im_end", "vision_start", "vision_end", "image_pad", "video_pad")
        control = [f"<|{name}|>" for name in names]
        visible = ["<think>", "</think>"]
        self.tokens = [*self._letters.values(), *words, *control, *visible]
        self.types = [int(TokenType.NORMAL)] * (256 + len(words))
        self.types += [int(TokenType.CONTROL)] * len(control)
        self.types += [int(TokenType.USER_DEFINED)] * len(visible)
        self.merges = [f"{newline} {newline}"]  # a gpt2 tokenizer must have one
        self._ids = {token: index for index, token in enumerate(self.tokens)}

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, text: str) -> int:
        """The id of the token that reads *text*."""
        return self._ids[text if text in self._ids else "".join(self._letters[byte] for byte in text.encode())]


VOCABULARY: Final = Vocabulary()


class Dims:
    """The dimensions of the residual stream that follow the one-hot token."""

    ONE: Final = len(VOCABULARY)
    IMAGE: Final = ONE + 1
    RGB: Final = slice(ONE + 2, ONE + 5)
    COLOUR: Final = slice(ONE + 5, ONE + 8)


def text_tensors(*, thinking: bool, n_ff: int) -> Iterator[tuple[str, Array | NDArray[np.float16]]]:
    """Name and values of every tensor of the language model.

    Args:
        thinking: emit ``<think>hm</think>`` before the answer, unless the prompt ends with an empty thought.
        n_ff: width of the feed-forward part, which is zero: it costs bytes and time and changes no answer.
    """
    newlines = ["\n\n"] if thinking else ["\n", "\n\n"]
    starts = [VOCABULARY[text] for text in (*newlines, '"')]  # after these an answer begins, also inside JSON
    query, key, value, out = _attention(starts)
    yield "token_embd.weight", _embeddings()
    yield "output.weight", _next_tokens(starts, thinking=thinking)
    yield "output_norm.weight", _ones(WIDTH)
    yield "blk.0.attn_norm.weight", _ones(WIDTH)
    yield "blk.0.attn_q.weight", query
    yield "blk.0.attn_k.weight", key
    yield "blk.0.attn_v.weight", value
    yield "blk.0.attn_output.weight", out
    yield "blk.0.attn_q_norm.weight", _NORM * _ones(HEAD_WIDTH)
    yield "blk.0.attn_k_norm.weight", _NORM * _ones(HEAD_WIDTH)
    yield "blk.0.ffn_norm.weight", _ones(WIDTH)
    # In the format of the file: a wide one takes long to convert, and zeros that are only read take no memory.
    yield "blk.0.ffn_gate.weight", np.zeros((n_ff, WIDTH), np.float16)
    yield "blk.0.ffn_up.weight", np.zeros((n_ff, WIDTH), np.float16)
    yield "blk.0.ffn_down.weight", np.zeros((WIDTH, n_ff), np.float16)


def projector_tensors() -> Iterator[tuple[str, Array]]:
    """Name and values of every tensor of a ``qwen3vl_merger`` projector that hands on each token's mean colour."""
    colour = _zeros(VISION_WIDTH, 3, PATCH, PATCH)
    colour[range(3), range(3)] = 1 / PATCH**2
    merged = VISION_WIDTH * MERGE**2
    mean, project, offset = _zeros(merged, merged), _zeros(WIDTH, merged), _zeros(WIDTH)
    # gelu lies between the two matrices: gelu(x) - gelu(-x) = x
    mean[0:3] = np.tile(np.eye(3, VISION_WIDTH), MERGE**2) / MERGE**2
    mean[3:6] -= mean[0:3]
    project[Dims.RGB, 0:3] = np.eye(3)
    project[Dims.RGB, 3:6] = -np.eye(3)
    offset[Dims.IMAGE] = 8.0  # well above a colour's ±1, so that the mark sets the norm

    for half in ("v.patch_embd.weight", "v.patch_embd.weight.1"):  # a still image is two equal frames
        yield half, colour / np.float32(2)
    yield "v.patch_embd.bias", _zeros(VISION_WIDTH)
    yield "v.position_embd.weight", _zeros((TRAINED_IMAGE // PATCH) ** 2, VISION_WIDTH)
    for name, rows, columns in (
        ("attn_qkv", 3 * VISION_WIDTH, VISION_WIDTH),
        ("attn_out", VISION_WIDTH, VISION_WIDTH),
        ("ffn_up", VISION_FF, VISION_WIDTH),
        ("ffn_down", VISION_WIDTH, VISION_FF),
    ):
        yield f"v.blk.0.{name}.weight", _zeros(rows, columns)
        yield f"v.blk.0.{name}.bias", _zeros(rows)
    for name in ("ln1", "ln2"):
        yield f"v.blk.0.{name}.weight", _ones(VISION_WIDTH)
        yield f"v.blk.0.{name}.bias", _zeros(VISION_WIDTH)
    yield "mm.0.weight", mean
    yield "mm.0.bias", _zeros(merged)
    yield "mm.2.weight", project
    yield "mm.2.bias", offset


def _embeddings() -> Array:
    embeddings = _zeros(len(VOCABULARY), WIDTH)
    np.fill_diagonal(embeddings, 1.0)
    embeddings[:, Dims.ONE] = 0.25
    return embeddings


def _next_tokens(starts: list[int], *, thinking: bool) -> Array:
    """The output matrix: row *next*, column *last*, then what colours and grammars add."""
    word, end, quote, comma = VOCABULARY, VOCABULARY["<|im_end|>"], VOCABULARY['"'], VOCABULARY[","]
    first = [word[colour] for colour in COLOURS]
    last = [word[f" {colour}"] for colour in COLOURS]
    table = _zeros(len(word), WIDTH)

    handled = {*starts, comma, word["OK"], *first, *last}
    if thinking:
        chain = [word[text] for text in ("\n", "<think>", "hm", "</think>", "\n\n")]
        for before, after in pairwise(chain):
            table[after, before] = 2.0
        handled |= set(chain)
    for token in set(range(len(word))) - handled:
        table[word["OK"], token] = 2.0

    # An answer begins: OK, unless attention has brought in a colour.  Then a comma, the other colour, the end.
    table[word["OK"], starts] = 1.5
    table[np.ix_(first, starts)] = 1.0
    table[comma, first] = 2.0
    table[last, comma] = 1.0
    for names in (first, last):
        table[names, Dims.COLOUR] = 1.5 * np.eye(3) - 0.5
    table[end, [word["OK"], *last]] = 2.0

    # Where the end is not allowed (ignore_eos, or an open JSON string) a quote follows, which starts an answer again;
    # a grammar that requires more than strings ends soon.
    table[quote, [word["OK"], *first, *last]] = 1.0
    for text, liking in (("}", 2.0), ("]", 2.0), ('"', 1.6), (":", 1.5), (",", 1.4), ("0", 1.0), ("t", 0.9)):
        table[word[text], Dims.ONE] = liking
    return table


def _attention(starts: list[int]) -> tuple[Array, Array, Array, Array]:
    """Query, key, value and output matrices: attend to the first image at the start, to the last after a comma."""
    near, far = _DISTANCE
    query, key = _zeros(HEAD_WIDTH, WIDTH), _zeros(HEAD_WIDTH, WIDTH)
    query[near, starts] = 1.0
    query[near, VOCABULARY[","]] = -1.0
    query[_CONSTANT, [*starts, VOCABULARY[","]]] = 1.0
    key[[far, _CONSTANT], Dims.IMAGE] = 1.0
    value, out = _zeros(HEAD_WIDTH, WIDTH), _zeros(WIDTH, HEAD_WIDTH)
    value[0:3, Dims.RGB] = np.eye(3)
    out[Dims.COLOUR, 0:3] = np.eye(3) / 4
    return query, key, value, out


def _ones(*shape: int) -> Array:
    return np.ones(shape, np.float32)


def _zeros(*shape: int) -> Array:
    return np.zeros(shape, np.float32)
