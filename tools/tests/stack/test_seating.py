"""The seating module with the real Terraform, over many catalogs at once: what it refuses, and in which words."""

from __future__ import annotations

import random
from typing import Any

import pytest

from corral.terraform import runner
from tests.support.seating import Seating

MIB = 1 << 20
CATALOGS = 64


@pytest.fixture(scope="module")
def seating(tmp_path_factory):
    return Seating(tmp_path_factory.mktemp("seating"))


def model(group: str, mib: int, *, declared: int | None = None, measured: int | None = None) -> dict[str, Any]:
    """What the module reads of a model; figures in MiB."""
    return {
        "intent": {"card": "t4", "group": group, "vram": declared and {"declared_mib": declared, "why": "a test"}},
        "predicted": {"gpu_bytes": mib * MIB},
        "measured": measured and {"gpu_bytes": measured * MIB, "device": "Tesla T4"},
    }


def catalog(vram_mib: int, tenants: dict[str, int], **models: dict[str, Any]) -> dict[str, Any]:
    """One card of *vram_mib*, budgets of *tenants* in MiB, and *models*."""
    promised = {name: {"budget_mib": mib} for name, mib in tenants.items()}
    return {"cards": {"t4": {"vram_mib": vram_mib, "reserve_mib": 512, "tenants": promised}}, "models": models}


def random_catalog(dice: random.Random) -> dict[str, Any]:
    """Up to six models in three groups and up to four tenants, near the edge of fitting."""
    models = {
        f"model-{number}": model(dice.choice(["main", "eyes", "side"]), dice.randint(200, 6000))
        for number in range(dice.randint(1, 6))
    }
    tenants = {f"tenant-{number}": dice.randint(1, 2000) for number in range(dice.randint(0, 4))}
    return catalog(dice.randint(6000, 20000), tenants, **models)


def test_the_plan_refuses_exactly_the_sets_that_are_short(seating):
    dice = random.Random(11549)
    catalogs = {f"catalog-{number}": random_catalog(dice) for number in range(CATALOGS)}

    short = [chart["cards"]["t4"]["short_mib"] for chart in seating.charts(catalogs).values()]
    refused = [int(text.split()[5]) for text in seating.refusals(catalogs)]

    assert sorted(refused) == sorted(mib for mib in short if mib)
    assert CATALOGS / 8 < len(refused) < CATALOGS * 7 / 8


def test_a_refusal_names_every_user_of_the_card_the_shortfall_and_a_command(seating):
    full = catalog(
        8192,
        {"immich": 2100, "frigate": 300},
        chat=model("main", 5000),
        coder=model("main", 4000, measured=5000),
        eyes=model("eyes", 900, declared=1000),
    )

    (refusal,) = seating.refusals({"full": full})

    assert refusal == (
        "Card t4 is short of 720 MiB: group main 5000 (chat, coder, measured), immich 2100, group eyes 1000 "
        "(eyes, declared), frigate 300, the reserve 512 add up to 8912 of its 8192 MiB. For remedies run: corral seat"
    )
    assert runner.REMEDY.fullmatch(refusal)
