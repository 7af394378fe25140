"""The seating module with the real Terraform, over many sets at once: what fits, what does not, and what would help."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.seating import MIB, Seating, Set

CONTEXTS = (1024, 2048, 3072, 4096, 8192, 16384, 32768)
RUNGS = (2048, 4096, 8192, 16384, 32768)
SETS = 64


@pytest.fixture(scope="module")
def seating(tmp_path_factory):
    return Seating(tmp_path_factory.mktemp("seating"))


def random_set(dice: random.Random) -> Set:
    """One card with up to four tenants and six models in up to three slots, near the edge of fitting."""
    models, ladders, measured = {}, {}, {}
    slots = dice.sample(["main", "eyes", "side"], dice.randint(1, 3))
    for number in range(dice.randint(1, 6)):
        model_id = f"model-{number}"
        models[model_id] = {
            "card": "t4",
            "context": dice.choice(CONTEXTS),
            "slot": dice.choice(slots),
            "modalities": ["text"],
        }
        base, step = dice.randint(200, 6000) * MIB, dice.randint(1, 200_000)
        ladders[model_id] = {at: base + at * step + dice.randint(0, MIB) for at in CONTEXTS}
        need = ladders[model_id][models[model_id]["context"]]
        if dice.random() < 0.2:
            models[model_id]["vram"] = {"declared_mib": -(-need // MIB) + dice.randint(0, 800), "why": "a test"}
        if dice.random() < 0.3:
            most = dice.choice([tokens for tokens in (512, 2048, 3000) if tokens < models[model_id]["context"]])
            models[model_id] |= {"modalities": ["text", "image"], "image_max_tokens": most}
        if dice.random() < 0.2:
            measured[model_id] = need + dice.randint(-200, 400) * MIB
    tenants = {f"tenant-{number}": {"budget_mib": dice.randint(1, 4000)} for number in range(dice.randint(0, 4))}
    card: dict[str, Any] = {"vram_mib": 1 << 20, "reserve_mib": dice.choice((0, 512)), "tenants": tenants}
    made = Set({"t4": card}, models, ladders, measured)
    card["vram_mib"] = max(card["reserve_mib"] + 1, total(made) - round(dice.triangular(-2500, 6000, 0)))
    return made


def seat(one: Set, model_id: str, context: int | None = None) -> int:
    """MiB of a model: now, or with another context, for which what was measured above the lock is kept."""
    intent = one.models[model_id]
    declared = intent.get("vram", {}).get("declared_mib", 0) * MIB
    now = max(one.ladders[model_id][intent["context"]], declared)
    surplus = max(one.measured.get(model_id, 0) - now, 0)
    need = max(one.ladders[model_id][context], declared) if context else now
    return -(-(need + surplus) // MIB)


def total(one: Set, *, contexts: dict[str, int] | None = None, slots: dict[str, str] | None = None) -> int:
    """The sum on the card, written down a second time: only a test may."""
    largest: dict[str, int] = defaultdict(int)
    for model_id, intent in one.models.items():
        slot = (slots or {}).get(model_id, intent["slot"])
        largest[slot] = max(largest[slot], seat(one, model_id, (contexts or {}).get(model_id)))
    card = one.cards["t4"]
    return (
        card["reserve_mib"] + sum(tenant["budget_mib"] for tenant in card["tenants"].values()) + sum(largest.values())
    )


def working_changes(one: Set) -> Iterator[tuple[str, str, Any]]:
    """Every single change that makes *one* fit, by trying all of them."""
    room = one.cards["t4"]["vram_mib"]
    for model_id, intent in one.models.items():
        for rung in RUNGS:
            allowed = rung < intent["context"] and rung > intent.get("image_max_tokens", 0)
            if allowed and total(one, contexts={model_id: rung}) <= room:
                yield "context", model_id, rung
        for slot in {other["slot"] for other in one.models.values()} - {intent["slot"]}:
            if total(one, slots={model_id: slot}) <= room:
                yield "slot", model_id, slot
    for tenant, wanted in one.cards["t4"]["tenants"].items():
        if total(one) - wanted["budget_mib"] < room:
            yield "tenant_budget", tenant, wanted["budget_mib"] - (total(one) - room)


@pytest.fixture(scope="module")
def sets():
    dice = random.Random(11549)
    return {f"set-{number}": random_set(dice) for number in range(SETS)}


@pytest.fixture(scope="module")
def charts(seating, sets):
    return seating.charts({name: one.inputs() for name, one in sets.items()})


def test_a_set_fits_when_its_sum_does(sets, charts):
    for name, one in sets.items():
        card = charts[name]["cards"]["t4"]
        assert card["used_mib"] == total(one), name
        assert card["free_mib"] == card["vram_mib"] - card["used_mib"]
        assert card["fits"] == (total(one) <= one.cards["t4"]["vram_mib"]), name
    verdicts = [chart["cards"]["t4"]["fits"] for chart in charts.values()]
    assert verdicts.count(True) > SETS / 8
    assert verdicts.count(False) > SETS / 4


def test_the_plan_refuses_exactly_what_does_not_fit(seating, sets, charts):
    refused = seating.refusals({name: one.inputs() for name, one in sets.items()})

    assert sorted(refused) == sorted(
        chart["cards"]["t4"]["reason"] for chart in charts.values() if not chart["cards"]["t4"]["fits"]
    )


def test_every_remedy_works_when_it_is_applied(seating, sets, charts):
    after = {
        f"{name} {remedy['action']}": sets[name].changed(remedy, "t4").inputs()
        for name, chart in charts.items()
        for remedy in chart["cards"]["t4"]["remedies"]
    }
    kinds = [name.split()[1] for name in after]
    assert all(kinds.count(kind) > 3 for kind in ("context", "slot", "tenant_budget")), kinds

    for name, chart in seating.charts(after).items():
        assert chart["cards"]["t4"]["fits"], name
        assert chart["refusals"] == []


def test_a_kind_of_change_is_offered_when_it_can_work(sets, charts):
    for name, one in sets.items():
        card = charts[name]["cards"]["t4"]
        possible = set(working_changes(one)) if not card["fits"] else set()
        offered = {
            (remedy["action"], remedy.get("model", remedy.get("tenant")), remedy["value"])
            for remedy in card["remedies"]
        }
        assert offered <= possible, name
        assert {kind for kind, *_ in offered} == {kind for kind, *_ in possible}, name


def test_the_context_that_is_offered_is_the_largest_of_that_model(sets, charts):
    seen = 0
    for name, one in sets.items():
        for remedy in charts[name]["cards"]["t4"]["remedies"]:
            if remedy["action"] == "context":
                working = [
                    at for kind, model, at in working_changes(one) if (kind, model) == ("context", remedy["model"])
                ]
                assert remedy["value"] == max(working), name
                seen += 1
    assert seen > 3


def test_the_largest_context_fits_and_the_next_does_not(sets, charts):
    for name, one in sets.items():
        room = one.cards["t4"]["vram_mib"]
        for model_id, intent in one.models.items():
            able = [
                at
                for at in RUNGS
                if at > intent.get("image_max_tokens", 0) and total(one, contexts={model_id: at}) <= room
            ]
            able += [intent["context"]] if total(one) <= room else []
            assert charts[name]["models"][model_id]["largest_context"] == max(able, default=None), name


def test_what_fits_together_is_one_model_of_each_slot(sets, charts):
    for name, one in sets.items():
        card = charts[name]["cards"]["t4"]
        slots = [set(slot["models"]) for slot in card["slots"].values()]
        for together in card["together"]:
            assert [len(slot & set(together["models"])) for slot in slots] == [1] * len(slots)
            assert together["mib"] == sum(seat(one, model_id) for model_id in together["models"])
        assert all(together["fits"] for together in card["together"]) == card["fits"]


def plain_set(**intent: Any) -> Set:
    """One model that fits, with *intent* on top of its own."""
    chat = {"card": "t4", "context": 4096, "slot": "main", "modalities": ["text"], **intent}
    ladder = dict.fromkeys((2048, 4096, 65536), 1000 * MIB)
    return Set(
        {"t4": {"vram_mib": 8192, "tenants": {"desktop": {"budget_mib": 900}}}}, {"chat": chat}, {"chat": ladder}
    )


def choices(**slots: dict[str, int]) -> Set:
    """Models of the given MiB in the given slots, on a card that is 400 MiB short of them and of three tenants."""
    models = {
        model_id: {"card": "t4", "context": 4096, "slot": slot, "modalities": ["text"]}
        for slot, members in slots.items()
        for model_id in members
    }
    ladders = {model_id: {4096: mib * MIB} for members in slots.values() for model_id, mib in members.items()}
    budgets = {"large": 900, "middle": 400, "small": 100}
    tenants = {tenant: {"budget_mib": budget} for tenant, budget in budgets.items()}
    made = Set({"t4": {"vram_mib": 8192, "reserve_mib": 0, "tenants": tenants}}, models, ladders)
    made.cards["t4"]["vram_mib"] = total(made) - 400
    return made


def test_of_each_kind_the_change_is_offered_that_costs_least(seating):
    moves = choices(main={"a": 3000, "d": 2500}, eyes={"b": 2900, "e": 2400}, side={"c": 500})
    contexts = choices(main={"a": 3000}, eyes={"b": 2900})
    contexts.ladders = {
        "a": {1024: 100 * MIB, 2048: 2800 * MIB, 4096: 3000 * MIB},
        "b": {2048: 2400 * MIB, 4096: 2900 * MIB},
    }

    charts = seating.charts({"moves": moves.inputs(), "contexts": contexts.inputs()})

    assert charts["moves"]["cards"]["t4"]["remedies"] == [
        {"action": "slot", "model": "c", "value": "eyes"},
        {"action": "tenant_budget", "tenant": "large", "value": 500},
    ]
    assert charts["contexts"]["cards"]["t4"]["remedies"][0] == {"action": "context", "model": "b", "value": 2048}


def test_no_tenant_is_asked_to_give_up_everything(seating):
    one = choices(main={"a": 3000})
    one.cards["t4"]["tenants"] = {"middle": {"budget_mib": 400}}
    one.cards["t4"]["vram_mib"] = 3000

    assert seating.charts({"one": one.inputs()})["one"]["cards"]["t4"]["remedies"] == []


def test_no_context_is_offered_that_an_image_would_not_fit_into(seating):
    one = plain_set(modalities=["text", "image"])
    one.ladders["chat"] = {2048: 500 * MIB, 4096: 9000 * MIB}
    picky = plain_set(modalities=["text", "image"], image_max_tokens=2048)
    picky.ladders = one.ladders

    charts = seating.charts({"any": one.inputs(), "picky": picky.inputs()})

    assert charts["any"]["cards"]["t4"]["remedies"] == [{"action": "context", "model": "chat", "value": 2048}]
    assert charts["picky"]["cards"]["t4"]["remedies"] == []
    assert charts["picky"]["models"]["chat"]["largest_context"] is None


def faulty(fault: str) -> dict[str, Any]:
    """The inputs of a set with one fault."""
    inputs = plain_set(**{"far": {"context": 65536}, "lost": {"card": "t40"}}.get(fault, {})).inputs()
    rows = inputs["lock"]["models"]["chat"]["vram"]
    match fault:
        case "unlocked":
            inputs["lock"] = None
        case "edited":
            inputs["lock"]["models"]["chat"]["argv"].append("--mlock")
        case "unmeasured":
            inputs["lock"]["models"]["chat"]["vram"] = None
        case "crashed":
            rows |= {"gpu": {}, "unmeasured": "the engine crashed", "gpu_total": MIB}
        case "halved":
            rows["gpu_total"] //= 2
        case "hoped":
            rows["declared"] = {"mib": 500, "why": "hope"}
        case "doubled":
            inputs["cards"]["t4"] = (
                "{vram_mib: 8192, tenants: {desktop: {budget_mib: 5000}, desktop: {budget_mib: 900}}}"
            )
        case "unsized":
            inputs["cards"]["t4"] = "{vram_mib: 8 GiB, tenants: {desktop: {budget_mib: some}}}"
        case "damaged":
            inputs["measured"] = {"version": 1, "measurements": [{"model": "chat"}]}
    return inputs


FAULTS = {
    "unlocked": "The catalog has no lock.json;",
    "edited": "Measured for another command line than the one in lock.json: chat.",
    "unmeasured": "Without a measurement in lock.json: chat.",
    "crashed": "Without a measurement in lock.json: chat (the engine crashed).",
    "halved": "Totals in lock.json that are not the sum of their rows: chat (524288000, but its rows say 1048576000).",
    "hoped": "Declared below what was measured: chat (declared 500 MiB, measured 1000 MiB).",
    "doubled": "Listed twice: desktop (two times in cards/t4.yaml).",
    "unsized": "Cards that cannot be read: t4 (vram_mib must be a whole number of MiB; tenant desktop has no whole ",
    "far": "Contexts above the trained one: chat (65536, trained for 40960).",
    "lost": "Models whose card does not exist: chat (t40); there are: t4.",
    "damaged": "measured.json is not a ledger of version 1:",
}


def test_a_refusal_names_the_culprit_and_a_command_and_is_the_only_one(seating):
    charts = seating.charts({fault: faulty(fault) for fault in FAULTS} | {"none": plain_set().inputs()})

    for fault, told in FAULTS.items():
        refusals = charts[fault]["refusals"]
        assert [text[: len(told)] for text in refusals] == [told]
        assert all("run: corral " in text.lower() for text in refusals), refusals
    assert charts["none"]["refusals"] == []


def test_a_card_on_which_somebody_has_no_seat_is_not_said_to_fit(seating):
    charts = seating.charts({fault: faulty(fault) for fault in ("unlocked", "edited", "unmeasured", "halved")})

    for fault, chart in charts.items():
        assert chart["unseated"].keys() == {"chat"}, fault
        assert chart["cards"]["t4"]["fits"] is False, fault
