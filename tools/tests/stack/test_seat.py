"""`corral seat` with the real engine on the operator's own catalog, and plans of it with the real Terraform."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shutil
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from corral.catalog import catalog as catalogs
from corral.cli.main import main
from corral.lock import lock as locks
from corral.lock.predict import Predictor
from corral.lock.relock import relock
from corral.seating import chart as charts
from corral.seating import what_if
from tests.support import homelab

MIB = 1 << 20
PATH = os.environ["PATH"]


@pytest.fixture(scope="module")
def locked(tmp_path_factory):
    return homelab.write_catalog(tmp_path_factory.mktemp("homelab") / "catalog")


@pytest.fixture(autouse=True)
def isolated(tmp_path, monkeypatch):
    isolate(monkeypatch, tmp_path)


@pytest.fixture
def catalog(locked, tmp_path):
    shutil.copytree(locked, tmp_path / "catalog")
    return tmp_path / "catalog"


@pytest.fixture
def seat(catalog):
    return lambda *words: run_seat(catalog, *words)


@pytest.fixture(scope="module")
def homelab_chart(locked, tmp_path_factory):
    """What `corral seat --json` prints of the homelab; not to be changed."""
    with pytest.MonkeyPatch.context() as patch:
        isolate(patch, tmp_path_factory.mktemp("isolated"))
        code, out, _ = run_seat(locked, "--json")
    assert code == 0
    return json.loads(out)


def isolate(patch: pytest.MonkeyPatch, folder: Path) -> None:
    patch.setenv("CORRAL_STATE", str(folder / "state"))
    patch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")  # no process listens there: no request may be sent
    patch.setenv("PATH", str(folder))  # neither may Terraform be started


def run_seat(catalog: Path, *words: str) -> tuple[int, str, str]:
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
        code = main(["seat", "--catalog", str(catalog), *words])
    return code, out.getvalue(), err.getvalue()


def lock_with(catalog: Path, target: str | None, *changes: str) -> locks.Lock:
    """The lock that `corral seat --what-if` makes its chart of; without the search for the largest contexts."""
    wanted = catalogs.load(catalog)
    return what_if.applied(what_if.parse(changes, target, wanted), wanted, locks.read(wanted.lock_file))[1]


def chart_with(catalog: Path, target: str | None, *changes: str) -> charts.Chart:
    return charts.of(lock_with(catalog, target, *changes))


def contents(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in sorted(folder.rglob("*")) if file.is_file()}


def replace(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))


def test_the_homelab_seats_and_its_seats_are_those_of_the_lock(locked, homelab_chart):
    card = homelab_chart["cards"]["t4"]
    need = {
        model_id: -(-entry.predicted.gpu_bytes // MIB)
        for model_id, entry in locks.read(locked / "lock.json").models.items()
    }
    alone = [["qwen3-8b"], ["qwen3vl-8b"], ["minicpm-v-4-5"], ["qwen3vl-4b"]]  # no two of them fit
    assert card["groups"] == {"main": {"mib": max(need.values()), "models": need, "sets": alone}}
    assert card["tenants"] == {"immich-ml": 2100, "immich-server": 1200, "frigate": 2300}
    assert (card["vram_mib"], card["reserve_mib"]) == (15360, 512)
    assert card["free_mib"] == 15360 - 512 - 5600 - max(need.values())
    assert (card["fits"], card["remedies"]) == (True, [])


def test_qwen3_8b_is_within_3_percent_of_the_6996_mib_that_a_live_t4_showed(homelab_chart):
    assert homelab_chart["models"]["qwen3-8b"]["mib"] == pytest.approx(6996, rel=0.03)


def with_changes(catalog, folder, *changes):
    """A copy of *catalog* in *folder* in which the files of models and cards have *changes*, with its lock."""
    shutil.copytree(catalog, folder)
    for name, old, new in changes:
        replace(folder / name, old, new)
    changed = catalogs.load(folder)
    locks.write(changed.lock_file, relock(changed, locks.read(changed.lock_file), no_hub, Predictor(changed)).lock)
    return folder


def no_hub(*_args, **_keys):
    raise AssertionError("the files of every model are in the lock")


@pytest.fixture(scope="module")
def crowded(locked, tmp_path_factory):
    """The homelab with a group more and one tenant less hungry: short by so little that each remedy works."""
    return with_changes(
        locked,
        tmp_path_factory.mktemp("crowded") / "catalog",
        ("models/qwen3vl-4b.yaml", "group: main", "group: chat"),
        ("cards/t4.yaml", "budget_mib: 2300", "budget_mib: 1000"),
    )


@pytest.fixture(scope="module")
def crowded_answers(crowded, tmp_path_factory):
    """What `corral seat --json` and `corral seat` print of the crowded homelab: the chart, and the second's stderr."""
    with pytest.MonkeyPatch.context() as patch:
        isolate(patch, tmp_path_factory.mktemp("isolated"))
        answers = [run_seat(crowded, *words) for words in (["--json"], [])]
    assert [code for code, _, _ in answers] == [1, 1]
    return json.loads(answers[0][1]), answers[1][2]


