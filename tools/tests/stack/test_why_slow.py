"""`corral why` of models that answer slowly, with the real llama-swap and the real engine."""

from __future__ import annotations

import os

import pytest

from corral.cli.main import main
from corral.demo import tiny_gguf
from corral.engine import stack as stacks
from corral.exporter import driver
from corral.why import slow_rules
from tests.support.demo_stack import FULL, demo_stack
from tests.support.engine_process import Stream, chat, wait_for
from tests.support.fake_nvidia_smi import UUID, install
from tests.support.served import Served, served
from tests.support.why_command import completion, diagnose, in_flight, in_parallel, unload, wait_for_evidence

pytestmark = pytest.mark.timeout(180)
produces = pytest.mark.produces


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    with demo_stack(tmp_path_factory.mktemp("demo"), card=FULL) as (_, state):
        yield state


@pytest.fixture
def why(demo, monkeypatch, capsys):
    monkeypatch.setenv("CORRAL_STATE", str(demo))
    wait_for_evidence(monkeypatch)
    return lambda *words: diagnose(capsys, *words)


@pytest.fixture
def card(monkeypatch, tmp_path):
    """A program with recorded answers stands for nvidia-smi: a card that computes for *busy* per cent of a time."""
    monkeypatch.setattr(driver, "pid_namespace", lambda: driver.FIRST_PID_NAMESPACE)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    return lambda busy: install(tmp_path, f"{UUID}, RTX, {os.getpid()}, 40, trainer\n", busy=busy)


def fresh(demo, *models):
    """Load *models*, after all others were unloaded."""
    running = stacks.running(demo)
    for one in running.client().residents():
        running.client().unload(one.model)
    for model in models:
        chat(running.endpoint, "Hello.", model=model)


@produces("slow")
def test_a_real_engine_on_the_processor_beside_a_card_is_slow(demo, why, card):
    fresh(demo, "tiny-vision")
    assert why("tiny-vision")["class"] == "healthy"
    card("0")

    verdict = why("tiny-vision")

    assert (verdict["class"], verdict["culprit"]) == ("slow", "the processor, in place of the card")
    assert "MiB in the host's memory and none on a card" in verdict["evidence"][0]
    assert "tokens a second." in verdict["evidence"][1]
    assert verdict["next"][0] == "corral engine"


def test_a_card_that_computes_for_another_program_is_named_with_its_pid(demo, why, card, monkeypatch):
    """The engine has no card here: that rule, which would come first, is left out."""
    monkeypatch.setattr(slow_rules, "on_processor", lambda _: None)
    monkeypatch.setattr("corral.why.rules._RULES", (slow_rules.tenant_computes,))
    fresh(demo, "tiny-vision")
    card("97")

    verdict = why("tiny-vision")

    assert (verdict["class"], verdict["culprit"]) == ("slow", "another program that computes on the card, 97 %")
    assert f"Others on the card: trainer (pid {os.getpid()})." in verdict["evidence"]


def test_a_driver_that_fails_leaves_the_rest_of_the_report(demo, why, monkeypatch, tmp_path):
    install(tmp_path, "", err="Driver/library version mismatch", code=18)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    fresh(demo, "tiny-vision")

    verdict = why("tiny-vision")

    assert (verdict["class"], verdict["culprit"]) == ("slow", "the processor, in place of the card")


def test_models_of_a_group_that_unload_each_other_are_slow_by_swaps(demo, why, capsys):
    for _ in range(3):
        fresh(demo, "tiny-think", "tiny-text")

    verdict = why("tiny-text")

    assert verdict["class"] == "slow"
    assert verdict["culprit"].startswith("swaps, ")
    assert any("tiny-think has the same group." in line for line in verdict["evidence"])
    victim = why("tiny-think")
    assert (victim["class"], victim["culprit"]) == ("slow", verdict["culprit"])
    assert "It is not loaded now: tiny-text took its place." in victim["evidence"]
    capsys.readouterr()
    assert main(["why", "tiny-text"]) == 1
    assert capsys.readouterr().out.startswith("tiny-text: it is slow (swaps, ")


def test_a_load_has_its_share_of_the_page_cache_from_the_preflight(demo, why, monkeypatch):
    monkeypatch.setattr(slow_rules, "_LOAD_S", 0.0)
    fresh(demo, "tiny-vision")

    verdict = why("tiny-vision")

    assert verdict["class"] == "slow"
    assert any("% of its " in line and "were in the page cache before it" in line for line in verdict["evidence"])


def test_a_request_that_waits_behind_a_long_answer_is_slow(tmp_path, monkeypatch, capsys):
    slow = tmp_path / "slow.gguf"
    tiny_gguf.write_text(slow, n_ff=80_000)
    (tmp_path / "run").mkdir()
    with served(tmp_path / "run", {"busy": Served(slow)}) as stack:
        monkeypatch.setenv("CORRAL_STATE", str(stack.state))
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(slow_rules, "_QUEUED_S", 0.0)
        wait_for_evidence(monkeypatch)
        stream = Stream(stack.endpoint, "busy", 2000)
        others = in_parallel(1, lambda: completion(stack, "busy"))
        wait_for(lambda: in_flight(stack, "busy") == 2, what="both requests")

        verdict = diagnose(capsys, "busy")

        unload(stack, "busy")
        for thread in (stream, *others):
            thread.join()
    assert (verdict["class"], verdict["culprit"]) == ("slow", "its queue, 1 request")
    assert "1 request for 1 slot: the first has waited" in verdict["evidence"][1]
