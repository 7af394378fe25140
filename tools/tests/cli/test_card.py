"""`corral card` without a stack: what it prints, and its exit codes; with one it is in tests/stack/test_card.py."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from corral.cli.main import main
from corral.exporter import driver
from tests.support.fake_nvidia_smi import UUID, install
from tests.support.tiny_catalog import DEMO

CATALOG = ["--catalog", str(DEMO)]


@pytest.fixture
def smi(tmp_path, monkeypatch):
    monkeypatch.setattr(driver, "pid_namespace", lambda: driver.FIRST_PID_NAMESPACE)
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


def laptop(smi, free, *processes):
    rows = "".join(f"{UUID}, RTX, {pid}, {used}, /usr/bin/{program}\n" for pid, used, program in processes)
    install(smi, rows, cards=f"{UUID}, 4096, {free}, RTX\n")


def card(capsys, *words):
    code = main(["card", *CATALOG, *words])
    return code, *capsys.readouterr()


def test_a_machine_without_a_card_shows_the_promises_and_no_zero(smi, capsys):
    code, out, err = card(capsys)
    assert code == 0
    assert "what is held is unknown" in out
    assert "held: There is no nvidia-smi on PATH." in err
    document = json.loads(card(capsys, "--json")[1])["cards"][0]
    assert document["unknown"] == "missing"
    assert {one["held"] for one in document["holders"]} == {None}


def test_programs_beyond_the_budgets_are_an_exit_code_of_1(smi, capsys):
    laptop(smi, 210, (os.getpid(), 2726, "python3"))
    code, out, _ = card(capsys)
    assert code == 1
    assert "other programs hold 3,886 MiB, 1,274 more than the 2,612 MiB of tenants and reserve" in out
    assert "\tpython3\tprocess\t-\t-\t-\t2,726\t" in out


def test_programs_within_the_budgets_are_no_failure(smi, capsys):
    laptop(smi, 3900, (os.getpid(), 100, "python3"))
    assert card(capsys)[0] == 0


def test_a_model_without_room_is_named_with_what_it_lacks(smi, capsys):
    laptop(smi, 100)
    assert "\ttiny-vision\tmodel of vision\t158\t158\t-\t0\tcannot be loaded: 58 MiB short" in card(capsys)[1]


def test_a_driver_that_prints_rubbish_is_an_exit_code_of_1(smi, capsys):
    install(smi, "", cards="42\n")
    code, out, err = card(capsys)
    assert code == 1
    assert "printed no table of cards" in err
    assert "\t?\t" in out


def test_a_program_with_a_control_character_in_its_name_reaches_no_terminal(smi, capsys):
    laptop(smi, 3900, (os.getpid(), 100, "py\x1b[2Jthon"))
    out = card(capsys)[1]
    assert "\x1b" not in out
    assert r"py\u001b[2Jthon" in out


def test_without_a_lock_the_next_command_is_named(tmp_path, capsys):
    (tmp_path / "models").mkdir()
    assert main(["card", "--catalog", str(tmp_path)]) == 2
    assert f"→ corral lock --catalog {tmp_path}" in capsys.readouterr().err


def test_watching_as_json_prints_a_document_a_line():
    command = [sys.executable, "-m", "corral.cli.main", "card", *CATALOG, "--json", "--watch", "1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        documents = [json.loads(process.stdout.readline()) for _ in range(2)]
        process.terminate()
    assert documents[0]["at"] < documents[1]["at"]
    assert [one["cards"][0]["card"] for one in documents] == ["laptop", "laptop"]


@pytest.mark.parametrize("seconds", ["0", "-1", "x", "3601"])
def test_an_invalid_interval_is_refused(seconds, capsys):
    with pytest.raises(SystemExit) as error:
        main(["card", *CATALOG, f"--watch={seconds}"])
    assert error.value.code == 2
