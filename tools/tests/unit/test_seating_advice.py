"""What a catalog is advised against: codes with fields, each with its near misses."""

from __future__ import annotations

import pytest

from corral.seating import advice, chart
from corral.seating.advice import Advice
from tests.support.seating_locks import MIB, card, entry, lock

CARDS = {"t4": card(15360, capability="7.5"), "a2": card(15360, capability="8.6")}
ARGV = ("llama-server", "-fa", "on")
FINE = {
    "plain": entry(MIB),
    "ampere": entry(
        MIB,
        card="a2",
        modalities=["text", "image"],
        argv=(*ARGV, "--cache-type-k", "q8_0"),
        predicted={"projector_type": "BF16"},
    ),
    "bf16_cache": entry(MIB, argv=(*ARGV, "--cache-type-k", "bf16"), predicted={"projector_type": "F16"}),
    "decided": entry(MIB, args={"grammar-file": "a.gbnf"}, reasoning="off"),
    "number": entry(MIB, smoke={"expect": "42"}),
    "repeated": entry(MIB, argv=(*ARGV, "-ctk", "q4_0", "-ctk", "f16")),
}
SEEING = {"modalities": ["text", "image"]}


def advised(cards=CARDS, **models):
    one = lock(cards, **models)
    return list(advice.of(one, chart.of(one)))


def test_nothing_is_advised_without_a_reason():
    assert advised(**FINE) == []


@pytest.mark.parametrize(
    ("code", "model"),
    [
        ("quantised_cache_on_turing", entry(MIB, argv=(*ARGV, "--cache-type-v", "q8_0"))),
        ("quantised_cache_on_turing", entry(MIB, argv=(*ARGV, "-ctk", "f16", "-ctk", "q4_0"))),
        ("bf16_projector_on_turing", entry(MIB, **SEEING, predicted={"projector_type": "BF16"})),
        ("flash_attention_off", entry(MIB, argv=("llama-server", "-c", "4096"))),
        ("flash_attention_off", entry(MIB, argv=(*ARGV, "--flash-attn", "off"))),
        ("json_with_reasoning_auto", entry(MIB, args={"json-schema": "{}"})),
        ("json_with_reasoning_auto", entry(MIB, smoke={"expect": '{"verdict": "spam"}'})),
        ("json_with_reasoning_auto", entry(MIB, smoke={"expect": "[1, 2]"})),
    ],
)
def test_a_model_is_named_with_the_code_of_what_it_should_not_do(code, model):
    (found,) = advised(**FINE, wrong=model)

    assert found == Advice(code, models=("wrong",))
    assert "wrong" in advice.sentence(found)


def test_a_card_with_less_than_512_mib_left_is_named_and_one_that_is_short_is_not():
    cards = {name: card(1000 + free) for name, free in {"full": 0, "nearly": 511, "fine": 512, "short": -1}.items()}
    models = {f"on_{name}": entry(1000 * MIB, card=name) for name in cards}

    (found,) = advised(cards, **models)

    assert found == Advice("card_nearly_full", cards={"full": 0, "nearly": 511})
    assert "full (0 MiB), nearly (511 MiB)" in advice.sentence(found)


@pytest.mark.parametrize(("models", "codes"), [(12, []), (13, ["too_many_to_combine"])])
def test_a_card_with_more_models_than_are_combined_is_named(models, codes):
    found = advised({"t4": card(10000)}, **{f"m{number}": entry(MIB) for number in range(models)})

    assert [one.code for one in found] == codes
    assert all("t4 (9999 MiB)" in advice.sentence(one) for one in found)
