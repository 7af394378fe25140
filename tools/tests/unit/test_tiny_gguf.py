"""The tiny models are the same bytes everywhere; what they answer is asked of the engine in tests/stack."""

from __future__ import annotations

from hashlib import sha256

import numpy as np
import pytest

from corral.demo import tiny_gguf
from corral.demo.tiny_weights import COLOURS, MOST_IMAGES, VOCABULARY, WIDTH, Dims, text_tensors

SHA256 = {
    "text": "414625effb0694cf326d3e70766ad32b819e969b5aaeb3990ca5249e4a6e1b87",
    "thinking": "b60c52c5dbc28463580e594931e92501f749e48d361ea0fe4963a528d23ed4cc",
    "vision": "d7edfa4c682b6d30adb81b6e0a9ed7b4a9fba03adf73f47815604f37004866a8",
    "projector": "a4581454d6040c4cd6244b6492eab1e96bb07766a3d2a443e81a6f6c10732fd8",
}


def test_the_bytes_never_change(tmp_path):
    made = tiny_gguf.write_all(tmp_path)
    assert {name: sha256(getattr(made, name).read_bytes()).hexdigest() for name in SHA256} == SHA256


def test_a_model_that_exists_is_replaced(tmp_path):
    path = tmp_path / "x.gguf"
    path.write_bytes(b"old" * 1_000_000)
    tiny_gguf.write_text(path)
    assert sha256(path.read_bytes()).hexdigest() == SHA256["text"]


def test_after_any_token_one_answer_stands_far_above_the_rest():
    out = dict(text_tensors(thinking=False, vision=False, n_ff=64))["output.weight"][:, : len(VOCABULARY)]
    best_two = sorted(out[:, VOCABULARY["a"]])[-2:]
    assert best_two == [0.0, 2.0]
    assert out[VOCABULARY["OK"], VOCABULARY["a"]] == 2.0


def test_a_colour_that_attention_brings_in_is_preferred_and_to_every_other():
    out = dict(text_tensors(thinking=False, vision=True, n_ff=64))["output.weight"]
    for before, form in ((VOCABULARY["\n"], "{}"), (VOCABULARY["red"], ", {}"), (VOCABULARY[", blue"], ", {}")):
        for colour, rgb in COLOURS.items():
            wanted = out[:, before] + out[:, Dims.RGB] @ rgb
            best, second = sorted(wanted)[:-3:-1]
            assert wanted[VOCABULARY[form.format(colour)]] == best >= second + 2
        without = out[:, before]
        assert without[VOCABULARY["<|im_end|>" if form.startswith(",") else "OK"]] == max(without)


@pytest.mark.parametrize("number", range(1, MOST_IMAGES + 2))
def test_the_share_of_the_nth_image_sets_the_nth_place_alone(number):
    weights = dict(text_tensors(thinking=False, vision=True, n_ff=64))
    gate, up, down = (weights[f"blk.0.ffn_{name}.weight"].astype(float) for name in ("gate", "up", "down"))
    image = np.zeros(WIDTH)
    image[Dims.IMAGE], image[Dims.SHARE] = 8, 1 / number

    place = (down @ (np.maximum(gate @ image, 0) * (up @ image)))[Dims.PLACE]

    assert list(np.nonzero(place > 0.01)[0]) == ([number - 1] if number <= MOST_IMAGES else [])
    assert (np.abs(place) < 0.01).sum() == MOST_IMAGES - (number <= MOST_IMAGES)
