"""`corral card` beside a real stack: the driver's pids are those of real engines; nvidia-smi is a recorded answer."""

from __future__ import annotations

import json
import os

import pytest

from corral import paths
from corral.cli.main import main
from corral.engine import stack
from corral.exporter import driver
from tests.support.demo_stack import demo_stack, pid_of
from tests.support.fake_nvidia_smi import UUID, install

pytestmark = pytest.mark.timeout(180)


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    with demo_stack(tmp_path_factory.mktemp("card")) as present:
        yield present


@pytest.fixture
def card(running, tmp_path, monkeypatch, capsys):
    """Runs `corral card --json`, where the driver lists *rows* (pid, MiB) on a card with *free* MiB: code, holders."""
    monkeypatch.setenv("CORRAL_STATE", str(running[1]))
    monkeypatch.setattr(driver, "pid_namespace", lambda: driver.FIRST_PID_NAMESPACE)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")

    def run(*rows, free=3000):
        table = "".join(f"{UUID}, RTX, {pid}, {used}, llama-server\n" for pid, used in rows)
        install(tmp_path, table, cards=f"{UUID}, 4096, {free}, RTX\n")
        capsys.readouterr()
        code = main(["card", "--json"])
        (found,) = json.loads(capsys.readouterr().out)["cards"]
        return code, {one["name"]: one for one in found["holders"]}

    return run


def test_the_engine_of_a_loaded_model_is_known_by_its_pid_and_no_model_is_loaded_for_that(card, capsys):
    assert main(["smoke", "tiny-text"]) == 0
    client = stack.running(paths.state_dir()).client()
    before = (client.residents(), len(client.exchanges()))

    code, holders = card((pid_of("tiny-text"), 150), (os.getpid(), 40))

    assert code == 0
    held = {name: holders[name]["held"] for name in ("tiny-text", "tiny-think", "tiny-vision")}
    assert held == {"tiny-text": 150 << 20, "tiny-think": 0, "tiny-vision": 0}
    assert holders["tiny-text"]["pids"] == [pid_of("tiny-text")]
    assert holders["llama-server"]["kind"] == "process"  # another llama-server is none of the stack's
    assert (client.residents(), len(client.exchanges())) == before


def test_an_engine_that_holds_more_than_its_seat_is_an_exit_code_of_1(card):
    assert main(["smoke", "tiny-text"]) == 0
    code, holders = card((pid_of("tiny-text"), 500))
    assert code == 1
    assert holders["tiny-text"]["over"] == (500 << 20) - holders["tiny-text"]["promised"]
