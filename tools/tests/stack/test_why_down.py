"""`corral why` of a stack whose llama-swap was killed."""

from __future__ import annotations

import os
import signal

import pytest

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
    assert "still run" in verdict["evidence"][0]
    assert verdict["next"][-1].startswith("corral up --detach ")


def test_without_an_engine_a_dead_stack_cannot_be_started(why, monkeypatch):
    monkeypatch.setenv("LLAMA_SERVER", "/nowhere/llama-server")

    verdict = why("good")

    assert verdict["class"] == "engine-missing"
    assert "/nowhere/llama-server" in verdict["evidence"][0]
