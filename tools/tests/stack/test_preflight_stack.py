"""The preflight in the stack that `corral up` starts: real Terraform, llama-swap and engine; the card is pretended."""

from __future__ import annotations

import json
import os
import shlex
import urllib.error
import urllib.request

import psutil
import pytest

from corral import paths
from corral.cli.main import main
from corral.demo import tiny_gguf
from corral.door import preflight_line
from corral.door.preflight_line import Record
from corral.engine import stack
from corral.engine.stack_folder import StackFolder
from corral.terraform import local
from tests.support.engine_process import chat, free_port, post, question
from tests.support.preflight import without_limits
from tests.support.why_command import wait_for_evidence

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
            "group": name,
            "context": 512,
            "modalities": ["text"],
        }
        (folder / "models" / f"{name}.yaml").write_text(json.dumps(intent))
    assert main(["lock", "--catalog", str(folder)]) == 0
    return folder


@pytest.fixture
def up(catalog, monkeypatch):
    wait_for_evidence(monkeypatch)
    port = free_port()

    def start() -> str:
        assert main(["up", "--detach", "--catalog", str(catalog), "--port", str(port)]) == 0
        return f"http://127.0.0.1:{port}"

    yield start
    stack.stop(paths.state_dir(), drain_s=0)


@pytest.fixture
def finds_every_holder(tmp_path, monkeypatch):
    """The stack's preflight without its limits of time: it leaves out holders that a busy machine finds too late."""
    preflight = str(without_limits(tmp_path / "preflight"))
    apply = local._applied
    monkeypatch.setattr(local, "_applied", lambda *where: apply(*where[:-1], {**where[-1], "preflight": preflight}))


def seat(catalog, model: str) -> int:
    """By the lock: whole MiB, rounded up."""
    lock = json.loads((catalog / "lock.json").read_text())
    return -(-lock["models"][model]["predicted"]["gpu_bytes"] // 2**20)


def records() -> list[Record]:
    return preflight_line.read(StackFolder(paths.state_dir()).log_tail(10_000))


def refusal(model: str) -> list[Record]:
    """The records of the last load of *model*, which was refused."""
    found = [one for one in records() if one.concerns(model)]
    at = max(at for at, one in enumerate(found) if one.is_refusal)
    return found[at:]


@pytest.fixture
def nvidia_smi(tmp_path, monkeypatch):
    """Puts one on PATH that gives recorded answers, and has the preflight of the stack ask it."""
    monkeypatch.setenv("CORRAL_VRAM_SOURCE", "")
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")

    def report(card: str, *processes: str) -> None:
        program = tmp_path / "nvidia-smi"
        rows = "; ".join(f"echo {shlex.quote(row)}" for row in processes)
        program.write_text(f"#!/bin/sh\ncase $1 in --query-gpu=*) echo '{card}' ;; *) {rows} ;; esac\n")
        program.chmod(0o755)

    return report


@pytest.mark.usefixtures("finds_every_holder")
def test_a_load_that_the_card_has_no_room_for_is_refused_and_the_records_name_who_is_seated(
    up, catalog, tmp_path, monkeypatch, capsys
):
    card = tmp_path / "card"
    monkeypatch.setenv("CORRAL_VRAM_SOURCE", f"cat {card}")
    card.write_text("4000, 4096\n")
    endpoint = up()
    chat(endpoint, "Hello.", model="first")
    card.write_text("10, 4096\n")

    body, kind = json.dumps(question("Hello.", model="second")).encode(), {"Content-Type": "application/json"}
    with pytest.raises(urllib.error.HTTPError) as raised:
        urllib.request.urlopen(urllib.request.Request(f"{endpoint}/v1/chat/completions", body, kind))
    with raised.value as answer:
        error, retry_after = json.load(answer)["error"], answer.headers["Retry-After"]

    need = seat(catalog, "second")
    assert (answer.code, error["code"], retry_after) == (503, "no-room", "30")
    assert (error["need_mib"], error["free_mib"]) == (need, 10)
    refused, *holders = refusal("second")
    assert refused == Record("no-room", model="second", need_mib=need, free_mib=10, total_mib=4096)
    seats = [(one.model, one.on_card) for one in holders if one.code == "seat"]
    assert ("first", False) in seats  # beside what else runs on this machine
    assert holders[-1] == Record("unattributed", refused="second", held_mib=4086)  # the engines are on no card
    capsys.readouterr()
    assert main(["why", "second", "--json"]) == 1
    answer = json.loads(capsys.readouterr().out)
    assert (answer["class"], answer["culprit"]) == (
        "out-of-memory",
        "processes that are not visible from here (4086 MiB)",
    )
    card.write_text("4000, 4096\n")
    assert chat(endpoint, "Hello.", model="second")["message"]["content"] == "OK"
    assert main(["why", "second"]) == 0


@pytest.mark.usefixtures("finds_every_holder")
def test_a_tenant_that_holds_the_card_is_named_in_the_log_and_by_corral_why(up, nvidia_smi, capsys):
    nvidia_smi("100, 15360", "20311, 10726, /opt/venv/bin/immich_ml.main", "18112, 1893, /usr/lib/ffmpeg")
    endpoint = up()

    status, _ = post(f"{endpoint}/v1/chat/completions", question("Hello.", model="first"))

    assert status == 503
    tenants = "immich_ml.main (pid 20311, 10726 MiB), ffmpeg (pid 18112, 1893 MiB)"
    holders = refusal("first")[1:]
    found = [(one.name, one.held_mib) for one in holders if one.code == "holder"]
    assert found == [("immich_ml.main", 10726), ("ffmpeg", 1893)]
    assert holders[-1] == Record("unattributed", refused="first", held_mib=15260 - 10726 - 1893)
    capsys.readouterr()
    assert main(["why", "first", "--json"]) == 1
    answer = json.loads(capsys.readouterr().out)
    assert (answer["class"], answer["culprit"]) == ("out-of-memory", tenants)
    nvidia_smi("9000, 15360")
    assert chat(endpoint, "Hello.", model="first")["message"]["content"] == "OK"


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
    assert (records()[0].code, records()[0].reason) == ("memory-unknown", "unreadable")
    assert "uses no NVIDIA card; the engine tries" in StackFolder(paths.state_dir()).log_tail(10_000)


def test_a_source_that_hangs_does_not_hang_the_load(up, monkeypatch):
    monkeypatch.setenv("CORRAL_VRAM_SOURCE", "sleep 600")
    endpoint = up()

    assert chat(endpoint, "Hello.", model="first")["message"]["content"] == "OK"
    assert records()[0].reason == "no-answer"
    sleeping = [
        one.pid for one in stack.running(paths.state_dir()).members() if "600" in psutil.Process(one.pid).cmdline()
    ]
    assert sleeping == []
