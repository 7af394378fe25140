"""What a model takes on a CUDA card beyond the engine's count: each rule, where it applies and where not."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from corral.errors import EngineCannotPredict
from corral.vram.oracle import ask
from corral.vram.rules import rules
from tests.support import gguf_models

MIB = 1 << 20
GOLDEN = json.loads((Path(__file__).parents[1] / "fixtures" / "vram-golden-b11549.json").read_text())
ARGV = [
    "llama-server",
    "-m",
    "model.gguf",
    "-c",
    "16384",
    "-np",
    "1",
    "-ngl",
    "99",
    "-fa",
    "on",
    "-fit",
    "off",
    "--offline",
]


Q8 = ("-ctk", "q8_0", "-ctv", "q8_0")
LINES = {
    ("qwen3-8b-q4km", None): [
        *((), Q8, ("-ctk", "q8_0"), ("-ctk", "bf16", "-ctv", "bf16")),
        *((*Q8, "-np", "4", "-kvu"), (*Q8, "-np", "4")),
    ],
    ("qwen3-30b-a3b-q4km", None): [(), Q8, ("-ub", "1024")],
    ("deepseek-v2-lite-q4km", None): [Q8],
    ("gemma3-4b-q4km", None): [Q8],
    ("gpt-oss-20b-mxfp4", None): [()],
    ("qwen3vl-8b-q4km", "mmproj-qwen3vl-8b-f16"): [
        (),
        *(("--image-max-tokens", limit) for limit in ("1000", "1024", "2048", "2116", "4096")),
    ],
    ("qwen3vl-8b-q4km", "mmproj-qwen3vl-4b-f16"): [("--image-max-tokens", "4096")],
    ("qwen2.5-7b-q4km", "mmproj-qwen2.5vl-7b-f16"): [
        ("--image-max-tokens", limit) for limit in ("1024", "2116", "4096")
    ],
    ("gemma3-4b-q4km", "mmproj-gemma3-4b-f16"): [("--image-max-tokens", "1024")],
    ("gemma3-4b-q4km", "mmproj-minicpm-v-4.5-f16"): [("--image-max-tokens", "1024")],
}
"""What follows ``ARGV``, by model and projector."""


@cache
def predicted(name, projector):
    """Rules and breakdown of every command line of a model, from one process of the engine."""
    headers = [gguf_models.header(one) for one in (name, projector) if one]
    begin = [*ARGV, *(("--mmproj", "mmproj.gguf") if projector else ())]
    lines = LINES[name, projector]
    answers = ask(headers, [[*begin, *more] for more in lines], cuda="all")
    return {more: (rules(headers, one), one) for more, one in zip(lines, answers, strict=True)}


def rows(name, *more, projector=None):
    """Bytes by rule."""
    found, breakdown = predicted(name, projector)[more]
    return {rule.name: rule.bytes for rule in found}, breakdown


def test_qwen3_8b_is_within_three_percent_of_what_a_tesla_t4_showed():
    found, breakdown = rows("qwen3-8b-q4km")
    total = breakdown.gpu.total + sum(found.values())
    assert 0 <= total / (6996 * MIB) - 1 < 0.03


def test_every_row_says_where_it_is_from():
    found, _ = predicted("qwen3-30b-a3b-q4km", None)[Q8]
    names = ["f16-scratch-for-quantised-kv", "cuda-row-padding", "moe-graph-dependencies", "cuda-context-and-pools"]
    assert [rule.name for rule in found] == names
    assert all(len(rule.source) > 40 and rule.bytes > 0 for rule in found)


@pytest.mark.parametrize(
    ("name", "cache", "expected"),
    [
        # 2 bytes for each of the 16,384 x 8 x 128 values of K, and of V.
        ("qwen3-8b-q4km", Q8, 64 * MIB),
        ("qwen3-8b-q4km", ("-ctk", "q8_0"), 32 * MIB),
        ("qwen3-8b-q4km", ("-ctk", "bf16", "-ctv", "bf16"), 64 * MIB),
        ("qwen3-8b-q4km", (), 0),
        # K and V are one: 16,384 x 576 values.
        ("deepseek-v2-lite-q4km", Q8, 18 * MIB),
        # The layers that see everything, not those that look back 1024 tokens.
        ("gemma3-4b-q4km", Q8, 64 * MIB),
    ],
)
def test_a_cache_that_is_not_f16_is_copied_for_one_layer(name, cache, expected):
    found, _ = rows(name, *cache)
    assert found.get("f16-scratch-for-quantised-kv", 0) == expected


def test_four_sequences_with_caches_of_their_own_are_copied_together():
    one, _ = rows("qwen3-8b-q4km", *Q8, "-np", "4", "-kvu")
    four, _ = rows("qwen3-8b-q4km", *Q8, "-np", "4")
    assert one == four


@pytest.mark.parametrize(
    ("projector", "per_token"), [("mmproj-qwen3vl-8b-f16", 184_384), ("mmproj-qwen3vl-4b-f16", 159_808)]
)
def test_an_image_beyond_the_warm_up_is_added_token_by_token(projector, per_token):
    """The engine's own figures at 1024 and 2116 tokens, which is where its warm-up stops, give the same slope."""
    cells = {cell["image_max_tokens"]: cell["bytes"]["SIM0"] for cell in GOLDEN["mmproj"][projector]}
    assert (cells[4096] - cells[1024]) / (2116 - 1024) == per_token
    found, breakdown = rows("qwen3vl-8b-q4km", "--image-max-tokens", "4096", projector=projector)
    assert found["projector-at-image-limit"] == (4096 - 2116) * per_token
    assert breakdown.image_tokens == 4096


