"""`corral why` of a stack whose llama-swap was killed."""

from __future__ import annotations

import os
import signal

import pytest

from corral.demo import tiny_gguf
from tests.support.asking_why import asked, wait_for_evidence
from tests.support.engine_process import chat, wait_for
from tests.support.served import Served, served

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
    return lambda *words: asked(capsys, *words)


@produces("stack-down")
def test_a_dead_stack_is_down_and_says_what_it_left(why):
    answer = why("good")

    assert answer["class"] == "stack-down"
    assert "still run" in answer["evidence"][0]
    assert answer["next"][-1].startswith("corral up --detach ")


def test_without_an_engine_a_dead_stack_cannot_be_started(why, monkeypatch):
    monkeypatch.setenv("LLAMA_SERVER", "/nowhere/llama-server")

    answer = why("good")

    assert answer["class"] == "engine-missing"
    assert "/nowhere/llama-server" in answer["evidence"][0]
