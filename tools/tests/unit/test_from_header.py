"""Weights and context computed from the header alone are the engine's own bytes, or nothing is computed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from corral.vram import from_header, oracle
from corral.vram.from_header import FromHeader, disagreements
from corral.vram.gguf_header import parse
from corral.vram.server_flags import ServerFlags
from tests.support import gguf_models

GOLDEN = json.loads((Path(__file__).parents[1] / "fixtures" / "vram-golden-b11549.json").read_text())["models"]
CELLS = [(name, cell) for name, cells in GOLDEN.items() for cell in cells]
ON_CARD = ["-ngl", "99", "-fa", "on", "-fit", "off"]
QWEN = "qwen3-8b-q4km"
ARGV = ["-m", "m.gguf", "-c", "4096", "-np", "1", *ON_CARD]

ODD = [
    "-c 3000 -np 1",
    "-c 10000 -np 3",
    "-c 10000 -np 3 -kvu",
    "-c 700 -np 1 -ub 2048 -b 1024",
    "-c 8192 -np 1 -ub 2048 -b 300",
    "-c 8192 -np 2 -ctk q8_0 -ctv q5_1 -ub 256",
    "-c 8192",
    "-c 5000 -np 2 --swa-full",
    "-c 300 -np 4",
]
"""Contexts that are no multiple of the padding, slots that divide nothing, batches larger than the context."""

MODELS = {
    "plain": QWEN,
    "tied": "qwen3-4b-q4km",
    "with biases": "qwen2.5-7b-q4km",
    "with RoPE factors": "llama-3.1-8b-q4km",
    "experts": "qwen3-30b-a3b-q4km",
    "deepstack": "qwen3vl-4b-q4km",
    "five of six layers look back": "gemma3-4b-q4km",
    "every other layer looks back": "gpt-oss-20b-mxfp4",
    "latent": "deepseek-v2-lite-q4km",
    "gated delta net": "qwen3.6-27b-q2k",
}


@pytest.fixture(scope="module")
def header(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")

    def read(name, **changes):
        if not changes:
            return gguf_models.header(name)
        path = folder / f"{name}.gguf"
        gguf_models.write(name, path, **changes)
        with path.open("rb") as file:
            return parse(file.read(1 << 20), file_size=path.stat().st_size)

    return read


@pytest.fixture(scope="module")
def counted():
    """What the engine counts for ``QWEN`` with ``ARGV``."""
    [found] = oracle.ask([gguf_models.header(QWEN)], [ARGV])
    return found


def compute(headers, argv):
    return from_header.compute(headers if isinstance(headers, list) else [headers], argv)


def test_the_golden_cells_are_there():
    assert len(CELLS) >= 7 * 15


@pytest.mark.parametrize(("name", "cell"), CELLS, ids=[f"{name}-{number}" for number, (name, _) in enumerate(CELLS)])
def test_every_golden_cell_is_met_to_the_byte(header, name, cell):
    found = compute(header(name), cell["argv"])

    assert found == FromHeader(cell["gpu"]["model"], cell["host"]["model"], cell["gpu"]["context"])
    assert cell["host"]["context"] == 0


@pytest.mark.parametrize("kind", MODELS)
def test_the_engine_agrees_on_odd_command_lines(header, kind):
    model = header(MODELS[kind])
    latent = kind == "latent"  # which no quantised cache goes with
    argvs = [["-m", "m.gguf", *words.split(), *ON_CARD] for words in ODD if not (latent and "-ctk" in words)]

    for argv, breakdown in zip(argvs, oracle.ask([model], argvs), strict=True):
        assert disagreements([model], argv, breakdown) == [], argv
        assert None not in vars(compute(model, argv)).values(), argv


def test_key_value_heads_may_differ_from_layer_to_layer(header):
    """As in OpenELM: here half of the layers get half of the heads, with the tensors left as they are."""
    heads = [8, 4] * 18

    found = compute(header(QWEN, attention__head_count_kv=heads), ["-c", "1024", "-np", "1", *ON_CARD])

    assert found.context == sum(heads) * 128 * 2 * 2 * 1024


def test_without_flash_attention_values_lie_in_rows_of_the_widest_layer(header):
    uneven = header(QWEN, attention__head_count_kv=[8, 4] * 18)

    found = compute(uneven, ["-c", "1024", "-np", "1", "-ngl", "99", "-fa", "off"])

    assert found.context == (18 * 12 + 36 * 8) * 128 * 2 * 1024


def test_head_widths_are_derived_where_they_are_not_stated(header):
    whole = header(QWEN)
    metadata = {key: value for key, value in whole.metadata.items() if "_length" not in key or "attention" not in key}

    found = compute(replace(whole, metadata=metadata), ["-c", "1024", "-np", "1", *ON_CARD])

    assert found.context == 1024 * 36 * 2 * 1024 * 2


def test_shards_are_one_model(header, tmp_path):
    shards = []
    for path in gguf_models.write_shards(QWEN, tmp_path, 3):
        with path.open("rb") as file:
            shards.append(parse(file.read(1 << 20)))
    argv = ["-c", "4096", "-np", "1", *ON_CARD]

    assert compute(shards, argv) == compute(header(QWEN), argv)


def test_a_projector_among_the_headers_is_passed_over(header):
    argv = ["-c", "4096", "-np", "1", *ON_CARD]
    both = [header("qwen3vl-8b-q4km"), header("mmproj-qwen3vl-8b-f16")]

    assert compute(both, argv) == compute(both[0], argv)
    assert compute(both[1], argv) == FromHeader(None, None, None)


@pytest.mark.parametrize(
    "words",
    [
        "-ngl 20",
        "-ngl auto",
        "-ngl 99 --n-cpu-moe 4",
        "-ngl 99 --n-cpu-ffn 4",
        "-ngl 99 -ot exps=CPU",
        "-ngl 99 --no-kv-offload",
        "-ngl 99 --override-kv qwen3.block_count=int:2",
        "-ngl 99 --spec-type draft-mtp",
        "-ngl 99 -ctk q9_9",
        "",
    ],
)
def test_nothing_is_computed_about_flags_that_no_rule_covers(header, words):
    argv = ["-m", "m.gguf", "-c", "4096", "-np", "1", *words.split()]

    assert compute(header(QWEN), argv) == FromHeader(None, None, None)


def test_a_projector_is_no_shard_and_no_adapter(header, tmp_path):
    shards = []
    for path in gguf_models.write_shards(QWEN, tmp_path, 3):
        with path.open("rb") as file:
            shards.append(parse(file.read(1 << 20)))
    projector, adapter = header("mmproj-qwen3vl-8b-f16"), header("nomic-embed-1.5-f16")
    argv = [*ARGV, "--mmproj", "p.gguf"]
    assert compute([*shards, projector], argv) == compute(header(QWEN), ARGV)
    assert compute([header(QWEN), adapter, projector], [*argv, "--lora", "a.gguf"]).adapters > 0


def test_adapters_are_computed_from_their_own_headers_and_a_draft_is_passed_over(header):
    model, draft, adapter = header(QWEN), header("qwen3-4b-q4km"), header("nomic-embed-1.5-f16")
    found = from_header.compute([model, draft, adapter], [*ARGV, "-md", "d.gguf", "--lora-scaled", "a.gguf:0.5"])
    assert found.adapters == sum(-(-tensor.size // 32) * 32 for tensor in adapter.tensors) > 0
    assert found == replace(from_header.compute([model], ARGV), adapters=found.adapters)


def test_nothing_is_computed_without_a_context(header):
    assert compute(header(QWEN), ["-np", "1", *ON_CARD]) == FromHeader(None, None, None)
    assert compute(header(QWEN), ["-c", "0", "-np", "1", *ON_CARD]) == FromHeader(None, None, None)


def test_nothing_is_computed_about_an_architecture_that_no_rule_covers(header):
    encoder = header("nomic-embed-1.5-f16")

    assert compute(encoder, ["-c", "2048", "-np", "1", *ON_CARD]) == FromHeader(None, None, None)


def test_nothing_is_computed_about_a_model_with_layers_that_may_be_left_out(header):
    more = header(QWEN, nextn_predict_layers=1)

    assert compute(more, ["-c", "2048", "-np", "1", *ON_CARD]) == FromHeader(None, None, None)


def test_a_window_in_an_architecture_that_had_none_leaves_the_weights_alone(header):
    newer = header(QWEN, attention__sliding_window=1024)

    found = compute(newer, ["-c", "2048", "-np", "1", *ON_CARD])

    assert found.context is None
    assert found.gpu_weights == 4_671_766_528


@pytest.mark.parametrize("gone", ["head_count", "block_count", "embedding_length"])
def test_a_header_without_a_hyperparameter_is_not_guessed(header, gone):
    whole = header(QWEN)
    metadata = {key: value for key, value in whole.metadata.items() if gone not in key and "key_length" not in key}

    found = compute(replace(whole, metadata=metadata), ["-c", "2048", "-np", "1", *ON_CARD])

    assert found.context is None


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"gpu": {"weights": 1}}, "weights on the card: the engine counts 4,671,766,529 bytes, the header gives"),
        ({"host": {"weights": -1}}, "weights on the host"),
        ({"gpu": {"context": 32}}, "context: the engine counts"),
        ({"host": {"context": 7}}, "context on the host: the engine counts 7 bytes, the header gives 0"),
    ],
)
def test_one_byte_of_difference_is_named_with_both_numbers(header, counted, changes, what):
    model, bent = header(QWEN), counted
    for side, difference in changes.items():
        [(part, count)] = difference.items()
        bytes_ = getattr(counted, side)
        bent = replace(bent, **{side: bytes_.model_copy(update={part: getattr(bytes_, part) + count})})

    assert disagreements([model], ARGV, counted) == []
    [message] = disagreements([model], ARGV, bent)
    assert message.startswith(what)


def test_the_last_of_two_flags_counts_as_it_does_for_the_engine():
    flags = ServerFlags.parse(["-c", "1", "-np", "2", "-ngl", "99", "--ctx-size", "4096", "-ub", "128"])

    assert (flags.context, flags.sequences, flags.ubatch) == (4096, 2, 128)


def test_no_number_of_slots_means_four_that_share():
    flags = ServerFlags.parse(["-c", "4096", "-ngl", "99"])

    assert (flags.sequences, flags.unified) == (4, True)
    assert not ServerFlags.parse(["-c", "4096", "-ngl", "99", "-np", "4"]).unified


def test_every_architecture_has_one_rule():
    kinds = [from_header.PLAIN, from_header.SLIDING.keys(), from_header.LATENT, from_header.DELTA_NET]

    assert sum(map(len, kinds)) == len(set().union(*kinds))
