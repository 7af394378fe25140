"""Chosen weights of a transformer whose answers are known in advance.

    text                    → OK
    images [red, blue, red] → red, blue, red    (the colour of each image, in their order; at most ``MOST_IMAGES``)
    with a thinking template → reasoning "hm", then OK

How.  The embedding of token t is 1 in dimension t (and 1/4 in ``Dims.ONE``).  The output matrix is therefore a table:
``out[next, last]`` is how much *next* is wanted after *last*.  After RMS norm a 1 has become about 10 to 17, so that an
entry which is larger by 2 decides, and sampling at temperature 1 changes nothing.  Without images nothing else matters,
and one layer of zeros is enough.

The model of images has two layers of one head each.  An image token, made by the projector, carries its mean colour in
``Dims.RGB`` and a mark in ``Dims.IMAGE``.  The first layer counts: an image token attends to the beginning of the text
and, equally, to each end of an image before it, and the beginning alone has a value; so it receives 1/k in the k-th
image.  In the same way a token after which a colour is due receives 1/n for the n-th one: it attends to the colours
that were already named.  Those are tokens that text never becomes, because no merge leads to them.  The feed-forward
part compares these shares with the middles between 1/k and 1/(k + 1), and sets the k-th dimension of ``Dims.PLACE``, or
of ``Dims.TURN``.  The second layer lets turn n attend to place n, of which it receives the colour; where no image has
that place it attends to the beginning, which has no colour, and OK or the end follows.  No part of that depends on a
distance, so the rotary pairs that are used here never turn.
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
ROPE_SECTIONS: Final = (2, 2, 2, 26)
"""Rotary pairs that turn with time, height and width of an image, interleaved, and those that never turn."""
COLOURS: Final = {
    "red": (1, -1, -1),
    "green": (-1, 1, -1),
    "blue": (-1, -1, 1),
    "yellow": (1, 1, -1),
    "white": (1, 1, 1),
    "black": (-1, -1, -1),
}
"""Red, green and blue of each colour that has a name, as the projector hands them on."""
MOST_IMAGES: Final = 16

PATCH: Final = 16  # pixels
MERGE: Final = 2  # patches a side that become one image token
VISION_WIDTH: Final = 32
VISION_FF: Final = 32
TRAINED_IMAGE: Final = 128  # pixels a side

_FREE: Final = sum(ROPE_SECTIONS[:3])
"""First dimension of a head that never turns; its partner is 32 further."""
_FOCUS: Final = np.float32(4)
"""Weight of the query and key norms: a key in the query's direction is worth e^128 more than one across it."""
_MARK: Final = 8.0  # of an image, well above a colour's ±1, so that the mark sets the norm

_Attention: TypeAlias = tuple[Array, Array, Array, Array]


class Vocabulary:
    """256 byte tokens, the words of the answers, and Qwen's control tokens."""

    def __init__(self) -> None:
        # GPT-2's printable letter for each byte: printable ones first, the rest from U+0100 on.
        printable = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
        rest = [byte for byte in range(256) if byte not in printable]
        self._letters = {byte: chr(byte) for byte in printable}
        self._letters |= {byte: chr(256 + index) for index, byte in enumerate(rest)}
        newline, space = self._letters[0x0A], self._letters[0x20]
        words = [newline * 2, "OK", *COLOURS, *(f",{space}{colour}" for colour in COLOURS), "hm"]
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
_FIRST: Final = [VOCABULARY[colour] for colour in COLOURS]
_LATER: Final = [VOCABULARY[f", {colour}"] for colour in COLOURS]
_NAMED: Final = [*_FIRST, *_LATER]
"""The tokens that name a colour."""
_BEGIN: Final = VOCABULARY["<|endoftext|>"]


