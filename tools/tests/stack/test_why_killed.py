"""`corral why` of an engine that was killed while loading, at every stage of the load that its log shows.

The real llama-swap and the embedded engine, which tests.support.killed_at kills at a line of its log.
"""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from corral.demo import tiny_gguf
from corral.engine import binaries
from tests.support import killed_at
from tests.support.served import Served, served
from tests.support.why_command import diagnose, fails, wait_for_evidence

pytestmark = pytest.mark.timeout(120)

POINTS = {
    "before-its-first-line": "",
    "first-line": "init: initializing",
    "model-named": "load_model: loading model",
    "header-read": "loaded meta data with",
    "header-shown": "print_info: file size",
    "vocabulary": "special tokens cache size",
    "tensors": "load_tensors: loading model tensors",
    "tensors-mapped": "model buffer size",
    "context": "llama_context: constructing",
    "cache": "KV buffer size",
    "compute-buffers": "sched_reserve: graph",
    "warm-up": "warming up the model",
    "slots": "initializing, n_slots",
    "chat-template": "chat template, example_format",
    "just-before-ready": "init: model loaded",
}


@pytest.fixture(scope="module")
def stack(tmp_path_factory):
    folder = tmp_path_factory.mktemp("killed")
    weights = folder / "text.gguf"
    tiny_gguf.write_text(weights)
    engine = str(binaries.llama_server().path)
    wrapper = [sys.executable, str(Path(killed_at.__file__))]
    # The engine logs, and is killed, beside its load: one that may become ready would answer at times.
    never = "/corral-never-ready"
    models = {name: Served(weights, engine=[*wrapper, marker, engine], health=never) for name, marker in POINTS.items()}
    run = folder / "run"
    run.mkdir()
    with served(run, models, card="echo 9000, 16000") as running:
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda model: fails(running, model), models))
        yield running


@pytest.mark.parametrize("point", POINTS)
def test_an_engine_that_was_killed_while_loading_has_crashed_for_want_of_memory(stack, capsys, monkeypatch, point):
    monkeypatch.setenv("CORRAL_STATE", str(stack.state))
    wait_for_evidence(monkeypatch)

    verdict = diagnose(capsys, point)

    assert verdict["class"] == "crashed", verdict
    assert "while it was loading" in verdict["culprit"]
    assert any("SIGKILL" in line and "out of memory" in line for line in verdict["evidence"]), verdict["evidence"]
    assert any("dmesg" in step for step in verdict["next"])
    assert any("memory.events" in step for step in verdict["next"])
