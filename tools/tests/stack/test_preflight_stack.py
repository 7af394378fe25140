"""The preflight in the stack that `corral up` starts: real Terraform, llama-swap and engine; the card is pretended."""

from __future__ import annotations

import json

import psutil
import pytest

from corral import paths
from corral.cli.main import main
from corral.demo import tiny_gguf
from corral.engine import stack
from corral.engine.stack_folder import StackFolder
from tests.support.engine_process import chat, free_port, post, question

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def catalog(tmp_path):
    folder = tmp_path / "catalog"
    (folder / "cards").mkdir(parents=True)
    (folder / "models").mkdir()
    (folder / "cards" / "laptop.yaml").write_text("vram_mib: 4096\n")
    for name in ("first", "second"):
        tiny_gguf.write_text(tmp_path / f"{name}.gguf", thinking=name == "second")
        intent = {
            "source": {"path": str(tmp_path / f"{name}.gguf"), "mmproj": "none"},
            "card": "laptop",
            "slot": name,
            "context": 512,
            "modalities": ["text"],
        }
        (folder / "models" / f"{name}.yaml").write_text(json.dumps(intent))
    assert main(["lock", "--catalog", str(folder)]) == 0
    return folder


@pytest.fixture
def up(catalog):
    port = free_port()

    def start() -> str:
        assert main(["up", "--detach", "--catalog", str(catalog), "--port", str(port)]) == 0
        return f"http://127.0.0.1:{port}"

    yield start
    stack.stop(paths.state_dir(), drain_s=0)


def seat(catalog, model: str) -> int:
    """By the lock: whole MiB, rounded up."""
    lock = json.loads((catalog / "lock.json").read_text())
    return -(-lock["models"][model]["vram"]["gpu_total"] // 2**20)


def preflight_lines() -> list[str]:
    log = StackFolder(paths.state_dir()).log_tail(10_000)
    return [line for line in log.splitlines() if line.startswith("preflight: ")]


def test_a_load_that_the_card_has_no_room_for_is_refused_with_names(up, catalog, tmp_path, monkeypatch, capsys):
    card = tmp_path / "card"
    monkeypatch.setenv("CORRAL_VRAM_SOURCE", f"cat {card}")
    card.write_text("4000, 4096\n")
    endpoint = up()
    chat(endpoint, "Hello.", model="first")
    card.write_text("10, 4096\n")

    status, body = post(f"{endpoint}/v1/chat/completions", question("Hello.", model="second"))

    assert (status, "exited prematurely" in body) == (500, True)
    said = preflight_lines()[-1]
    assert f"no room for second: it needs {seat(catalog, 'second')} MiB, 10 MiB of 4096 MiB are free; held by " in said
    assert " first (pid " in said  # beside what else runs on this machine
    capsys.readouterr()
    assert main(["why", "second", "--json"]) == 1
    answer = json.loads(capsys.readouterr().out)
    assert answer["class"] == "out-of-memory"
    assert "first (pid " in answer["culprit"]
    card.write_text("4000, 4096\n")
    assert chat(endpoint, "Hello.", model="second")["message"]["content"] == "OK"
    assert main(["why", "second"]) == 0


def test_status_finds_the_engine_behind_the_preflight(up, capsys):
    endpoint = up()
    chat(endpoint, "Hello.", model="first")
    capsys.readouterr()

    assert main(["status", "--json"]) == 0

    first = json.loads(capsys.readouterr().out)["models"][0]
    assert (first["model"], first["state"]) == ("first", "ready")
    assert "corral-llama-server" in " ".join(psutil.Process(first["pid"]).cmdline())


def test_an_engine_without_a_card_is_not_kept_back_by_one(up):
    endpoint = up()

    assert chat(endpoint, "Hello.", model="first")["message"]["content"] == "OK"
    assert "uses no NVIDIA card; the engine tries" in preflight_lines()[0]


def test_a_source_that_hangs_does_not_hang_the_load(up, monkeypatch):
    monkeypatch.setenv("CORRAL_VRAM_SOURCE", "sleep 600")
    endpoint = up()

    assert chat(endpoint, "Hello.", model="first")["message"]["content"] == "OK"
    assert "CORRAL_VRAM_SOURCE does not answer" in preflight_lines()[0]
    sleeping = [
        one.pid for one in stack.running(paths.state_dir()).members() if "600" in psutil.Process(one.pid).cmdline()
    ]
    assert sleeping == []
