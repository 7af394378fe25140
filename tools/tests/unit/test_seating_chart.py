"""The chart for people: every MiB of it is Terraform's, every picture shows all of it."""

from __future__ import annotations

import random
from itertools import pairwise
from xml.etree import ElementTree as ET

import pytest

from corral.catalog.catalog import Catalog
from corral.catalog.intent import Card, Model, Tenant
from corral.seating import chart, remedies, svg, terminal
from corral.seating.chart import Part, cells, parts

SVG = "{http://www.w3.org/2000/svg}"


def model(mib: int, **more):
    plain = {"card": "t4", "slot": "main", "mib": mib, "basis": "predicted", "predicted_mib": mib, "measured_mib": None}
    return {**plain, "context": 16384, "context_trained": 40960, "largest_context": 32768, **more}


FITTING = {
    "cards": {
        "t4": {
            "vram_mib": 15360,
            "reserve_mib": 512,
            "tenants": {"frigate": 2300, "immich-ml": 2100},
            "slots": {
                "main": {"mib": 6996, "models": {"chat": 6996, "vision": 6717}},
                "side": {"mib": 10, "models": {"tiny": 10}},
            },
            "used_mib": 11918,
            "free_mib": 3442,
            "short_mib": 0,
            "fits": True,
            "remedies": [],
        }
    },
    "models": {"chat": model(6996), "vision": model(6717, basis="declared"), "tiny": model(10, slot="side")},
}
SHORT = {
    "cards": {
        "t4": {
            "vram_mib": 8000,
            "reserve_mib": 0,
            "tenants": {"immich-ml": 2100},
            "slots": {"main": {"mib": 6996, "models": {"chat": 6996}}},
            "used_mib": 9096,
            "free_mib": -1096,
            "short_mib": 1096,
            "fits": False,
            "remedies": [
                {"action": "context", "model": "chat", "value": 8192},
                {"action": "slot", "model": "chat", "value": "side"},
                {"action": "tenant_budget", "tenant": "immich-ml", "value": 1004},
            ],
        }
    },
    "models": {"chat": model(6996)},
}


def test_the_parts_of_a_card_are_all_of_it_the_largest_first():
    found = parts("t4", FITTING)

    assert [(part.kind, part.name, part.mib) for part in found] == [
        ("slot", "main", 6996),
        ("slot", "side", 10),
        ("tenant", "frigate", 2300),
        ("tenant", "immich-ml", 2100),
        ("reserve", "reserve", 512),
        ("free", "free", 3442),
    ]
    assert sum(part.mib for part in found) == 15360
    assert sum(part.percent for part in found) == pytest.approx(100)


def test_a_slot_says_who_may_sit_there_and_what_is_only_declared():
    assert [part.note for part in parts("t4", FITTING)][:2] == ["one of chat, vision (declared)", "tiny"]


def test_a_card_that_is_short_has_nothing_free_and_no_empty_reserve():
    assert [part.kind for part in parts("t4", SHORT)] == ["slot", "tenant"]


def test_cells_fill_the_bar_and_nobody_is_left_out():
    dice = random.Random(0)
    for _ in range(500):
        sizes = [dice.choice((1, 5, 500, 7000)) for _ in range(dice.randint(1, 20))]
        stretches = [Part("tenant", str(at), size, 0.0) for at, size in enumerate(sizes)]
        given = cells(stretches, sum(sizes), 72)

        assert sum(given) == 72
        assert min(given) >= 1
        pairs = sorted(zip(sizes, given, strict=True))
        assert all(a[1] <= b[1] + 1 for a, b in pairwise(pairs)), "who takes more must not get a shorter stretch"


def test_the_bar_and_its_legend_need_no_colour():
    told = terminal.draw(FITTING).plain.splitlines()

    assert told[0] == "t4: 15,360 MiB, 3,442 MiB free"
    assert len(told[1]) == terminal.BAR
    assert sorted(set(told[1])) == ["#", ".", "a", "b", "c", "d"]
    assert told[2] == "  a  slot main    6,996 MiB   45.5 %  one of chat, vision (declared)"
    assert [line.split()[0] for line in told[2:]] == list("abcd#.")


def test_the_end_of_a_card_that_is_short_is_marked_in_its_bar():
    told = terminal.draw(SHORT).plain.splitlines()

    assert told[0] == "t4: 8,000 MiB, 1,096 MiB short"
    assert told[1].index("|") == terminal.BAR * 8000 // 9096
    assert len(told[1]) == terminal.BAR + 1


def test_each_part_has_a_colour_of_its_own_beside_its_neighbours():
    spans = [span.style for span in terminal.draw(FITTING).spans if " on " in str(span.style)]

    assert len({str(style) for style in spans[:5]}) == 5


def test_the_picture_is_xml_and_shows_every_part_within_its_width():
    picture = ET.fromstring(svg.draw(FITTING))
    bars = [rect for rect in picture.iter(f"{SVG}rect") if rect.get("height") == "36"]

    assert sum(int(rect.get("width")) for rect in bars) == int(picture.get("width"))
    assert [int(rect.get("x")) for rect in bars] == sorted(int(rect.get("x")) for rect in bars)
    told = [text.text for text in picture.iter(f"{SVG}text")]
    assert {"t4: 15,360 MiB, 3,442 MiB free", "slot main", "6,996 MiB", "45.5 %", "immich-ml", "reserve"} <= set(told)
    assert picture.find(f"{SVG}path") is None
    assert max(int(text.get("y")) for text in picture.iter(f"{SVG}text")) < int(picture.get("height"))


def test_the_picture_marks_the_end_of_a_card_that_is_short():
    picture = ET.fromstring(svg.draw(SHORT))

    assert picture.find(f"{SVG}path").get("d").startswith(f"M{860 * 8000 // 9096} ")


def test_a_model_says_where_its_number_is_from():
    rows = chart.model_rows(
        {"models": {
            "a": model(7100, basis="measured", predicted_mib=6996, measured_mib=7100),
            "b": model(6996, measured_mib=6900),
            "c": model(5000, basis="declared", largest_context=None),
        }}
    )  # fmt: skip

    assert [(row[4], row[6]) for row in rows] == [
        ("measured (predicted 6,996)", "32,768"),
        ("predicted (measured 6,900)", "32,768"),
        ("declared", "none"),
    ]


def test_a_remedy_is_told_as_the_edit_that_it_is(tmp_path):
    chat = Model.model_validate(
        {"source": {"repo": "a/b", "quant": "F16"}, "card": "t4", "context": 16384, "modalities": ("text",)}
    )
    card = Card(vram_mib=8000, tenants={"immich-ml": Tenant(budget_mib=2100)})
    catalog = Catalog(tmp_path, {"chat": chat}, {"t4": card}, {}, {})

    assert remedies.edits("t4", SHORT["cards"]["t4"], catalog) == [
        "lower the context of chat: in models/chat.yaml, context: 8192 (now 16384)",
        "move chat to slot side: in models/chat.yaml, slot: side (now main)",
        "lower the budget of immich-ml: in cards/t4.yaml, immich-ml: {budget_mib: 1004} (now 2100)",
    ]
