"""Where the models go that may run on several cards.  Seats are declared: the engine of the test predicts a byte."""

from __future__ import annotations

import json

import pytest

from corral.catalog import catalog
from corral.errors import CatalogInvalid, Refused
from corral.lock import lock, placement
from tests.support.relocking import edit, locked, stale

BOTH = "[t4, p40]"


@pytest.fixture
def folder(tmp_path):
    """Two cards, each with 900 MiB for models."""
    for name in ("models", "cards"):
        (tmp_path / name).mkdir()
    for name in ("p40", "t4"):
        card(tmp_path, name, 1000)
    return tmp_path


def card(folder, name, vram_mib):
    text = f"vram_mib: {vram_mib}\nreserve_mib: 50\ntenants: {{photos-{name}: {{budget_mib: 50}}}}\n"
    (folder / "cards" / f"{name}.yaml").write_text(text)


def model(folder, name, mib, cards=BOTH, group=None):
    where = f"cards: {cards}" if cards.startswith("[") else f"card: {cards}"
    text = f"source: {{repo: org/{name}, quant: Q4_K_M}}\n{where}\ncontext: 4096\nmodalities: [text]\n"
    declared = f"vram: {{declared_mib: {mib}, why: a test}}\ngroup: {group or name}\n"
    (folder / "models" / f"{name}.yaml").write_text(text + declared)


def read(folder):
    found = lock.read(folder / "lock.json")
    assert found is not None
    return found.models


def places(folder, hub):
    """The card of each model, after `corral lock`."""
    locked(folder, hub)
    assert stale(folder) == {}
    return {model_id: entry.intent.card for model_id, entry in read(folder).items()}


def test_the_largest_goes_first_each_to_the_first_of_its_cards_with_room(folder, hub):
    model(folder, "big", 800)
    model(folder, "middle", 300)
    model(folder, "small", 100)

    assert places(folder, hub) == {"big": "t4", "middle": "p40", "small": "t4"}
    assert [placement.reason(one) for one in read(folder).values()] == [
        "placed on t4: it was the first of its cards with room when it was placed",
        "placed on p40: t4 was short of 200 MiB when it was placed",
        "placed on t4: it was the first of its cards with room when it was placed",
    ]


def test_what_must_be_on_a_card_comes_first(folder, hub):
    model(folder, "big", 800)
    model(folder, "fixed", 200, cards="t4")

    assert places(folder, hub) == {"big": "p40", "fixed": "t4"}


def test_a_group_takes_what_its_largest_model_takes(folder, hub):
    model(folder, "one", 900, group="main")
    model(folder, "two", 800, group="main")

    assert places(folder, hub) == {"one": "t4", "two": "t4"}


def test_the_order_of_the_cards_is_the_operators(folder, hub):
    model(folder, "big", 800, cards="[p40, t4]")
    assert places(folder, hub) == {"big": "p40"}


def test_a_model_stays_where_it_fits_when_another_one_leaves(folder, hub):
    model(folder, "big", 800)
    model(folder, "middle", 300)
    assert places(folder, hub) == {"big": "t4", "middle": "p40"}
    (folder / "models" / "big.yaml").unlink()

    assert places(folder, hub) == {"middle": "p40"}
    assert read(folder)["middle"].placed.short_mib == {"t4": 200}


@pytest.mark.parametrize("before", ["p40", "[p40, t4]"], ids=["the only card", "the first card"])
def test_a_model_that_stays_on_a_later_card_has_not_found_the_others_short(folder, hub, before):
    model(folder, "big", 800, cards=before)
    assert places(folder, hub) == {"big": "p40"}
    model(folder, "big", 800, cards=BOTH)

    changes = locked(folder, hub)

    assert read(folder)["big"].intent.card == "p40"
    assert placement.reason(read(folder)["big"]) == "stays on p40: it was there before, and fits"
    assert "stays on p40: it was there before, and fits" in changes["big"].details


def test_the_reason_of_a_model_that_stays_names_no_card_that_it_may_not_run_on(folder, hub):
    model(folder, "big", 800)
    model(folder, "middle", 300)
    assert places(folder, hub)["middle"] == "p40"
    card(folder, "a100", 1000)
    model(folder, "middle", 300, cards="[a100, p40]")
    places(folder, hub)

    assert placement.reason(read(folder)["middle"]) == "stays on p40: it was there before, and fits"


def test_a_model_moves_when_something_that_must_be_there_takes_its_room_and_the_change_has_the_reason(folder, hub):
    model(folder, "big", 800)
    places(folder, hub)
    model(folder, "fixed", 200, cards="t4")

    changes = locked(folder, hub)

    assert read(folder)["big"].intent.card == "p40"
    assert set(changes["big"].details) == {
        "card t4 → p40",
        "placed on p40: t4 was short of 100 MiB when it was placed",
    }


def test_a_model_that_fits_on_none_is_refused_with_what_each_card_is_short_of(folder, hub):
    model(folder, "fixed", 500, cards="p40")
    model(folder, "huge", 1000)

    with pytest.raises(Refused) as error:
        locked(folder, hub)

    assert error.value.message == (
        "huge needs 1,000 MiB and fits on none of its cards: t4 is short of 100 MiB, p40 is short of 600 MiB."
    )
    assert not (folder / "lock.json").exists()


def test_the_same_catalog_has_the_same_places_without_a_lock(folder, hub):
    for name, mib in {"a": 500, "b": 500, "c": 400, "d": 300}.items():
        model(folder, name, mib)
    first, text = places(folder, hub), (folder / "lock.json").read_text()
    (folder / "lock.json").unlink()

    assert places(folder, hub) == first == {"a": "t4", "b": "p40", "c": "t4", "d": "p40"}
    assert (folder / "lock.json").read_text() == text


def test_a_model_that_is_given_one_card_has_no_reason_any_more(folder, hub):
    model(folder, "big", 800)
    places(folder, hub)
    model(folder, "big", 800, cards="p40")

    assert places(folder, hub) == {"big": "p40"}
    document = json.loads((folder / "lock.json").read_text())["models"]["big"]
    assert ("placed" in document, "cards" in document["intent"]) == (False, False)


@pytest.mark.parametrize(
    ("where", "problem"),
    {
        "card: t4\ncards: [t4, p40]": "stands beside card: keep card: t4, or cards alone.",
        "cards: [t4]": "names one card: write card: t4.",
        "cards: [t4, t4]": "names t4 twice.",
        "cards: [t4, a100]": "there is no card a100; there are: p40, t4.",
        "ttl: 5": "required key card is missing. Of several cards, cards lists those that it may run on.",
    }.items(),
)
def test_a_choice_of_cards_that_is_none_is_refused(folder, where, problem):
    model(folder, "big", 800)
    edit(folder, "big", "cards: [t4, p40]", where)
    with pytest.raises(CatalogInvalid) as error:
        catalog.load(folder)
    assert problem in str(error.value)
