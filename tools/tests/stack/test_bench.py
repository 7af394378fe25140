"""`corral bench` on a real stack: real llama-swap and engine behind the door."""

from __future__ import annotations

import json
import os
import shutil
import xml.etree.ElementTree as ET

import pytest

from corral import paths
from corral.agent.lock_file import read_lock
from corral.agent.store import Store
from corral.bench import figures, saved
from corral.catalog import ledger
from corral.catalog.ledger import FirstToken, NextToken, Speed, argv_sha256
from corral.cli import bench_report
from corral.cli.local_loader import LocalLoader
from corral.cli.main import main
from corral.drill.stand_in import StandInCard
from corral.engine import stack
from corral.engine.llama_swap import LlamaSwap, Resident
from corral.lock import lock as locks
from corral.lock.relock import write_measurements
from tests.support.demo_stack import demo_stack

pytestmark = pytest.mark.timeout(240)
LATENCY = """
latency:
  - {consumer: patient, prompt_tokens: 60, answer_tokens: 8, p95_seconds: 60, requests_at_once: 2}
  - {consumer: hasty, prompt_tokens: 60, answer_tokens: 8, p95_seconds: 0.0001}
"""


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    with demo_stack(tmp_path_factory.mktemp("bench"), more={"tiny-text": LATENCY}) as present:
        yield present


@pytest.fixture
def bench(running, monkeypatch, capsys):
    """Runs `corral bench tiny-text` on that stack; the figures of the one level, and all."""
    monkeypatch.setenv("CORRAL_STATE", str(running[1]))

    def measured(*words):
        capsys.readouterr()  # of the stack's start
        main(["bench", "tiny-text", "--prompt-tokens", "120", "--answer-tokens", "12", "--json", *words])
        return json.loads(capsys.readouterr().out)

    def one_level(*words):
        found = measured(*words)
        (level,) = found["levels"]
        return level["figures"], found

    one_level.all = measured
    return one_level


def test_every_answer_is_whole_and_the_engine_has_figures_of_its_own(bench):
    level, found = bench("--users", "3", "--requests", "24", "--seconds", "120")
    assert (level["ok"], level["failures"]) == (24, {})
    assert level["output_tokens"] == 12
    assert abs(level["prompt_tokens"] - 120) <= 12
    assert level["cached_tokens"] < 0.3 * 24 * 120
    assert min(level["prefill_per_s"], level["decode_per_s"], level["output_tokens_per_s"]) > 0
    assert 0 < level["ttft"]["p50"] < level["e2e"]["p50"]
    assert level["waiting"]["n"] == 24
    assert found["first_answer_s"]["tiny-text"] > 0


def test_samples_are_kept(bench, tmp_path):
    bench("--users", "2", "--requests", "5", "--save", str(tmp_path / "x.gz"))
    assert len(saved.read(tmp_path / "x.gz").levels["tiny-text", "2 users"]["e2e"]) == 5


