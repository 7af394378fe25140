"""The two sums of the seating chart, the one in Terraform that decides and the one in Python that advises, are one."""

from __future__ import annotations

import random
from dataclasses import asdict

import pytest

from corral.seating import chart
from tests.support.seating import Seating
from tests.support.seating_locks import MIB, card, entry, lock, random_lock

SEED = 11549
LOCKS = 240


@pytest.fixture(scope="module")
def seating(tmp_path_factory):
    return Seating(tmp_path_factory.mktemp("seating"))


def plain(locks):
    """What the module takes, of each of *locks*."""
    return {name: one.model_dump(mode="json", include={"cards", "models"}) for name, one in locks.items()}


@pytest.fixture(scope="module")
def locks():
    dice = random.Random(SEED)
    print(f"seed {SEED}")  # noqa: T201 - shown with a failure
    return {f"lock-{number}": random_lock(dice) for number in range(LOCKS)}


@pytest.fixture(scope="module")
def charts(locks):
    return {name: chart.of(lock) for name, lock in locks.items()}


def test_every_figure_of_240_random_catalogs_is_the_same_in_terraform_and_in_python(seating, locks, charts):
    assert seating.charts(plain(locks)) == {name: asdict(one) for name, one in charts.items()}


def test_terraform_refuses_exactly_the_cards_that_python_finds_short_and_names_what_is_missing(seating, locks, charts):
    short = sorted(
        f"Card {name} is short of {found.short_mib} MiB"
        for one in charts.values()
        for name, found in one.cards.items()
        if found.short_mib
    )

    assert sorted(message.partition(":")[0] for message in seating.refusals(plain(locks))) == short


def test_the_random_catalogs_have_what_can_differ(locks, charts):
    cards = [card for one in charts.values() for card in one.cards.values()]
    models = [model for one in charts.values() for model in one.models.values()]
    entries = [entry for lock in locks.values() for entry in lock.models.values()]
    kinds = {
        "short": sum(card.short_mib > 0 for card in cards),
        "full to the last MiB or nearly": sum(abs(card.free_mib) < 300 for card in cards),
        "without models": sum(not card.groups for card in cards),
        "several groups": sum(len(card.groups) > 1 for card in cards),
        "ties in a group": sum(
            list(group.models.values()).count(group.mib) > 1 for card in cards for group in card.groups.values()
        ),
        "not predicted": sum(entry.predicted.gpu_bytes is None for entry in entries),
        "one byte above a MiB": sum((entry.predicted.gpu_bytes or 0) % MIB == 1 for entry in entries),
        **{basis: sum(model.basis == basis for model in models) for basis in ("predicted", "declared", "measured")},
    }

    assert min(kinds.values()) >= 5, kinds
    assert 200 <= LOCKS == len(locks)


def test_a_refusal_names_every_user_of_the_card_the_shortfall_and_a_command(seating):
    full = lock(
        {"t4": card(8192, reserve_mib=512, immich=2100, frigate=300)},
        chat=entry(5000 * MIB),
        coder=entry(4000 * MIB, measured=5000 * MIB),
        eyes=entry(900 * MIB, group="eyes", vram={"declared_mib": 1000, "why": "a test"}),
    )

    (refusal,) = seating.refusals(plain({"full": full}))

    assert refusal == (
        "Card t4 is short of 720 MiB: group main 5000 (chat, coder, measured), immich 2100, group eyes 1000 "
        "(eyes, declared), frigate 300, the reserve 512 add up to 8912 of its 8192 MiB. For remedies run: corral seat"
    )
