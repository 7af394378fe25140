"""`corral seat` with the real Terraform and the real engine, on the operator's own catalog."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from corral.catalog import catalog as catalogs
from corral.cli.main import main
from corral.errors import Refused
from corral.lock import lock as locks
from corral.seating import what_if
from corral.terraform import local
from tests.support import homelab

MIB = 1 << 20


@pytest.fixture(scope="module")
def locked(tmp_path_factory):
    return homelab.write_catalog(tmp_path_factory.mktemp("homelab") / "catalog")


@pytest.fixture
def catalog(locked, tmp_path, monkeypatch):
    monkeypatch.setenv("CORRAL_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")  # nobody answers there: nothing may ask
    shutil.copytree(locked, tmp_path / "catalog")
    return tmp_path / "catalog"


@pytest.fixture
def seat(catalog, capsys):
    def run(*words: str) -> tuple[int, str, str]:
        code = main(["seat", "--catalog", str(catalog), *words])
        told = capsys.readouterr()
        return code, told.out, told.err

    return run


@pytest.fixture
def seat_json(seat):
    def run(*words: str) -> tuple[int, dict]:
        code, out, _ = seat("--json", *words)
        return code, json.loads(out)

    return run


def contents(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in sorted(folder.rglob("*")) if file.is_file()}


def replace(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))


def test_the_homelab_seats_and_its_seats_are_those_of_the_lock(catalog, seat_json):
    code, chart = seat_json()

    card = chart["cards"]["t4"]
    need = {
        model_id: -(-entry.vram.gpu_total // MIB)
        for model_id, entry in locks.read(catalog / "lock.json").models.items()
    }
    assert code == 0
    assert card["slots"] == {"main": {"mib": max(need.values()), "models": need}}
    assert card["tenants"] == {"immich-ml": 2100, "immich-server": 1200, "frigate": 2300}
    assert (card["vram_mib"], card["reserve_mib"]) == (15360, 512)
    assert card["free_mib"] == 15360 - 512 - 5600 - max(need.values())
    assert (card["fits"], card["remedies"]) == (True, [])


def test_qwen3_8b_is_within_3_percent_of_the_6996_mib_that_a_live_t4_showed(seat_json):
    _, chart = seat_json()

    assert chart["models"]["qwen3-8b"]["mib"] == pytest.approx(6996, rel=0.03)


def test_5000_mib_declared_for_qwen3_8b_are_refused_with_both_numbers(catalog):
    lock = json.loads((catalog / "lock.json").read_text())
    rows = lock["models"]["qwen3-8b"]["vram"]
    rows["declared"] = {"mib": 5000, "why": "the size of the file"}
    (catalog / "lock.json").write_text(json.dumps(lock))
    need = -(-rows["gpu_total"] // MIB)

    with pytest.raises(Refused) as caught:
        local.seating(catalog, state=catalog / "state")

    assert caught.value.message == (
        f"Declared below what was measured: qwen3-8b (declared 5000 MiB, measured {need} MiB). "
        "A declaration may add to a measurement, never take from it."
    )


@pytest.mark.parametrize("text", ["null", "{}", "[]", ""])
def test_a_ledger_that_cannot_be_read_is_refused_and_never_taken_for_none(catalog, text):
    (catalog / "measured.json").write_text(text)

    with pytest.raises(Refused, match=r"measured\.json is not a ledger of version 1"):
        local.seating(catalog, state=catalog / "state")


def test_immich_ml_with_10726_mib_is_refused_and_named(catalog, seat, capsys):
    replace(catalog / "cards" / "t4.yaml", "budget_mib: 2100", "budget_mib: 10726")

    code, out, err = seat()
    assert code == 1
    assert "immich-ml       10,726 MiB   69.8 %" in out
    assert "lower the budget of immich-ml: in cards/t4.yaml, immich-ml: {budget_mib: " in err
    assert f"corral lock --catalog {catalog}" in err

    assert main(["plan", "--local", "--catalog", str(catalog)]) == 2
    assert "Card t4 is short of" in (refused := capsys.readouterr().err)
    assert ": immich-ml 10726, slot main " in refused


@pytest.fixture
def crowded(catalog, tmp_path):
    """The homelab with a slot more and one tenant less hungry: short by so little that each remedy works."""
    present = catalogs.load(catalog)
    changes = [
        *what_if.parse(["slot=chat"], "qwen3vl-4b", present),
        *what_if.parse(["tenants.frigate.budget_mib=1000"], None, present),
    ]
    with what_if.applied(changes, present, locks.read(present.lock_file)) as made:
        shutil.copytree(made.directory, tmp_path / "crowded")
    return tmp_path / "crowded"


def test_each_remedy_works_when_its_edit_is_played_through(crowded, seat_json):
    code, chart = seat_json("--catalog", str(crowded))
    remedies = {remedy["action"]: remedy for remedy in chart["cards"]["t4"]["remedies"]}
    assert (code, sorted(remedies)) == (1, ["context", "slot", "tenant_budget"])

    for action, remedy in remedies.items():
        key = f"tenants.{remedy['tenant']}.budget_mib" if action == "tenant_budget" else action
        target = [remedy["model"]] if "model" in remedy else []
        code, after = seat_json("--catalog", str(crowded), "--what-if", f"{key}={remedy['value']}", *target)
        assert (code, after["cards"]["t4"]["fits"]) == (0, True), action


def test_the_remedies_are_told_as_edits(crowded, seat):
    code, _, err = seat("--catalog", str(crowded))

    assert code == 1
    told = [line.strip() for line in err.splitlines() if line.startswith("  - ")]
    assert told[0] == "- lower the context of qwen3-8b: in models/qwen3-8b.yaml, context: 8192 (now 16384)"
    assert told[1] == "- move qwen3vl-4b to slot main: in models/qwen3vl-4b.yaml, slot: main (now chat)"
    assert told[2].startswith("- lower the budget of immich-ml: in cards/t4.yaml, immich-ml: {budget_mib: ")
    assert f"corral lock --catalog {crowded} && corral seat --catalog {crowded}" in err


def test_the_ladder_says_what_a_lock_of_that_context_would(catalog, seat_json):
    ladder = locks.read(catalog / "lock.json").models["qwen3vl-8b"].vram.ladder[:4]

    for rung in ladder:
        _, chart = seat_json("--what-if", f"context={rung.context}", "qwen3vl-8b")
        assert chart["models"]["qwen3vl-8b"]["mib"] == -(-rung.gpu_total // MIB)
    assert len(ladder) == 4


def test_the_largest_context_fits_and_the_next_one_does_not(seat_json):
    _, chart = seat_json()

    assert chart["models"]["qwen3-8b"]["largest_context"] == 16384
    assert seat_json("--what-if", "context=32768", "qwen3-8b")[0] == 1


def test_what_if_asks_the_engine_again_and_writes_nothing(catalog, seat, seat_json):
    before = contents(catalog)
    _, now = seat_json()

    code, out, err = seat("--what-if", "context=32768", "qwen3-8b")
    _, then = seat_json("--what-if", "context=32768", "qwen3-8b")

    kv_of_16384_tokens = 16384 * 144 // 1024  # KiB a token, in MiB
    assert then["models"]["qwen3-8b"]["mib"] - now["models"]["qwen3-8b"]["mib"] >= kv_of_16384_tokens
    assert "one of qwen3-8b" in out
    assert f"{then['models']['qwen3-8b']['mib']:,}" in out
    assert "what if qwen3-8b: context 16384 → 32768" in err
    assert code == (0 if then["cards"]["t4"]["fits"] else 1)
    assert contents(catalog) == before


def test_what_if_takes_budgets_slots_and_flags_at_once(seat_json):
    code, chart = seat_json(
        "--what-if", "tenants.immich-ml.budget_mib=10726",
        "--what-if", "slot=chat",
        "--what-if", "args.cache-type-k=q8_0",
        "qwen3-8b",
    )  # fmt: skip

    assert code == 1
    assert chart["cards"]["t4"]["tenants"]["immich-ml"] == 10726
    assert set(chart["cards"]["t4"]["slots"]) == {"main", "chat"}
    assert any("Quantised KV cache" in warning for warning in chart["warnings"])


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["context=32768"], "context is a key of a model: which one?"),
        (["context", "qwen3-8b"], "'context' must be KEY=VALUE"),
        (["contxt=5", "qwen3-8b"], "Neither a model nor a card has a key contxt."),
        (["context=many", "qwen3-8b"], "context: must be a whole number, not 'many'."),
        (["context=50000", "qwen3-8b"], "trained for 40,960 tokens"),
        (["context=1024", "gpt-5"], "No model and no card gpt-5"),
        (["source.quant=Q8_0", "qwen3-8b"], "source.quant decides which files a model has"),
        (["modalities=[text]", "qwen3vl-8b"], "only the hub knows them"),
        (["tenants.immich-ml.budget_mib=0"], "tenants.immich-ml.budget_mib: must be more than 0"),
        (["card=a100", "qwen3-8b"], "there is no card a100"),
    ],
)
def test_a_question_that_makes_no_sense_is_refused_and_nothing_is_printed(words, told, seat, catalog):
    before = contents(catalog)

    code, out, err = seat("--what-if", *words)

    assert (code, out) == (2, "")
    assert told in err
    assert "/corral-what-if-" not in err
    assert contents(catalog) == before


def test_a_card_may_be_named_and_flags_are_words(seat_json):
    code, chart = seat_json("--what-if", "reserve_mib=0", "t4")
    assert (code, chart["cards"]["t4"]["reserve_mib"]) == (0, 0)

    code, chart = seat_json("--what-if", "reasoning=off", "--what-if", "image_max_tokens=null", "qwen3vl-8b")
    assert code == 0


def test_a_model_is_named_only_for_a_question(seat):
    code, out, err = seat("qwen3-8b")

    assert (code, out) == (2, "")
    assert "corral seat --what-if KEY=VALUE MODEL" in err


def test_a_stale_lock_is_refused_and_nothing_is_printed(catalog, seat):
    replace(catalog / "models" / "qwen3-8b.yaml", "context: 16384", "context: 8192")

    code, out, err = seat()

    assert (code, out) == (2, "")
    assert "qwen3-8b has changed in the catalog since it was locked" in err


def test_the_picture_is_written_beside_the_answer(catalog, seat, tmp_path):
    code, out, _ = seat("--svg", str(tmp_path / "t4.svg"))

    assert code == 0
    assert out.startswith("t4: 15,360 MiB, ")
    assert ET.parse(tmp_path / "t4.svg").getroot().get("role") == "img"


def test_a_picture_that_cannot_be_written_is_refused(seat, tmp_path):
    code, _, err = seat("--svg", str(tmp_path / "nowhere" / "t4.svg"))

    assert code == 2
    assert "t4.svg cannot be written: No such file or directory" in err
