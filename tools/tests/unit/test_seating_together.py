"""Which models run together: the sets of random cards, and llama-swap's choice among them."""

from __future__ import annotations

import itertools
import random

import pytest

from corral.seating import chart
from tests.support.seating_locks import MIB, card, entry, lock

SEEDS = range(60)
MODELS = 9
REQUESTS = 80


def a_card(seed):
    """The chart of a card that holds its groups, and what is left for models beyond them."""
    dice = random.Random(seed)
    models = {
        f"m{number}": entry(dice.choice((300, 900, 900, 2500, 7000)) * MIB, group=dice.choice(("a", "b", "c")))
        for number in range(dice.randint(1, MODELS))
    }
    seats = chart.of(lock({"t4": card(100_000)}, **models)).cards["t4"].groups
    least = sum(group.mib for group in seats.values())
    return chart.of(lock({"t4": card(least + dice.choice((0, 0, 1, 900, 3000, 9000)))}, **models)).cards["t4"]


def chosen(sets, model, running):
    """What llama-swap leaves running: of the sets with *model* that which unloads fewest, of equal ones the first."""
    kept = [[one for one in running if one in ids] for ids in sets if model in ids]
    return {model, *max(kept, key=len)}


@pytest.mark.parametrize("seed", SEEDS)
def test_each_choice_of_one_set_of_each_group_fits_and_no_model_can_be_added(seed):
    found = a_card(seed)
    for ids in itertools.product(*(group.sets for group in found.groups.values())):
        seats = {
            one: found.groups[group].models[one] for group, own in zip(found.groups, ids, strict=True) for one in own
        }
        assert sum(seats.values()) <= found.vram_mib
    for group in found.groups.values():
        assert {one for ids in group.sets for one in ids} == set(group.models)
        assert not any(set(one) < set(other) for one in group.sets for other in group.sets)
    if len(found.groups) == 1:
        (group,) = found.groups.values()
        for ids, (one, seat) in itertools.product(group.sets, group.models.items()):
            assert one in ids or sum(group.models[model] for model in ids) + seat > found.vram_mib


@pytest.mark.parametrize("seed", SEEDS)
def test_no_request_unloads_a_model_of_another_group_and_none_is_loaded_more_often_than_one_at_a_time(seed):
    found, dice = a_card(seed), random.Random(seed)
    sets = [list(itertools.chain(*ids)) for ids in itertools.product(*(one.sets for one in found.groups.values()))]
    group_of = {one: name for name, group in found.groups.items() for one in group.models}
    running, alone, loads, loads_alone = set(), {}, 0, 0
    for model in dice.choices(sorted(group_of), k=REQUESTS):
        before = set(running)
        if model not in running:
            running, loads = chosen(sets, model, sorted(running)), loads + 1
        if alone.get(group_of[model]) != model:
            alone[group_of[model]], loads_alone = model, loads_alone + 1
        assert {group_of[one] for one in before - running} <= {group_of[model]}

    assert loads <= loads_alone


def test_the_random_cards_have_what_can_differ():
    groups = [group for seed in SEEDS for group in a_card(seed).groups.values()]
    sets = [group.sets for group in groups]
    kinds = {
        "all together": sum(len(one) == 1 and len(one[0]) > 1 for one in sets),
        "one at a time": sum(len(one) > 1 and all(len(ids) == 1 for ids in one) for one in sets),
        "some together": sum(len(one) > 1 and any(len(ids) > 1 for ids in one) for one in sets),
        "several groups": sum(len(a_card(seed).groups) > 1 for seed in SEEDS),
    }
    assert min(kinds.values()) >= 5, kinds