def test_a_report_names_the_lock_the_engine_and_who_held_the_card(bench, tmp_path, monkeypatch):
    """The card is a stand-in; what holds it is this test."""
    card = StandInCard(tmp_path / "driver", total_mib=4096, driver_mib=96)
    card.hold(os.getpid(), "/usr/bin/immich-ml", 1000)
    monkeypatch.setenv("PATH", f"{card.folder}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(bench_report, "FOLDER", tmp_path / "benchmarks")
    monkeypatch.setattr(bench_report, "_EVERY_S", 0.05)
    bench("--users", "1", "--requests", "20", "--report", "tiny")
    (document,) = (tmp_path / "benchmarks").glob("*-tiny.md")
    text = document.read_text()
    seal = locks.require(stack.recorded(paths.state_dir()).catalog).seal
    assert f"| lock | {seal[:12]} |" in text
    assert "| card laptop | Tesla T4 |" in text
    assert "| immich-ml | 1,000 | 1,000 | 1,000 |" in text
    assert "| engine | build " in text
    plot = ET.parse(tmp_path / "benchmarks" / f"{document.stem}-card-laptop.svg")
    points = [one.get("points").split() for one in plot.iter("{http://www.w3.org/2000/svg}polyline")]
    assert min(map(len, points)) > 2  # also between the beginning and the end


def test_each_level_is_measured_beside_each_state_of_the_neighbours_who_compute_and_hold(bench, tmp_path, monkeypatch):
    monkeypatch.setattr(bench_report, "FOLDER", tmp_path)
    words = ["--users", "1,2", "--requests", "20", "--neighbours", "idle,full", "--neighbours-hold", "64"]
    found = bench.all(*words, "--report", "beside")["levels"]
    states = [(one["figures"]["users"], one["figures"]["neighbours"]) for one in found]
    assert states == [(1, "idle"), (2, "idle"), (1, "full"), (2, "full")]
    idle, full = ([one["figures"] for one in half] for half in (found[:2], found[2:]))
    assert max(one["neighbour_cores"] for one in idle) < min(one["neighbour_cores"] for one in full)
    assert [one["neighbour_mib"] for one in idle] == [0, 0]
    assert all(one["neighbour_mib"] > 64 and one["ok"] == 20 for one in full)
    (document,) = tmp_path.glob("*-beside.md")
    text = document.read_text()
    assert "--neighbours idle,full --neighbours-hold 64 --report beside\n" in text
    rows = [line.split(" | ")[1:3] for line in text.splitlines() if " x |" in line]
    assert rows == [["1 user", "idle"], ["2 users", "idle"], ["1 user", "full"], ["2 users", "full"]]
    assert (tmp_path / f"{document.stem}-neighbours-1.svg").exists()


@pytest.mark.parametrize(
    ("words", "refusal"),
    [
        (["--neighbours", "busy"], "'busy' is no state of the neighbours: idle, 1% to 100%, full"),
        (["--neighbours", "0%"], "'0%' is no state"),
        (["--neighbours", "full", "--neighbours-hold", "99999999"], "The neighbours would hold 99999999 MiB"),
        (["--neighbours-hold", "4"], "--neighbours-hold says what"),
        (["--neighbours", "idle,50%", "--neighbours-hold", "4"], "--neighbours-hold says what"),
        (["--neighbours", "idle", "--endpoint", "http://127.0.0.1:9"], "--neighbours needs the local stack"),
    ],
)
def test_neighbours_that_cannot_be_started_are_refused_before_any_load(words, refusal, running, monkeypatch, capsys):
    monkeypatch.setenv("CORRAL_STATE", str(running[1]))
    assert main(["bench", "tiny-text", *words]) == 2
    assert refusal in capsys.readouterr().err


def test_cold_loads_and_warm_ones_are_apart_by_what_the_page_cache_really_had(bench):
    _, found = bench("--users", "1", "--requests", "1", "--loads", "2")
    cold, warm = found["loads"]["tiny-text"]
    assert [(one["cold"], one["n"], one["as_wanted"]) for one in (cold, warm)] == [(True, 2, True), (False, 2, True)]
    assert cold["cached"] < 0.05 * cold["bytes"]
    assert warm["cached"] == warm["bytes"] == cold["bytes"] > 100_000
    assert 0 < warm["shortest"] <= warm["median"] <= warm["longest"]


def test_a_warm_load_is_one_of_files_that_were_read_into_the_page_cache(running, monkeypatch):
    monkeypatch.setenv("CORRAL_STATE", str(running[1]))
    lock, store = read_lock(running[0] / "lock.json"), Store(paths.default_store())
    loader = LocalLoader(lock, store, "tiny-text", stack.running(running[1]).client())
    size, cold = loader.prepare(cold=True)
    assert cold < size == loader.prepare(cold=False)[1]


def test_an_unknown_model_is_refused_before_any_load(running, monkeypatch, capsys):
    monkeypatch.setenv("CORRAL_STATE", str(running[1]))
    assert main(["bench", "nothing", "--loads", "1"]) == 2
    assert "nothing" in capsys.readouterr().err


def test_each_budget_is_measured_and_one_that_is_not_kept_has_its_shortfall_and_a_remedy(running, monkeypatch, capsys):
    monkeypatch.setattr(figures, "MOST_LAG_S", float("inf"))  # this machine may be as late as it is
    monkeypatch.setenv("CORRAL_STATE", str(running[1]))
    capsys.readouterr()
    assert main(["bench", "--budgets", "--json"]) == 1
    missed, kept = json.loads(capsys.readouterr().out)
    assert [(one["model"], one["goal"]["consumer"], one["state"], one["answers"]) for one in (missed, kept)] == [
        ("tiny-text", "hasty", "fails", 200),
        ("tiny-text", "patient", "holds", 200),
    ]
    assert 0 < missed["serving_p95"] <= missed["p95"]
    assert missed["reason"].endswith(" s too long")
    assert "serving alone takes" in missed["remedy"]
    assert kept["remedy"] == ""


def test_speeds_are_written_down_for_the_command_line_that_runs_and_a_plan_states_the_budgets(
    running, monkeypatch, capsys
):
    monkeypatch.setattr(figures, "MOST_LAG_S", float("inf"))
    monkeypatch.setenv("CORRAL_STATE", str(running[1]))
    catalog = stack.recorded(paths.state_dir()).catalog
    assert main(["bench", "--speeds", "tiny-text", "--requests", "1", "--loads", "1", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    (one,) = document["speeds"]
    assert (one["device"], one["argv_sha256"]) == ("CPU", argv_sha256(locks.require(catalog).models["tiny-text"].argv))
    assert one["load_seconds"] > 0
    assert one["p95_ratio"] is None  # of too few answers
    prompts = [point["prompt_tokens"] for point in one["first_token"]]
    assert prompts == sorted(set(prompts))
    assert len(prompts) >= 2
    assert ledger.read(catalog).speeds == (Speed.model_validate_json(json.dumps(one)),)
    assert main(["lock", "--check", "--catalog", str(catalog)]) == 0
    capsys.readouterr()
    assert main(["plan", "--local", "--catalog", str(catalog)]) == 0
    assert "tiny-text: latency budget of patient: 60 s, predicted p50 " in capsys.readouterr().err


def test_speeds_of_another_command_line_than_the_locked_one_are_not_written_down(running, monkeypatch, capsys):
    monkeypatch.setenv("CORRAL_STATE", str(running[1]))
    monkeypatch.setattr(LlamaSwap, "residents", lambda self: [Resident("tiny-text", "ready", "http://x:1", 0, "other")])
    catalog = stack.recorded(paths.state_dir()).catalog
    before = ledger.content(catalog)
    assert main(["bench", "--speeds", "tiny-text"]) == 2
    assert "another command line than the lock has" in capsys.readouterr().err
    assert ledger.content(catalog) == before


def test_speeds_that_show_the_client_are_not_written_down(running, monkeypatch, capsys):
    monkeypatch.setattr(figures, "MOST_LAG_S", -1.0)
    monkeypatch.setenv("CORRAL_STATE", str(running[1]))
    catalog = stack.recorded(paths.state_dir()).catalog
    before = ledger.content(catalog)
    assert main(["bench", "--speeds", "tiny-text", "--requests", "1", "--loads", "1"]) == 4
    assert "nothing was written, the run is invalid" in capsys.readouterr().err
    assert ledger.content(catalog) == before


def test_a_plan_refuses_a_budget_that_a_benchmark_shows_impossible(running, monkeypatch, tmp_path, capsys):
    catalog = shutil.copytree(running[0], tmp_path / "catalog")
    entry = locks.require(catalog).models["tiny-text"]
    on_card = Speed(
        model="tiny-text",
        argv_sha256=argv_sha256(entry.argv),
        card=entry.intent.card,
        engine="b11549",
        device="Tesla T4",
        date="2026-11-24T00:00:00Z",
        first_token=tuple(FirstToken(prompt_tokens=at, seconds=1.0) for at in (64, 256)),
        next_token=tuple(NextToken(at_once=1, context_tokens=at, seconds=0.1) for at in (80, 272)),
        answers=200,
        p95_ratio=1.1,
        load_seconds=1.0,
    )
    write_measurements(catalog, "tiny-text", entry, ledger.read(catalog).with_speed(on_card))
    assert main(["plan", "--local", "--catalog", str(catalog)]) == 2
    refused = capsys.readouterr().err
    assert "tiny-text: the latency budget of hasty is 0.0001 s, and half of the answers take 1.70 s longer" in refused
    assert "(Tesla T4, 2026-11-24)" in refused
    assert "measured.json" in refused


@pytest.mark.parametrize("words", [("--users", "2"), ("--may-end",), ("--at-most", "2"), ("--report", "x")])
def test_what_speeds_would_ignore_is_refused(words, capsys):
    assert main(["bench", "--speeds", *words]) == 2
    assert f"--speeds takes users and tokens from the catalog: {words[0]} has no place" in capsys.readouterr().err
