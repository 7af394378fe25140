"""Smoke against the real llama-swap and the real llama.cpp, with tiny models whose answers are known.

What can be done to real processes from outside is done here; the faults that cannot are in
tests/unit/test_smoke_faults.py.
"""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import urllib.request
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from corral.demo import tiny_gguf
from corral.engine import binaries, ports
from corral.smoke.endpoint import Endpoint
from corral.smoke.questions import Subject
from corral.smoke.runner import Runner
from tests.support.engine_process import free_port, wait_for

TEXT = Subject("text", expect="OK")
THINK = Subject("think", expect="OK")
EYES = Subject("eyes", sees=True)
BLIND = Subject("blind", sees=True)
BROKEN = Subject("broken")
LISTED = ["blind", "broken", "eyes", "text", "think"]
LIMIT_S = 60.0


@pytest.fixture(scope="module")
def commands(tmp_path_factory):
    """The llama-server command of each model; ``broken`` has no weights, ``blind`` takes images without a projector."""
    tiny = tiny_gguf.write_all(tmp_path_factory.mktemp("tiny"))
    models = {
        "text": ["-m", tiny.text],
        "think": ["-m", tiny.thinking],
        "eyes": ["-m", tiny.vision, "--mmproj", tiny.projector, "--image-max-tokens", "64"],
        "blind": ["-m", tiny.vision],
        "broken": ["-m", tiny.text.with_name("missing.gguf")],
    }
    common = ["-c", "4096", "-np", "1", "-ngl", "0", "-fit", "off", "--offline", "--host", "127.0.0.1"]
    engine = binaries.llama_server().path
    return {
        model: " ".join(str(word) for word in (engine, *words, *common, "--port", "${PORT}"))
        for model, words in models.items()
    }


@pytest.fixture
def llama_swap(commands, tmp_path):
    """A llama-swap that holds one model at a time, with nothing loaded."""
    models = {name: {"cmd": command, "proxy": "http://127.0.0.1:${PORT}"} for name, command in commands.items()}
    port = free_port()
    start_port = ports.for_engines(len(models), port)
    config = tmp_path / "config.json"  # JSON is YAML
    config.write_text(json.dumps({"healthCheckTimeout": 60, "startPort": start_port, "models": models}))
    listen = f"127.0.0.1:{port}"
    with (tmp_path / "log").open("wb") as log:
        program = [binaries.llama_swap(), "-config", config, "-listen", listen]
        process = subprocess.Popen(program, stdout=log, stderr=log, start_new_session=True)
    try:
        wait_for(lambda: answers(f"http://{listen}/health"), what="llama-swap to listen")
        yield SimpleNamespace(root=f"http://{listen}", process=psutil.Process(process.pid))
    finally:
        for child in psutil.Process(process.pid).children(recursive=True):
            child.send_signal(signal.SIGCONT)
        process.terminate()
        process.wait(timeout=45)


def smoke(llama_swap, *subjects, **options):
    return asyncio.run(asking(llama_swap, *subjects, **options))


async def asking(llama_swap, *subjects, limit_s=LIMIT_S, **options):
    async with Endpoint(llama_swap.root) as api:
        return await Runner(api, limit_s, **options).run(subjects, LISTED)


def test_text_vision_and_thinking_models_pass(llama_swap):
    report = smoke(llama_swap, TEXT, EYES, THINK)
    assert [(line.model, line.check, line.status, line.reason) for line in report.checks] == [
        ("*", "liveness", "passed", "liveness only: this is 200 even when no model can load"),
        ("*", "catalog", "passed", "/v1/models lists the 5 of the catalog"),
        ("text", "answer", "passed", 'answered "OK"'),
        ("text", "stream", "passed", 'streamed "OK"'),
        ("eyes", "answer", "passed", 'answered "OK"'),
        ("eyes", "images", "passed", 'answered "red, blue"'),
        ("eyes", "images-swapped", "passed", 'answered "blue, red"'),
        ("eyes", "stream", "passed", 'streamed "OK"'),
        ("think", "answer", "passed", 'answered "OK"'),
        ("think", "stream", "passed", 'streamed "OK"'),
    ]
    assert report.passed


def test_a_resident_model_comes_first_and_is_not_loaded_again(llama_swap):
    smoke(llama_swap, THINK)
    before = model_process(llama_swap)
    report = smoke(llama_swap, THINK, resident_only=True)
    assert report.passed
    assert model_process(llama_swap) == before
    order = [line.model for line in smoke(llama_swap, TEXT, THINK).checks if line.check == "answer"]
    assert order == ["think", "text"]


def test_resident_only_starts_no_process(llama_swap):
    report = smoke(llama_swap, TEXT, EYES, resident_only=True)
    assert {line.status for line in report.checks if line.model != "*"} == {"skipped"}
    assert llama_swap.process.children(recursive=True) == []


def test_weights_that_are_missing_are_a_failed_load(llama_swap):
    status, reason = outcome(smoke(llama_swap, BROKEN, is_local=True), "broken", "answer")
    assert status == "failed"
    assert reason.startswith('failed to load: "unspecific error: upstream command exited prematurely')
    assert reason.endswith("see: corral logs broken")


def test_a_vision_model_without_its_projector_has_its_own_reason(llama_swap):
    report = smoke(llama_swap, BLIND)
    assert outcome(report, "blind", "answer")[0] == "passed"
    status, reason = outcome(report, "blind", "images")
    assert status == "failed"
    assert reason.startswith("the server runs without a projector (HTTP 500")


def test_a_hung_model_fails_at_the_limit_while_health_stays_green(llama_swap):
    smoke(llama_swap, TEXT)
    model_process(llama_swap).suspend()
    report = smoke(llama_swap, TEXT, limit_s=1.5)
    assert outcome(report, "*", "liveness")[0] == "passed"
    status, reason = outcome(report, "text", "answer")
    assert status == "failed"
    assert reason.startswith("no answer within 1.5 s")


def test_a_model_that_dies_over_a_question_fails_and_is_not_loaded_again(llama_swap):
    smoke(llama_swap, TEXT)
    model = model_process(llama_swap)
    model.suspend()

    async def kill_it_over_the_question():
        asked = asyncio.create_task(asking(llama_swap, TEXT))
        await asyncio.to_thread(wait_for, lambda: has_unread_bytes(model), what="the question to arrive")
        model.kill()
        return await asked

    report = asyncio.run(kill_it_over_the_question())
    status, reason = outcome(report, "text", "answer")
    assert status == "failed"
    assert reason.startswith("HTTP 502 with an empty body: the model's process died after it was ready")
    assert outcome(report, "text", "stream")[0] == "skipped"
    assert llama_swap.process.children(recursive=True) == []


def outcome(report, model, check):
    (found,) = [line for line in report.checks if (line.model, line.check) == (model, check)]
    return found.status, found.reason


def model_process(llama_swap):
    """The process of the one model that is loaded."""
    (found,) = [child for child in llama_swap.process.children(recursive=True) if "--port" in child.cmdline()]
    return found


def has_unread_bytes(process):
    """Whether bytes wait for *process* at its port, by the kernel's table of sockets."""
    words = process.cmdline()
    local = f"0100007F:{int(words[words.index('--port') + 1]):04X}"
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    established = "01"
    return any(row[1] == local and row[3] == established and int(row[4].split(":")[1], 16) for row in rows)


def answers(url):
    try:
        with urllib.request.urlopen(url, timeout=5) as reply:
            return reply.status == 200
    except OSError:
        return False
