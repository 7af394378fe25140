"""Tokens of an image by the projector's header; tests/stack compares the rule with the engine."""

from __future__ import annotations

from dataclasses import replace

import pytest

from corral.vram.image_tokens import image_tokens
from tests.support.gguf_models import header


@pytest.mark.parametrize(
    ("name", "most", "tokens"),
    [
        ("mmproj-qwen3vl-4b-f16", 1024, 28 * 28 + 2),
        ("mmproj-qwen2.5vl-7b-f16", 1024, 32 * 32 + 2),
        ("mmproj-qwen3vl-4b-f16", 64, 8 * 8 + 2),
        ("mmproj-qwen3vl-4b-f16", 100, 10 * 10 + 2),
        ("mmproj-qwen3vl-4b-f16", 1, 1 + 2),
        ("mmproj-gemma3-4b-f16", 1024, None),
        ("mmproj-minicpm-v-4.5-f16", 1024, None),
    ],
    ids=["qwen3-vl", "qwen2.5-vl", "limit", "limit-100", "limit-1", "gemma-3", "minicpm-v"],
)
def test_an_image_of_896_pixels_takes_what_its_projector_makes_of_it(name, most, tokens):
    assert image_tokens(header(name), 896, most=most) == tokens


@pytest.mark.parametrize(("least", "tokens"), [(None, 9 + 2), (100, 100 + 2)])
def test_a_small_image_is_made_larger(least, tokens):
    assert image_tokens(header("mmproj-qwen3vl-4b-f16"), 20, most=1024, least=least) == tokens


@pytest.mark.parametrize(
    "wrong",
    [
        {"clip.vision.patch_size": 0},
        {"clip.vision.patch_size": -16},
        {"clip.vision.patch_size": True},
        {"clip.vision.patch_size": "16"},
        {"clip.vision.patch_size": 1 << 40},
        {"clip.vision.spatial_merge_size": 0},
        {"clip.projector_type": 7},
        {"clip.projector_type": "new"},
    ],
    ids=str,
)
def test_a_header_without_sense_has_no_rule(wrong):
    sound = header("mmproj-qwen3vl-4b-f16")
    assert image_tokens(replace(sound, metadata={**sound.metadata, **wrong}), 896, most=1024) is None


def test_a_header_without_a_patch_has_no_rule():
    sound = header("mmproj-qwen3vl-4b-f16")
    metadata = {key: value for key, value in sound.metadata.items() if key != "clip.vision.patch_size"}
    assert image_tokens(replace(sound, metadata=metadata), 896, most=1024) is None