class Dims:
    """The dimensions of the residual stream that follow the one-hot token."""

    ONE: Final = len(VOCABULARY)
    IMAGE: Final = ONE + 1
    RGB: Final = slice(ONE + 2, ONE + 5)
    SHARE: Final = ONE + 5
    PLACE: Final = slice(ONE + 6, ONE + 6 + MOST_IMAGES)
    TURN: Final = slice(PLACE.stop, PLACE.stop + MOST_IMAGES)


def text_tensors(*, thinking: bool, vision: bool, n_ff: int) -> Iterator[tuple[str, Array | NDArray[np.float16]]]:
    """Name and values of every tensor of the language model.

    Args:
        thinking: emit ``<think>hm</think>`` before the answer, unless the prompt ends with an empty thought.
        vision: name the colours of images, with two layers in place of one.
        n_ff: width of the feed-forward part, at least 64; the rest costs bytes and time and changes no answer.
    """
    newlines = ["\n\n"] if thinking else ["\n", "\n\n"]
    starts = [VOCABULARY[text] for text in (*newlines, '"')]  # after these an answer begins, also inside JSON
    yield "token_embd.weight", _embeddings()
    yield "output.weight", _next_tokens(starts, thinking=thinking)
    yield "output_norm.weight", _ones(WIDTH)
    # In the format of the file: a wide one takes long to convert, and zeros that are only read take no memory.
    gate, up = np.zeros((n_ff, WIDTH), np.float16), np.zeros((n_ff, WIDTH), np.float16)
    down = np.zeros((WIDTH, n_ff), np.float16)
    if not vision:
        yield from _layer(0, _attention(), (gate, up, down))
        return
    due = [*starts, *_NAMED]
    yield from _layer(0, _counting(due), _numbering(due, gate.copy(), up.copy(), down.copy()))
    yield from _layer(1, _finding(due), (gate, up, down))


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
    offset[Dims.IMAGE] = _MARK

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
    word, end, quote = VOCABULARY, VOCABULARY["<|im_end|>"], VOCABULARY['"']
    table = _zeros(len(word), WIDTH)

    handled = {*starts, word["OK"], *_NAMED}
    if thinking:
        chain = [word[text] for text in ("\n", "<think>", "hm", "</think>", "\n\n")]
        for before, after in pairwise(chain):
            table[after, before] = 2.0
        handled |= set(chain)
    for token in set(range(len(word))) - handled:
        table[word["OK"], token] = 2.0

    # An answer begins: OK, unless attention has brought in a colour.  Then the next colour, or the end.
    for names, preceding, otherwise in ((_FIRST, starts, word["OK"]), (_LATER, _NAMED, end)):
        table[names, Dims.RGB] = 2 * np.array(list(COLOURS.values()), np.float32)
        table[np.ix_(names, preceding)] = 2.0
        table[otherwise, preceding] = 4.0
    table[end, word["OK"]] = 2.0

    # Where the end is not allowed (ignore_eos, or an open JSON string) a quote follows, which starts an answer again;
    # a grammar that requires more than strings ends soon.
    table[quote, word["OK"]] = 1.0
    table[quote, _NAMED] = 3.0
    for text, liking in (
        ("}", 2.0),
        ("]", 2.0),
        ('"', 1.6),
        (":", 1.5),
        (",", 1.4),
        ("[", 1.2),
        ("0", 1.0),
        ("t", 0.9),
    ):
        table[word[text], Dims.ONE] = liking
    return table


def _layer(
    number: int, attention: _Attention, feed_forward: tuple[NDArray[np.float16], ...]
) -> Iterator[tuple[str, Array | NDArray[np.float16]]]:
    block = f"blk.{number}"
    yield f"{block}.attn_norm.weight", _ones(WIDTH)
    for name, values in zip(("attn_q", "attn_k", "attn_v", "attn_output"), attention, strict=True):
        yield f"{block}.{name}.weight", values
    yield f"{block}.attn_q_norm.weight", _FOCUS * _ones(HEAD_WIDTH)
    yield f"{block}.attn_k_norm.weight", _FOCUS * _ones(HEAD_WIDTH)
    yield f"{block}.ffn_norm.weight", _ones(WIDTH)
    for name, halves in zip(("ffn_gate", "ffn_up", "ffn_down"), feed_forward, strict=True):
        yield f"{block}.{name}.weight", halves