def test_immich_ml_with_10726_mib_is_refused_and_named(catalog, capsys, monkeypatch, tmp_path):
    full = with_changes(catalog, tmp_path / "full", ("cards/t4.yaml", "budget_mib: 2100", "budget_mib: 10726"))

    code, out, err = run_seat(full)
    assert code == 1
    assert "immich-ml       10,726 MiB   69.8 %" in out
    assert "lower the budget of immich-ml: in cards/t4.yaml, immich-ml: {budget_mib: " in err
    assert f"corral lock --catalog {full}" in err

    monkeypatch.setenv("PATH", PATH)
    assert main(["plan", "--local", "--catalog", str(full)]) == 2
    refused = capsys.readouterr().err
    assert "Card t4 is short of 6408 MiB: immich-ml 10726, group main " in refused


def test_5000_mib_declared_for_qwen3_8b_are_refused_with_both_numbers(catalog, capsys):
    declared = 'vram: {declared_mib: 5000, why: "the size of the file"}'
    need = -(-locks.read(catalog / "lock.json").models["qwen3-8b"].predicted.gpu_bytes // MIB)
    replace(catalog / "models" / "qwen3-8b.yaml", "context:", f"{declared}\ncontext:")
    before = contents(catalog)

    assert main(["lock", "--catalog", str(catalog)]) == 2

    refused = capsys.readouterr().err
    assert f"its vram declares 5,000 MiB, and the engine predicts {need:,} MiB for its command line" in refused
    assert contents(catalog) == before


def test_a_refused_plan_has_the_remedies_beneath_it(crowded, crowded_answers, capsys, monkeypatch):
    _, alone = crowded_answers
    monkeypatch.setenv("PATH", PATH)

    assert main(["plan", "--local", "--catalog", str(crowded)]) == 2

    refused = capsys.readouterr().err
    assert "Card t4 is short of " in refused
    edits = [line for line in alone.splitlines() if line.startswith("  - ")]
    assert len(edits) == 3
    assert [line for line in refused.splitlines() if line.startswith("  - ")] == edits


def test_a_plan_prints_the_advice_that_seat_prints(catalog, capsys, monkeypatch, tmp_path):
    slow = with_changes(
        catalog, tmp_path / "slow", ("models/qwen3-8b.yaml", "context:", "args: {cache-type-k: q8_0}\ncontext:")
    )
    _, _, alone = run_seat(slow)
    monkeypatch.setenv("PATH", PATH)

    assert main(["plan", "--local", "--catalog", str(slow)]) == 0

    warnings = [line for line in alone.splitlines() if line.startswith("warning: ")]
    assert len(warnings) == 1
    assert "Quantised KV cache on compute capability 7.5: qwen3-8b." in warnings[0]
    assert [line for line in capsys.readouterr().err.splitlines() if line.startswith("warning: ")] == warnings


def test_each_remedy_works_when_it_is_applied_as_a_question(crowded, crowded_answers):
    chart, _ = crowded_answers
    remedies = {remedy["action"]: remedy for remedy in chart["cards"]["t4"]["remedies"]}
    assert sorted(remedies) == ["context", "group", "tenant_budget"]

    for action, remedy in remedies.items():
        key = f"tenants.{remedy['tenant']}.budget_mib" if action == "tenant_budget" else action
        after = chart_with(crowded, remedy.get("model"), f"{key}={remedy['value']}")
        assert after.cards["t4"].fits, action


def test_the_context_of_a_remedy_is_the_largest_to_within_256_tokens(crowded, crowded_answers):
    chart, _ = crowded_answers
    (remedy,) = [remedy for remedy in chart["cards"]["t4"]["remedies"] if remedy["action"] == "context"]

    after = chart_with(crowded, remedy["model"], f"context={remedy['value'] + 256}")

    assert not after.cards["t4"].fits
    assert remedy["value"] & (remedy["value"] - 1), "a power of two is what the ladder has"


def test_the_remedies_are_printed_as_edits(crowded, crowded_answers):
    _, err = crowded_answers

    edits = [line.strip() for line in err.splitlines() if line.startswith("  - ")]
    assert re.fullmatch(r"- lower the context of (\S+): in models/\1.yaml, context: \d+ \(now \d+\)", edits[0])
    assert edits[1] == "- move qwen3vl-4b to group main: in models/qwen3vl-4b.yaml, group: main (now chat)"
    assert edits[2].startswith("- lower the budget of immich-ml: in cards/t4.yaml, immich-ml: {budget_mib: ")
    assert f"corral lock --catalog {crowded} && corral seat --catalog {crowded}" in err


def test_the_ladder_has_what_a_lock_of_that_context_would(locked):
    ladder = locks.read(locked / "lock.json").models["qwen3vl-8b"].predicted.ladder[:4]

    for rung in ladder:
        chart = chart_with(locked, "qwen3vl-8b", f"context={rung.context}")
        assert chart.models["qwen3vl-8b"].mib == -(-rung.gpu_bytes // MIB)
    assert len(ladder) == 4


def test_the_largest_context_fits_and_256_tokens_more_do_not(locked, homelab_chart):
    model = homelab_chart["models"]["qwen3-8b"]
    at_most = model["largest_context"]

    assert model["largest_context_proved"]
    assert 16384 < at_most < 32768
    charts_at = [chart_with(locked, "qwen3-8b", f"context={context}") for context in (at_most, at_most + 256)]
    assert [chart.cards["t4"].fits for chart in charts_at] == [True, False]


def test_what_if_predicts_again_and_writes_nothing(catalog, homelab_chart, seat):
    before = contents(catalog)

    code, out, err = seat("--what-if", "context=32768", "qwen3-8b")

    then = chart_with(catalog, "qwen3-8b", "context=32768")
    kv_of_16384_tokens = 16384 * 144 // 1024  # KiB a token, in MiB
    assert then.models["qwen3-8b"].mib - homelab_chart["models"]["qwen3-8b"]["mib"] >= kv_of_16384_tokens
    assert "one of qwen3-8b" in out
    assert f"{then.models['qwen3-8b'].mib:,}" in out
    assert "what if qwen3-8b: context 16384 → 32768" in err
    assert code == (0 if then.cards["t4"].fits else 1)
    assert contents(catalog) == before


def test_what_if_takes_budgets_groups_and_flags_together(seat):
    code, out, _ = seat(
        "--json",
        "--what-if", "tenants.immich-ml.budget_mib=10726",
        "--what-if", "group=chat",
        "--what-if", "args.cache-type-k=q8_0",
        "qwen3-8b",
    )  # fmt: skip
    chart = json.loads(out)

    assert code == 1
    assert chart["cards"]["t4"]["tenants"]["immich-ml"] == 10726
    assert set(chart["cards"]["t4"]["groups"]) == {"main", "chat"}
    assert [warning["code"] for warning in chart["warnings"]] == ["quantised_cache_on_turing"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["context=32768"], "context is a key of a model: which one?"),
        (["context", "qwen3-8b"], "'context' must be KEY=VALUE"),
        (
            ["contxt=5", "qwen3-8b"],
            "Models have: engine, card, cards, vllm, task, context, modalities, parallel, reasoning, ttl, group",
        ),
        (["contxt=5", "qwen3-8b"], "Cards have: vram_mib, reserve_mib, compute_capability, node, tenants, yield."),
        (["contxt=5", "qwen3-8b"], "Did you mean context?"),
        (["slot=chat", "qwen3-8b"], "slot is called group now.\n  → corral seat --what-if group=chat MODEL"),
        (["context=2026-13-45", "qwen3-8b"], "with a plain value: YAML readers disagree about 2026-13-45"),
        (['context=!!int ""', "qwen3-8b"], "the tag tag:yaml.org,2002:int is not allowed"),
        (["context=!!float x", "qwen3-8b"], "with a plain value: YAML readers disagree about x"),
        (["context=" + "[" * 9999, "qwen3-8b"], "with a plain value: nested deeper than 16 levels."),
        (["vram_mib=99999999999999999999999999"], "YAML readers disagree about 99999999999999999999999999"),
        (
            ["smoke.expct=5", "qwen3-8b"],
            "smoke.expct: unknown key expct (did you mean expect?); allowed: prompt, expect, near, far.",
        ),
        (["args.cache-typ-k=q8_0", "qwen3-8b"], "args.cache-typ-k: "),
        (["tenants.immich-ml=5"], "a tenant has the keys budget_mib, namespace, selector, unit, expects."),
        (["tenants.imich-ml.budget_mib=5"], "It has: frigate, immich-ml, immich-server. Did you mean immich-ml?"),
        (["tenants.backup.budget_mib=5"], "t4 has no tenant backup. It has: frigate, immich-ml, immich-server."),
        (["tenants.backup.budget_mib=5"], "corral seat --what-if 'tenants.backup={budget_mib: 2048}' t4"),
        (["tenants.backup={namespace: b}"], "tenants.backup.budget_mib: required key budget_mib is missing."),
        (["tenants.immich-ml.budgt_mib=5"], "unknown key budgt_mib (did you mean budget_mib?); allowed: budget_mib,"),
        (["context=many", "qwen3-8b"], "context: must be a whole number, not 'many'."),
        (["context=50000", "qwen3-8b"], "trained for 40,960 tokens"),
        (["context=1024", "gpt-5"], "No model and no card gpt-5"),
        (["source.quant=Q8_0", "qwen3-8b"], "source.quant decides which files a model has"),
        (["modalities=[text]", "qwen3vl-8b"], "only the hub knows them"),
        (["tenants.immich-ml.budget_mib=0"], "tenants.immich-ml.budget_mib: must be more than 0"),
        (["card=a100", "qwen3-8b"], "there is no card a100"),
    ],
)
def test_a_question_that_makes_no_sense_is_refused_and_nothing_is_printed(words, message, seat, catalog):
    before = contents(catalog)

    code, out, err = seat("--what-if", *words)

    assert (code, out) == (2, "")
    assert message in err
    assert contents(catalog) == before


