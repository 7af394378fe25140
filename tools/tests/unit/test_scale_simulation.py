"""The simulation of users and cards (tools/benchmarks/scale_support): what can be counted by hand."""

from __future__ import annotations

import dataclasses
import shutil
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
sys.path.append(str(ROOT / "tools" / "benchmarks"))

import scale  # noqa: E402
from scale_support import page  # noqa: E402
from scale_support.card import Card, Model, Request  # noqa: E402
from scale_support.fleet import Load, simulate  # noqa: E402
from scale_support.table import least_cards, table  # noqa: E402

from corral.catalog import ledger  # noqa: E402
from corral.catalog.ledger import FirstToken, NextToken, Speed  # noqa: E402
from corral.errors import CannotRun, Refused  # noqa: E402
from corral.latency.prediction import answer_seconds  # noqa: E402
from corral.lock import lock  # noqa: E402

SPEED = Speed(
    model="m",
    argv_sha256="0" * 64,
    card="c",
    engine="e",
    device="CPU",
    date="2026-01-01T00:00:00Z",
    first_token=(FirstToken(prompt_tokens=100, seconds=0.5), FirstToken(prompt_tokens=200, seconds=1.0)),
    next_token=(
        NextToken(at_once=1, context_tokens=100, seconds=0.01),
        NextToken(at_once=1, context_tokens=200, seconds=0.011),
        NextToken(at_once=2, context_tokens=100, seconds=0.015),
        NextToken(at_once=4, context_tokens=100, seconds=0.02),
    ),
    answers=40,
    p95_ratio=None,
    load_seconds=3.0,
)
ALONE = Model(SPEED, 4, "g", 3.0)


def ended(card, requests):
    """The requests in the order of their ends, after all have arrived at the time 0."""
    for one in requests:
        card.arrive(one)
    found = []
    while (time := card.time_of_event()) < float("inf"):
        found += card.advance_to(time)
    return found


@pytest.mark.parametrize("at_once", [1, 2, 3, 4])
def test_requests_that_arrive_together_take_what_is_predicted_for_them(at_once):
    card = Card({"m": dataclasses.replace(ALONE, load_seconds=0.0)})
    found = ended(card, [Request("m", 100, 41) for _ in range(at_once)])
    predicted = answer_seconds(SPEED, prompt_tokens=100, answer_tokens=41, at_once=at_once, parallel=4)
    assert len(found) == at_once
    assert [one.ended for one in found] == pytest.approx([predicted] * at_once)


def test_a_request_beyond_the_slots_begins_when_one_ends():
    card = Card({"m": Model(SPEED, 1, "g", 0.0)})
    first, second = ended(card, [Request("m", 100, 11), Request("m", 100, 11)])
    assert (first.ended, second.ended) == pytest.approx((0.6, 1.2), rel=0.05)


def test_another_model_of_the_group_is_loaded_only_when_nothing_is_under_way():
    card = Card({"a": ALONE, "b": ALONE})
    found = ended(card, [Request("a", 100, 1), Request("b", 100, 1), Request("a", 100, 1)])
    assert [one.model for one in found] == ["a", "a", "b"]
    assert [one.ended for one in found] == pytest.approx([3.5, 4.0, 7.5])
    assert card.loads == 2


def test_models_of_two_groups_share_the_compute_and_evict_nothing():
    models = {name: dataclasses.replace(ALONE, group=name, load_seconds=0.0) for name in "ab"}
    card = Card(models)
    found = ended(card, [Request("a", 100, 1), Request("b", 100, 1)])
    assert [one.ended for one in found] == pytest.approx([1.0, 1.0])
    assert [one.model for one in ended(card, [Request("a", 100, 1)])] == ["a"]
    assert card.loads == 2


def test_one_user_has_the_time_of_a_request_alone_and_the_card_rests_while_the_user_thinks():
    load = Load(1, 60.0, 100, 41, {"m": 1.0})
    found = simulate(load, {"m": ALONE}, cards=1, requests=500, at_most=10, seed=0)
    alone = answer_seconds(SPEED, prompt_tokens=100, answer_tokens=41, at_once=1, parallel=4)
    assert (found.p50, found.p95) == pytest.approx((alone, alone))
    assert found.busy == pytest.approx(alone / (60 + alone), rel=0.2)
    assert (found.refused, found.loads_per_hour) == (0, 0)


def test_a_busy_card_answers_as_many_a_second_whatever_the_number_of_users():
    answers = [
        simulate(Load(users, 0.0, 100, 41, {"m": 1.0}), {"m": ALONE}, cards=1, requests=2000, at_most=99, seed=0)
        for users in (4, 8, 40)
    ]
    together = 4 * 0.5 + 40 * 0.02  # seconds of four answers side by side
    assert [one.answers_per_second for one in answers] == pytest.approx([4 / together] * 3, rel=0.1)


def test_two_models_of_one_group_cause_loads_and_in_two_groups_none():
    load = Load(10, 60.0, 100, 41, {"a": 0.5, "b": 0.5})
    together = simulate(load, {"a": ALONE, "b": ALONE}, cards=1, requests=1000, at_most=10, seed=0)
    apart = {"a": ALONE, "b": dataclasses.replace(ALONE, group="h")}
    assert together.loads_per_hour > 100
    assert simulate(load, apart, cards=1, requests=1000, at_most=10, seed=0).loads_per_hour == 0


