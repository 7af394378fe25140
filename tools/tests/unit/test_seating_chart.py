"""The sum of a card: seats, groups, tenants and the reserve."""

from __future__ import annotations

from corral.seating import chart
from tests.support.seating_locks import MIB, card, entry, lock

TENANTS = {"immich_ml": 2100, "immich_server": 1200, "frigate": 2300}


def homelab(**models):
    return lock({"t4": card(15360, reserve_mib=512, **TENANTS)}, **models)


def three():
    return homelab(qwen3_8b=entry(6996 * MIB), qwen3vl_8b=entry(6717 * MIB), tiny=entry(900 * MIB, group="side"))


def test_a_group_takes_what_its_largest_model_takes():
    groups = chart.of(three()).cards["t4"].groups

    assert groups == {
        "main": chart.Group(6996, {"qwen3-8b": 6996, "qwen3vl-8b": 6717}, [["qwen3-8b"], ["qwen3vl-8b"]]),
        "side": chart.Group(900, {"tiny": 900}, [["tiny"]]),
    }


def test_groups_tenants_and_reserve_are_summed():
    found = chart.of(three()).cards["t4"]

    assert found.tenants == {"frigate": 2300, "immich-ml": 2100, "immich-server": 1200}
    assert found.used_mib == 6996 + 900 + 2300 + 2100 + 1200 + 512
    assert (found.free_mib, found.short_mib, found.fits) == (15360 - 14008, 0, True)


def test_a_card_that_is_full_to_the_last_mib_fits_and_one_mib_more_is_short():
    full = chart.of(lock({"t4": card(2000, reserve_mib=400, desktop=600)}, chat=entry(1000 * MIB))).cards["t4"]
    more = chart.of(lock({"t4": card(2000, reserve_mib=400, desktop=601)}, chat=entry(1000 * MIB))).cards["t4"]

    assert (full.free_mib, full.short_mib, full.fits) == (0, 0, True)
    assert (more.free_mib, more.short_mib, more.fits) == (-1, 1, False)


def test_one_byte_more_is_one_mib_more():
    models = chart.of(homelab(even=entry(900 * MIB), odd=entry(900 * MIB + 1))).models

    assert (models["even"].mib, models["odd"].mib) == (900, 901)


def test_a_measurement_counts_where_it_is_larger():
    models = chart.of(
        homelab(chat=entry(6996 * MIB, measured=7100 * MIB + 1), tiny=entry(900 * MIB, measured=800 * MIB))
    ).models

    assert (models["chat"].mib, models["chat"].basis) == (7101, "measured")
    assert (models["tiny"].mib, models["tiny"].basis) == (900, "predicted")


def test_a_declaration_counts_where_it_is_larger_and_where_the_engine_could_not_predict():
    models = chart.of(
        homelab(
            more=entry(900 * MIB, vram={"declared_mib": 2000, "why": "loads adapters"}),
            equal=entry(900 * MIB, vram={"declared_mib": 900, "why": "loads adapters"}),
            unknown=entry(None, vram={"declared_mib": 2000, "why": "read from its log"}),
        )
    ).models

    assert {model_id: (model.mib, model.basis) for model_id, model in models.items()} == {
        "more": (2000, "declared"),
        "equal": (900, "predicted"),
        "unknown": (2000, "declared"),
    }


def test_each_card_has_its_own_sum_and_may_have_no_models():
    found = chart.of(
        lock(
            {"a": card(2600, reserve_mib=512), "b": card(2500, desktop=500), "c": card(4096, reserve_mib=512)},
            one=entry(1000 * MIB, card="a"),
            two=entry(1000 * MIB, card="b"),
        )
    ).cards

    assert {name: one.free_mib for name, one in found.items()} == {"a": 1088, "b": 1000, "c": 3584}
    assert found["c"].groups == {}


def test_the_room_of_a_model_is_what_is_free_and_what_its_group_takes():
    found = chart.of(three())

    assert {model_id: (found.room_mib(model_id), found.others_mib(model_id)) for model_id in found.models} == {
        "qwen3-8b": (1352 + 6996, 6717),
        "qwen3vl-8b": (1352 + 6996, 6996),
        "tiny": (1352 + 900, 0),
    }
