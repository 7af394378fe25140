"""The pictures of the chart: every one shows all of a card."""

from __future__ import annotations

import random
from itertools import pairwise
from xml.etree import ElementTree as ET

import pytest

from corral.seating import chart, svg, terminal
from corral.seating.drawing import Part, cells, parts
from tests.support.seating_locks import MIB, card, entry, lock

SVG = "{http://www.w3.org/2000/svg}"
FITTING = chart.of(
    lock(
        {"t4": card(15360, reserve_mib=512, frigate=2300, immich_ml=2100)},
        chat=entry(6996 * MIB),
        vision=entry(6000 * MIB, vram={"declared_mib": 6717, "why": "a test"}),
        tiny=entry(10 * MIB, group="side"),
    )
)
SHORT = chart.of(lock({"t4": card(8000, immich_ml=2100)}, chat=entry(6996 * MIB)))


def printed(one):
    return "".join(text for text, _ in terminal.draw(one)).splitlines()


def test_the_parts_of_a_card_are_all_of_it_the_largest_first():
    found = parts("t4", FITTING)

    assert [(part.kind, part.name, part.mib) for part in found] == [
        ("group", "main", 6996),
        ("group", "side", 10),
        ("tenant", "frigate", 2300),
        ("tenant", "immich-ml", 2100),
        ("reserve", "reserve", 512),
        ("free", "free", 3442),
    ]
    assert sum(part.mib for part in found) == 15360
    assert sum(part.percent for part in found) == pytest.approx(100)


def test_a_group_names_its_models_and_what_is_only_declared():
    assert [part.note for part in parts("t4", FITTING)][:2] == ["one of chat, vision (declared)", "tiny"]


def test_a_card_that_is_short_has_nothing_free_and_no_empty_reserve():
    assert [part.kind for part in parts("t4", SHORT)] == ["group", "tenant"]


def test_cells_fill_the_bar_and_each_part_has_one_at_least():
    dice = random.Random(0)
    for _ in range(500):
        sizes = [dice.choice((1, 5, 500, 7000)) for _ in range(dice.randint(1, 20))]
        stretches = [Part("tenant", str(at), size, 0.0, "a") for at, size in enumerate(sizes)]
        given = cells(stretches, sum(sizes), 72)

        assert sum(given) == 72
        assert min(given) >= 1
        pairs = sorted(zip(sizes, given, strict=True))
        assert all(a[1] <= b[1] + 1 for a, b in pairwise(pairs)), "a larger part must not get a shorter stretch"


def test_the_bar_and_its_legend_need_no_colour():
    lines = printed(FITTING)

    assert lines[0] == "t4: 15,360 MiB, 3,442 MiB free"
    assert len(lines[1]) == terminal.BAR
    assert sorted(set(lines[1])) == ["#", ".", "a", "b", "c", "d"]
    assert lines[2] == "  a  group main    6,996 MiB   45.5 %  one of chat, vision (declared)"
    assert [line.split()[0] for line in lines[2:]] == list("abcd#.")


def test_the_end_of_a_card_that_is_short_is_marked_in_its_bar():
    lines = printed(SHORT)

    assert lines[0] == "t4: 8,000 MiB, 1,096 MiB short"
    assert lines[1].index("|") == terminal.BAR * 8000 // 9096
    assert len(lines[1]) == terminal.BAR + 1


def test_each_part_has_a_colour_of_its_own_beside_its_neighbours():
    styles = [style for _, style in terminal.draw(FITTING) if " on " in style]

    assert len(set(styles[:5])) == 5


def test_two_cards_are_drawn_one_below_the_other():
    lines = printed(chart.of(lock({"a": card(1000), "b": card(2000)})))

    assert [line for line in lines if "MiB free" in line] == [
        "a: 1,000 MiB, 1,000 MiB free",
        "b: 2,000 MiB, 2,000 MiB free",
    ]


def test_the_picture_is_xml_and_shows_every_part_within_its_width():
    picture = ET.fromstring(svg.draw(FITTING))
    bars = [rect for rect in picture.iter(f"{SVG}rect") if rect.get("height") == "36"]

    assert sum(int(rect.get("width")) for rect in bars) == int(picture.get("width"))
    assert [int(rect.get("x")) for rect in bars] == sorted(int(rect.get("x")) for rect in bars)
    texts = [text.text for text in picture.iter(f"{SVG}text")]
    assert {"t4: 15,360 MiB, 3,442 MiB free", "group main", "6,996 MiB", "45.5 %", "immich-ml", "reserve"} <= set(texts)
    assert picture.find(f"{SVG}path") is None
    assert max(int(text.get("y")) for text in picture.iter(f"{SVG}text")) < int(picture.get("height"))


def test_the_picture_marks_the_end_of_a_card_that_is_short():
    picture = ET.fromstring(svg.draw(SHORT))

    assert picture.find(f"{SVG}path").get("d").startswith(f"M{860 * 8000 // 9096} ")
