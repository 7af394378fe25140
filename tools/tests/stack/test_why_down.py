"""`corral why`, and commands that send requests, of a stack whose llama-swap was killed."""

from __future__ import annotations

import os
import signal

import pytest

from corral.cli import options
from corral.cli.main import main
from corral.cluster.target import ClusterTarget
from corral.demo import tiny_gguf
from tests.support.engine_process import chat, wait_for
from tests.support.served import Served, served
from tests.support.why_command import diagnose, wait_for_evidence

pytestmark = pytest.mark.timeout(120)
produces = pytest.mark.produces


@pytest.fixture(scope="module")
def stack(tmp_path_factory):
    """Its engine lives on."""
    folder = tmp_path_factory.mktemp("down")
    tiny_gguf.write_text(folder / "text.gguf")
    run = folder / "run"
    run.mkdir()
    with served(run, {"good": Served(folder / "text.gguf")}) as running:
        chat(running.endpoint, "Hello.", model="good")
        os.kill(running.running.pid, signal.SIGKILL)
        wait_for(lambda: not running.running.is_alive, what="the death of llama-swap")
        yield running


@pytest.fixture
def why(stack, monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("CORRAL_STATE", str(stack.state))
    monkeypatch.chdir(tmp_path)  # no catalog here: the one that the stack was started with counts
    wait_for_evidence(monkeypatch)
    return lambda *words: diagnose(capsys, *words)


@produces("stack-down")
def test_a_dead_stack_is_down_and_its_evidence_names_what_it_left(why):
    verdict = why("good")

    assert verdict["class"] == "stack-down"
    assert verdict["evidence"][0].endswith(" 1 of its engines still runs and holds memory.")
    assert verdict["next"][-1].startswith("corral up --detach ")


def test_without_an_engine_a_dead_stack_cannot_be_started(why, monkeypatch):
    monkeypatch.setenv("LLAMA_SERVER", "/nowhere/llama-server")

    verdict = why("good")

    assert verdict["class"] == "engine-missing"
    assert "/nowhere/llama-server" in verdict["evidence"][0]


@pytest.mark.parametrize("command", ["status", "open"])
def test_the_next_step_starts_the_dead_stack_with_its_own_options(command, stack, why, capsys):
    assert main([command]) == 1

    assert stack.running.start_command() in capsys.readouterr().err


@pytest.mark.parametrize("command", ["load", "unload", "smoke", "golden"])
def test_no_cluster_is_asked_when_the_local_stack_has_died(command, stack, why, monkeypatch, capsys):
    monkeypatch.setattr(options, "applied", lambda: ClusterTarget(context="homelab"))
    words = ["golden", "check"] if command == "golden" else [command]

    assert main([*words, "good"]) == 3

    shown = capsys.readouterr().err
    assert f"llama-swap of the local stack (pid {stack.running.pid}) has died." in shown
    assert f"  → {stack.running.start_command()}, or name a cluster: --context NAME" in shown
