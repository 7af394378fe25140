"""The requests of `corral measure`, and how it recognises the locked command."""

from __future__ import annotations

import base64
import struct

import pytest

from corral.catalog.intent import Model
from corral.measure.live import is_command, largest_request

ARGV = ["llama-server", "-m", "${STORE}/m/model.gguf", "-c", "2048", "--host", "127.0.0.1", "--port", "${PORT}"]
RUNS = ["-m", "/srv/store/m/model.gguf", "-c", "2048", "--host", "127.0.0.1", "--port", "5801"]


@pytest.mark.parametrize(
    "before",
    [["/usr/bin/llama-server"], ["/venv/bin/python", "/venv/bin/corral-llama-server"]],
    ids=["binary", "script"],
)
def test_the_locked_command_is_recognised_behind_any_program(before):
    assert is_command([*before, *RUNS], ARGV, port=5801)


@pytest.mark.parametrize(
    "words",
    [
        RUNS[:-1],
        [*RUNS, "-np", "4"],
        [word.replace("2048", "4096") for word in RUNS],
        [word.replace("/m/", "/n/") for word in RUNS],
        [word.replace("5801", "5802") for word in RUNS],
        [],
    ],
    ids=["word-missing", "word-more", "other-context", "other-model", "other-port", "gone"],
)
def test_any_other_command_is_not(words):
    assert not is_command(["llama-server", *words], ARGV, port=5801)


def model(**changes) -> Model:
    facts = {"source": {"repo": "a/b", "quant": "Q4_K_M"}, "card": "t4", "context": 16384, "modalities": ["text"]}
    return Model(**facts | changes)


def test_the_largest_text_fills_a_micro_batch_and_fits_into_the_context():
    (message,) = largest_request("m", model())["messages"]
    assert len(message["content"]) >= 512
    (message,) = largest_request("m", model(context=512))["messages"]
    assert 0 < len(message["content"]) <= 256


@pytest.mark.parametrize(("tokens", "side"), [(64, 512), (65, 576), (1024, 2048), (1025, 2112), (16_384, 4096)])
def test_the_largest_image_has_more_pixels_than_its_tokens_can_show(tokens, side):
    vision = model(context=20_000, modalities=["text", "image"], image_max_tokens=tokens)
    (message,) = largest_request("m", vision)["messages"]
    *_, image, text = message["content"]
    png = base64.b64decode(image["image_url"]["url"].partition(",")[2])
    assert struct.unpack(">II", png[16:24]) == (side, side)
    assert text["text"]


@pytest.mark.parametrize(
    ("context", "tokens", "count"), [(2048, 64, 4), (3072, 1024, 2), (1200, 1024, 1), (1025, 1024, 1)]
)
def test_as_many_images_are_sent_as_leave_room_for_a_word(context, tokens, count):
    vision = model(context=context, modalities=["text", "image"], image_max_tokens=tokens)
    (message,) = largest_request("m", vision)["messages"]
    *images, text = message["content"]
    assert len(images) == count
    assert count * tokens + len(text["text"]) <= context


@pytest.mark.parametrize("same", [True, False])
def test_several_files_of_the_store_in_a_word_are_in_the_same_folder(same):
    argv = ["llama-server", "--lora-scaled", "${STORE}/m/adapter-1.gguf:0,${STORE}/m/adapter-2.gguf:0"]
    word = f"/a/m/adapter-1.gguf:0,{'/a' if same else '/b'}/m/adapter-2.gguf:0"
    assert is_command(["/usr/bin/llama-server", "--lora-scaled", word], argv, port=1) is same