def test_the_default_image_limit_counts_too():
    found, breakdown = rows("qwen3vl-8b-q4km", projector="mmproj-qwen3vl-8b-f16")
    assert breakdown.image_tokens == 4096
    assert found["projector-at-image-limit"] == (4096 - 2116) * 184_384


@pytest.mark.parametrize(
    ("limit", "missing"), [("1024", 0), ("2116", 0), ("1000", 1000 - 31 * 31), ("2048", 2048 - 45 * 45)]
)
def test_below_the_warm_up_only_what_its_square_image_lacks_is_added(limit, missing):
    found, _ = rows("qwen3vl-8b-q4km", "--image-max-tokens", limit, projector="mmproj-qwen3vl-8b-f16")
    assert found.get("projector-at-image-limit", 0) == missing * 184_384


def test_attention_in_windows_grows_with_the_square_of_the_image():
    """Its mask has patches times patches.  Checked where the engine still has figures, then beyond."""
    name = "mmproj-qwen2.5vl-7b-f16"
    (_, small), (_, large) = (
        rows("qwen2.5-7b-q4km", "--image-max-tokens", limit, projector=name) for limit in ("1024", "2116")
    )
    found, beyond = rows("qwen2.5-7b-q4km", "--image-max-tokens", "4096", projector=name)
    assert small.projector_growth == 0
    assert large.projector_growth <= 4096
    straight = (large.gpu.projector - small.gpu.projector) / (2116 - 1024) * (4096 - 2116)
    assert found["projector-at-image-limit"] > 1.2 * straight
    assert beyond.gpu.projector == large.gpu.projector


@pytest.mark.parametrize("projector", ["mmproj-gemma3-4b-f16", "mmproj-minicpm-v-4.5-f16"])
def test_a_projector_whose_images_are_all_alike_gets_no_row(projector):
    found, breakdown = rows("gemma3-4b-q4km", "--image-max-tokens", "1024", projector=projector)
    assert breakdown.image_tokens is None
    assert not [name for name in found if name.startswith("projector")]


def test_experts_are_kept_until_the_fused_operations_are_done():
    found, breakdown = rows("qwen3-30b-a3b-q4km")
    assert found["moe-graph-dependencies"] == (2048 * 8 + 4 * 128) * 512 * 4
    assert breakdown.ubatch == 512
    larger, _ = rows("qwen3-30b-a3b-q4km", "-ub", "1024")
    assert larger["moe-graph-dependencies"] == 2 * found["moe-graph-dependencies"]
    dense, _ = rows("qwen3-8b-q4km")
    assert "moe-graph-dependencies" not in dense


def test_rows_that_are_no_multiple_of_512_are_padded():
    # gpt-oss has rows of 2880 values: the 192 that are missing take 204 bytes in Q8_0 and 102 in MXFP4, a tensor.
    found, breakdown = rows("gpt-oss-20b-mxfp4")
    assert breakdown.cuda.weights - breakdown.gpu.weights >= 24 * (4 * 204 + 3 * 102) // 2
    assert 0 < found["cuda-row-padding"] < MIB


def test_a_projector_whose_largest_image_the_engine_does_not_state_is_an_error():
    header, projector = gguf_models.header("qwen3vl-8b-q4km"), gguf_models.header("mmproj-qwen3vl-8b-f16")
    [counted] = ask([header, projector], [["-m", "qwen3vl-8b-q4km.gguf", "--mmproj", "mmproj-qwen3vl-8b-f16.gguf"]])

    with pytest.raises(EngineCannotPredict, match="does not state how many tokens an image may take") as caught:
        rules([header, projector], replace(counted, projector_growth=None))
    assert caught.value.next_step == "Choose a newer build: corral upgrade engine"
