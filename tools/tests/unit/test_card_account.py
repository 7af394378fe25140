"""The account of a card: what is known is added up, what is unknown stays unknown."""

from __future__ import annotations

from dataclasses import replace

import pytest

from corral.card import drawing, local
from corral.exporter import account
from corral.exporter.driver import Card
from corral.exporter.holders import CardReading, Holder, Kind, Reading
from corral.seating import chart as charts
from corral.seating.drawing import parts
from tests.support import seating_locks

MIB = 1 << 20
LOCK = seating_locks.lock(
    {"t4": seating_locks.card(15360, reserve_mib=512, immich_ml=2100, frigate=2300)},
    qwen3_8b=seating_locks.entry(6996 * MIB, group="main"),
    gemma=seating_locks.entry(5000 * MIB, measured=5100 * MIB, group="main"),
    embed=seating_locks.entry(900 * MIB, group="side"),
)


def holder(kind, name, held_mib, pid=1):
    return Holder(kind, name, (pid,), None if held_mib is None else held_mib * MIB)


def reading(free_mib, *holders, total_mib=15360, **more):
    card = Card("GPU-1", "Tesla T4", total_mib * MIB, None if free_mib is None else free_mib * MIB)
    return Reading((CardReading(card, holders),), **{"certain": frozenset({Kind.MODEL})} | more)


def t4(found):
    (one,) = account.of(local.promises(LOCK), found)
    return one


def rows(found):
    return {row.name: row for row in t4(found).rows}


def test_a_model_has_what_was_promised_predicted_and_measured_and_what_its_process_holds():
    row = rows(reading(8000, holder(Kind.MODEL, "gemma", 5060)))["gemma"]
    figures = (row.promised, row.predicted, row.measured, row.held)
    assert figures == (5100 * MIB, 5000 * MIB, 5100 * MIB, 5060 * MIB)
    assert row.group == "main"


def test_the_tenant_that_ballooned_is_an_excess_of_what_is_no_model():
    """2026-06-02: a tenant of 2.1 GB held 10.7 GB, and no model could be loaded."""
    found = t4(reading(4634, holder(Kind.PROCESS, "python3", 10726)))
    assert found.others == 10726 * MIB
    assert found.others_promised == (2100 + 2300 + 512) * MIB
    assert found.others_over == (10726 - 4912) * MIB
    short = {row.name: row.short for row in found.rows if row.kind == "model"}
    assert short == {"qwen3-8b": (6996 - 4634) * MIB, "gemma": (5100 - 4634) * MIB, "embed": 0}


def test_within_the_budgets_nothing_is_over():
    found = t4(reading(5000, holder(Kind.MODEL, "gemma", 5100), holder(Kind.POD, "pod 1", 4000)))
    assert (found.over, found.others_over) == ((), 15360 * MIB - 5000 * MIB - 5100 * MIB - 4912 * MIB)
    assert t4(reading(8000, holder(Kind.MODEL, "gemma", 5100))).others_over == 0


def test_a_model_that_holds_more_than_its_seat_is_over_its_promise():
    found = t4(reading(1, holder(Kind.MODEL, "embed", 1000)))
    assert [(row.name, row.over) for row in found.over] == [("embed", 100 * MIB)]


def test_the_group_makes_room_for_a_model_of_its_own():
    found = rows(reading(2000, holder(Kind.MODEL, "gemma", 5100)))
    assert (found["qwen3-8b"].short, found["gemma"].short, found["embed"].short) == (0, 0, 0)
    assert rows(reading(500, holder(Kind.MODEL, "gemma", 5100)))["embed"].short == 400 * MIB


@pytest.mark.parametrize("code", ["missing", "hanging", "failed", "unreadable", "no_cards"])
def test_without_the_driver_all_that_is_held_is_unknown(code):
    found = t4(Reading(unknown=code, problem="a test"))
    assert (found.unknown, found.used, found.others, found.others_over, found.driver) == (code, None, None, None, None)
    assert {row.held for row in found.rows} == {None}
    assert {row.short for row in found.rows} == {None}


def test_a_process_without_a_figure_leaves_its_model_unknown_and_the_sum_known():
    found = t4(reading(8000, holder(Kind.MODEL, "gemma", None)))
    (gemma,) = (row for row in found.rows if row.name == "gemma")
    assert (gemma.held, found.others) == (None, None)
    assert found.used == 7360 * MIB


def test_where_the_pids_are_those_of_another_namespace_no_model_holds_0():
    found = rows(reading(8000, holder(Kind.HIDDEN, "pid 7", 5000), certain=frozenset()))
    assert {found[name].held for name in ("qwen3-8b", "gemma", "embed")} == {None}
    assert found["pid 7"].held == 5000 * MIB


def test_a_card_without_figures_is_unknown_and_not_full():
    found = t4(reading(None))
    assert (found.used, found.others_over) == (None, None)
    assert [row.held for row in found.rows if row.kind == "unattributed"] == [None]


def test_memory_that_no_process_accounts_for_is_a_row_of_its_own():
    assert rows(reading(8000, holder(Kind.PROCESS, "Xorg", 300)))["not attributed"].held == (7360 - 300) * MIB


def test_a_model_that_is_not_in_the_lock_is_listed_all_the_same():
    assert rows(reading(8000, holder(Kind.MODEL, "old", 300)))["old"].held == 300 * MIB


def test_of_two_cards_none_is_taken_for_the_catalogs():
    card = Card("GPU-1", "Tesla T4", 1, 1)
    found = t4(Reading((CardReading(card, ()), CardReading(Card("GPU-2", "Tesla T4", 1, 1), ()))))
    assert found.unknown == "card_unmatched"
    assert "Tesla T4 (GPU-1), Tesla T4 (GPU-2)" in found.problem
    assert {row.held for row in found.rows} == {None}


def test_a_card_of_another_size_is_reported():
    found = t4(replace(reading(100, total_mib=24564), problem="Of the owners."))
    assert found.problem == "t4 has 15,360 MiB in the catalog, 24,564 by the driver. Of the owners."
    assert not found.unknown


def test_the_table_shows_unknown_as_a_question_mark_and_never_as_0():
    table = drawing.table(t4(Reading(unknown="hanging", problem="a test")))
    held = {line[1]: line[6] for line in table}
    assert held == {"qwen3-8b": "?", "gemma": "?", "embed": "?", "immich-ml": "?", "frigate": "?", "reserve": "-"}


def test_the_promises_are_drawn_as_by_corral_seat():
    chart = charts.of(LOCK)
    drawn = [(part.kind, part.name, part.mib, part.letter) for part in drawing.promises(t4(reading(2000)))]
    assert drawn == [(part.kind, part.name, part.mib, part.letter) for part in parts("t4", chart)]


def test_a_letter_stands_for_the_same_holder_in_both_bars():
    found = t4(reading(2000, holder(Kind.MODEL, "gemma", 5100), holder(Kind.PROCESS, "python3", 5000)))
    drawn = "".join(text for text, _ in drawing.draw(found)).splitlines()[1:3]
    promised, held = (line[len("promised  ") :] for line in drawn)
    letters = drawing.letters(found)
    assert letters["model", "gemma"] == letters["model", "qwen3-8b"]
    assert letters["model", "gemma"] in promised
    assert letters["model", "gemma"] in held
    assert letters["process", "python3"] not in promised
    assert letters["process", "python3"] in held
    assert len(promised) == len(held)