def test_an_idle_card_is_preferred_to_a_slot_beside_another_request():
    load = Load(2, 0.0, 100, 41, {"m": 1.0})
    alone = answer_seconds(SPEED, prompt_tokens=100, answer_tokens=41, at_once=1, parallel=4)
    found = simulate(load, {"m": ALONE}, cards=2, requests=200, at_most=10, seed=0)
    assert found.p95 == pytest.approx(alone)


def test_a_request_beyond_the_limit_is_refused_and_is_no_answer():
    found = simulate(Load(50, 1.0, 100, 41, {"m": 1.0}), {"m": ALONE}, cards=1, requests=2000, at_most=5, seed=0)
    assert 0.1 < found.refused < 1
    assert found.answers < 1600 * (1 - found.refused) + 1


def test_the_same_seed_gives_the_same_outcome_and_another_one_another():
    load = Load(20, 10.0, 100, 41, {"m": 1.0})
    first, again, other = (
        simulate(load, {"m": ALONE}, cards=2, requests=1000, at_most=10, seed=seed) for seed in (1, 1, 2)
    )
    assert first == again != other


def test_one_card_fewer_than_the_least_does_not_keep_the_time():
    cards, found = least_cards(SPEED, 4, 500)
    assert cards > 1
    assert found.p95 <= 10
    loaded = {"m": dataclasses.replace(ALONE, load_seconds=0.0)}
    fewer = simulate(Load(500, 60.0, 200, 48, {"m": 1.0}), loaded, cards=cards - 1, requests=2000, at_most=10, seed=0)
    assert fewer.p95 > 10 or fewer.refused > 0.001


def test_a_model_too_slow_for_one_request_has_no_number_of_cards():
    slow = SPEED.model_copy(
        update={"first_token": (FirstToken(prompt_tokens=100, seconds=11), FirstToken(prompt_tokens=200, seconds=11))}
    )
    assert least_cards(slow, 1, 10) == (0, None)
    assert "do not keep the time" in table(slow, 1, (10,))


def test_a_speed_that_lacks_the_requests_of_the_table_gives_no_table():
    with pytest.raises(CannotRun, match="lacks prompts of 200 tokens, or 8 answers side by side"):
        table(SPEED, 8, (1,))


@pytest.fixture
def catalog(tmp_path):
    """The demo's catalog, whose model smollm2 has a speed of its locked command line, and tiny-text one of another."""
    shutil.copytree(ROOT / "terraform" / "catalog-demo", tmp_path / "c")
    entry = lock.require(tmp_path / "c").models["smollm2"]
    of = {"model": "smollm2", "card": entry.intent.card, "argv_sha256": ledger.argv_sha256(entry.argv)}
    stale = SPEED.model_copy(update={"model": "tiny-text", "card": entry.intent.card})
    ledger.write(tmp_path / "c", ledger.Ledger(speeds=(SPEED.model_copy(update=of), stale)))
    return tmp_path / "c"


def test_a_catalog_has_the_table_of_its_locked_model_with_its_slots(catalog, monkeypatch, capsys):
    monkeypatch.setattr(scale, "TABLE_USERS", (1, 10))
    assert scale.of_catalog(catalog, "smollm2") == 0
    assert capsys.readouterr().out.strip() == table(SPEED, 1, (1, 10))


def test_a_model_that_is_not_locked_and_a_speed_of_another_command_line_are_refused(catalog):
    with pytest.raises(Refused, match="has no model absent"):
        scale.of_catalog(catalog, "absent")
    with pytest.raises(CannotRun, match="tiny-text has no speed of its locked command line"):
        scale.of_catalog(catalog, "tiny-text")


def test_a_load_that_was_not_measured_gives_no_table_of_models_in_turns():
    unknown = SPEED.model_copy(update={"load_seconds": None})
    assert "| 1 | 1 |" in table(unknown, 4, (1,))
    with pytest.raises(CannotRun, match="lacks the seconds of a load"):
        table(unknown, 4, (1,), turns=2)


def test_models_in_turns_are_loaded_and_one_that_stays_is_not():
    columns = [table(SPEED, 4, (10,), turns=turns).splitlines()[-1].split(" | ")[6] for turns in (1, 2)]
    assert columns[0] == "0"
    assert int(columns[1]) > 10


@pytest.mark.parametrize("users", [1, 10, 50, 100])
def test_the_page_has_the_rows_that_its_speeds_give_now(users):
    rows = [f"| {users:,} |" for _ in page.TURNS]
    stated = page.of_page(page.PAGE.read_text(encoding="utf-8"))
    for row, (turns, made) in zip(rows, page.tables((users,)), strict=True):
        (found,) = [line for line in stated[turns].splitlines() if line.startswith(row)]
        assert found == made.splitlines()[-1]


def test_every_row_of_the_page_is_made_and_no_other_line():
    stated = page.of_page(page.PAGE.read_text(encoding="utf-8"))
    assert sorted(stated) == sorted(page.TURNS)
    assert [len(one.splitlines()) for one in stated.values()] == [2 + len(page.TABLE_USERS)] * len(page.TURNS)


def test_the_tables_of_a_page_are_replaced_and_its_other_lines_stay(monkeypatch):
    monkeypatch.setattr(page, "tables", lambda: iter([(1, "NEW")]))
    text = "a\n<!-- models: 1 -->\n\n{}\n\n<!-- end -->\nb\n"
    assert page.made_again(text.format("old")) == text.format("NEW")
