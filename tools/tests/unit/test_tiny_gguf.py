"""The tiny models are the same bytes everywhere; what they answer is asked of the engine in tests/stack."""

from __future__ import annotations

from hashlib import sha256

from corral.demo import tiny_gguf
from corral.demo.tiny_weights import COLOURS, VOCABULARY, Dims, text_tensors

SHA256 = {
    "text": "d23e57b6d7e39eb3346fd6253e5bde3cb00be266990fcd67056d86d59595db4e",
    "thinking": "1821068f6a4f93d022bb53a7daf45cfc1eb5d3de6196918346a3a9a87fbcc38e",
    "vision": "fbee8811584e977f8332996fd31db37b305e2a5a3a63b2c7288d461f8844f83d",
    "projector": "b5fc9cd7fe9ddf3ccab3b58fdb55370666330e8d3e605db24faf388231654fd1",
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
    out = dict(text_tensors(thinking=False, n_ff=64))["output.weight"][:, : len(VOCABULARY)]
    best_two = sorted(out[:, VOCABULARY["a"]])[-2:]
    assert best_two == [0.0, 2.0]
    assert out[VOCABULARY["OK"], VOCABULARY["a"]] == 2.0


def test_a_colour_that_attention_brings_in_is_preferred_to_ok():
    out = dict(text_tensors(thinking=False, n_ff=64))["output.weight"]
    start = VOCABULARY["\n"]
    for index, colour in enumerate(COLOURS):
        preferred = out[VOCABULARY[colour], start] + out[VOCABULARY[colour], Dims.COLOUR][index]
        assert preferred > out[VOCABULARY["OK"], start]