def _attention() -> _Attention:
    """Query, key, value and output matrices that attend to nothing."""
    inward = (HEAD_WIDTH, WIDTH)
    return _zeros(*inward), _zeros(*inward), _zeros(*inward), _zeros(WIDTH, HEAD_WIDTH)


def _counting(due: list[int]) -> _Attention:
    """What makes ``Dims.SHARE`` 1/k in the k-th image, and 1/n after a token where the n-th colour is due."""
    query, key, value, out = _attention()
    of_image, of_turn, filler = _FREE, _FREE + 1, _FREE + 2  # the filler makes all keys equally long
    query[of_image, Dims.IMAGE] = 1
    query[of_turn, due] = 1
    key[[of_image, of_turn], _BEGIN] = 1
    key[[of_image, filler], VOCABULARY["<|vision_end|>"]] = 1
    key[np.ix_([of_turn, filler], _NAMED)] = 1
    value[0, _BEGIN] = 1
    out[Dims.SHARE, 0] = 1 / _norm_factor(1, 0.25)
    return query, key, value, out


def _numbering(due: list[int], *matrices: NDArray[np.float16]) -> tuple[NDArray[np.float16], ...]:
    """Feed-forward *matrices* that set the k-th of ``Dims.PLACE`` in an image, and of ``Dims.TURN`` after *due* tokens.

    With z = 32 k (k+1) share - 16 (2k+1), which is 16 at 1/k and -16 at 1/(k+1), silu(z + 14) - silu(z - 14) is 28
    above their middle and 0 below it; what the middle below 1/k has and the one above it has not is the k-th dimension.
    All these weights are exact in f16, and the small factors of *up* keep the activations below 65504.
    """
    gate, up, down = matrices
    kinds = ((Dims.PLACE, [Dims.IMAGE], _MARK, 1 / 4), (Dims.TURN, due, 1.0, 1 / 64))
    for at, (target, marks, strength, factor) in enumerate(kinds):
        for index in range(MOST_IMAGES):
            number, first = index + 1, 2 * (at * MOST_IMAGES + index)
            for unit, shift, sign in ((first, 14, 1), (first + 1, -14, -1)):
                gate[unit, Dims.SHARE] = 32 * number * (number + 1)
                gate[unit, marks] = (shift - 16 * (2 * number + 1)) / strength
                up[unit, marks] = factor / strength
                down[target.start + index, unit] = sign / 64
                if number < MOST_IMAGES:
                    down[target.start + index + 1, unit] = -sign / 64
    return gate, up, down


def _finding(due: list[int]) -> _Attention:
    """What brings the colour of the n-th image to a token where the n-th colour is due."""
    query, key, value, out = _attention()
    places, beyond = slice(_FREE, _FREE + MOST_IMAGES), _FREE + MOST_IMAGES
    query[places, Dims.TURN] = np.eye(MOST_IMAGES)
    query[beyond, due] = 0.25  # decides where there is no turn any more
    key[places, Dims.PLACE] = np.eye(MOST_IMAGES)
    key[places, _BEGIN] = 1  # in no direction as near as the image of that place, and nearer than any other token
    key[beyond, _BEGIN] = 1
    value[0:3, Dims.RGB] = np.eye(3)
    out[Dims.RGB, 0:3] = np.eye(3) / _norm_factor(_MARK, 1, 1, 1, 1)
    return query, key, value, out


def _norm_factor(*values: float) -> float:
    """What RMS norm multiplies a vector by that has these *values* and otherwise zeros."""
    return float(np.sqrt(WIDTH / np.sum(np.square(values))))


def _ones(*shape: int) -> Array:
    return np.ones(shape, np.float32)


def _zeros(*shape: int) -> Array:
    return np.zeros(shape, np.float32)