def test_a_card_may_be_named_and_flags_are_words(locked):
    card = chart_with(locked, "t4", "reserve_mib=0").cards["t4"]
    assert (card.reserve_mib, card.fits) == (0, True)

    changed = lock_with(locked, "qwen3vl-8b", "reasoning=off", "image_max_tokens=null")
    intent = changed.models["qwen3vl-8b"].intent
    assert (intent.reasoning, charts.of(changed).cards["t4"].fits) == ("off", True)


def test_a_whole_tenant_may_be_new(locked):
    chart = chart_with(locked, None, "tenants.backup={budget_mib: 100}")

    assert chart.cards["t4"].tenants["backup"] == 100


def test_a_model_is_named_only_for_a_question(seat):
    code, out, err = seat("qwen3-8b")

    assert (code, out) == (2, "")
    assert "corral seat --what-if KEY=VALUE MODEL" in err


def test_a_stale_lock_is_refused_and_nothing_is_printed(catalog, seat):
    replace(catalog / "models" / "qwen3-8b.yaml", "context: 16384", "context: 8192")

    code, out, err = seat()

    assert (code, out) == (2, "")
    assert "models/qwen3-8b.yaml has changed since it was locked" in err


FULL = ("--what-if", "tenants.immich-ml.budget_mib=10726")  # so full that no context is searched for


def test_the_picture_is_written_beside_the_answer(seat, tmp_path):
    code, out, _ = seat(*FULL, "--svg", str(tmp_path / "t4.svg"))

    assert code == 1
    assert out.startswith("t4: 15,360 MiB, ")
    assert ET.parse(tmp_path / "t4.svg").getroot().get("role") == "img"


def test_a_picture_that_cannot_be_written_is_refused(seat, tmp_path):
    code, _, err = seat(*FULL, "--svg", str(tmp_path / "nowhere" / "t4.svg"))

    assert code == 2
    assert "t4.svg cannot be written: No such file or directory" in err
