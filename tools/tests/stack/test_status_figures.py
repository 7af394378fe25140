"""What `corral status` shows of each model of a real stack: memory, seat, the last requests."""

from __future__ import annotations

import json
import os

import pytest

from corral.cli.main import main
from corral.engine import stack
from corral.exporter import driver
from corral.lock import lock as locks
from tests.support.demo_stack import demo_stack, pid_of
from tests.support.engine_process import chat, post, question, wait_for
from tests.support.fake_nvidia_smi import UUID, install

pytestmark = [pytest.mark.timeout(180), pytest.mark.long]


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """A stack in which tiny-text has answered once and refused once, and no other model was asked."""
    with demo_stack(tmp_path_factory.mktemp("demo")) as (catalog, state):
        running = stack.running(state)
        chat(running.endpoint, "Hello.", model="tiny-text")
        assert post(f"{running.endpoint}/v1/chat/completions", question("Hi.", model="tiny-text", max_tokens="x"))[0]
        wait_for(lambda: len(running.client().exchanges()) == 2, what="both requests in llama-swap's list")
        yield catalog, state


@pytest.fixture
def status(demo, monkeypatch, capsys):
    monkeypatch.setenv("CORRAL_STATE", str(demo[1]))

    def status():
        capsys.readouterr()
        assert main(["status", "--json"]) == 0
        return {one["model"]: one for one in json.loads(capsys.readouterr().out)["models"]}

    return status


def test_the_last_requests_have_their_seconds_and_the_tokens_a_second_of_the_engine(status):
    refused, answered = status()["tiny-text"]["requests"]
    assert (refused["status"], refused["tokens_per_second"], refused["output_tokens"]) == (400, None, 0)
    assert (answered["status"], answered["output_tokens"]) == (200, 2)
    assert answered["tokens_per_second"] > 0
    assert answered["seconds"] > 0
    assert status()["tiny-vision"]["requests"] == []


def test_without_a_card_the_memory_is_the_engines_own_report_of_the_host(status):
    found = status()
    assert found["tiny-text"]["gpu_bytes"] == 0
    assert found["tiny-text"]["host_bytes"] > 1 << 20
    assert found["tiny-think"]["gpu_bytes"] is found["tiny-think"]["host_bytes"] is None


def test_the_seat_is_that_of_the_lock(status, demo):
    seats = {name: entry.seat.mib for name, entry in locks.require(demo[0]).models.items()}
    assert {name: one["seat_mib"] for name, one in status().items()} == seats


def test_the_models_that_run_together_are_those_of_the_seating_chart(status, demo, capsys):
    assert status()  # the stack is that of the catalog
    assert main(["status"]) == 0
    assert "group text runs together: tiny-text + tiny-think" in capsys.readouterr().err

    assert main(["status", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["together"] == {
        "text": [["tiny-text", "tiny-think"]],
        "vision": [["tiny-vision"]],
    }


def test_a_change_that_was_not_applied_is_named_and_the_figures_stay_those_of_what_runs(status, demo, capsys):
    catalog = demo[0]
    kept = {file: file.read_text() for file in (catalog / "models" / "tiny-think.yaml", catalog / "lock.json")}
    before = {name: one["seat_mib"] for name, one in status().items()}
    assert main(["status"]) == 0
    assert "What runs is" not in capsys.readouterr().err
    try:
        think = catalog / "models" / "tiny-think.yaml"
        think.write_text(f'{think.read_text()}vram: {{declared_mib: 400, why: "a test"}}\n')
        assert main(["lock", "--catalog", str(catalog)]) == 0

        assert {name: one["seat_mib"] for name, one in status().items()} == before
        assert main(["status"]) == 0
        shown = capsys.readouterr().err
        assert main(["status", "--json"]) == 0
        document = json.loads(capsys.readouterr().out)
    finally:
        for file, text in kept.items():
            file.write_text(text)
    command = stack.start_command(demo[1])
    what = f"What runs is another configuration than the lock of {catalog} has: tiny-think (seat 400 MiB in the lock)"
    assert f"{what}\n  → {command}\n" in shown
    assert "group text runs together: tiny-text + tiny-think" in shown
    assert document["not_applied"] == ["tiny-think (seat 400 MiB in the lock)"]


def test_on_a_card_the_memory_is_what_its_driver_reports(status, tmp_path, monkeypatch, capsys):
    """A program with a recorded answer stands for nvidia-smi: the tests have no card."""
    monkeypatch.setattr(driver, "pid_namespace", lambda: driver.FIRST_PID_NAMESPACE)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    install(tmp_path, f"{UUID}, RTX, {pid_of('tiny-text')}, 150, llama-server\n")

    assert status()["tiny-text"]["gpu_bytes"] == 150 << 20

    assert main(["status"]) == 0
    rows = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert rows[0] == ["model", "state", "pid", "engine at", "MiB", "seat", "last request", "reason"]
    assert rows[1][4:6] == ["150", "156"]
    assert rows[1][6].startswith("HTTP 400 after 0.0")
    assert rows[2][4:] == ["-", "156", "", ""]
