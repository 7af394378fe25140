"""nvidia-smi's tables, as driver 570 gives them, from a program of that name on PATH: there is no card here."""

from __future__ import annotations

import pytest

from corral.errors import CannotRun
from corral.exporter import driver
from corral.measure import nvidia_smi
from tests.support.fake_nvidia_smi import UUID, install

PID = 4242
NO_DRIVER = (
    "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. "
    "Make sure that the latest NVIDIA driver is installed and running."
)


def row(pid, used, uuid=UUID, card="Tesla T4"):
    return f"{uuid}, {card}, {pid}, {used}, /usr/bin/llama-server\n"


@pytest.fixture
def answers(tmp_path, monkeypatch):
    monkeypatch.setattr(driver, "pid_namespace", lambda: driver.FIRST_PID_NAMESPACE)
    monkeypatch.setenv("PATH", str(tmp_path))

    def respond(out: str = "", *, err: str = "", code: int = 0) -> None:
        install(tmp_path, out, err=err, code=code)

    return respond


def test_the_engine_is_found_among_other_tenants_by_its_pid(answers):
    answers(row(911, 10726) + row(PID, 6996) + row(42, 152))
    assert nvidia_smi.held_by(PID) == nvidia_smi.Held("Tesla T4", 6996 << 20)


def test_the_engine_is_found_on_the_second_of_two_cards(answers):
    answers(row(911, 10726) + row(PID, 7010, "GPU-2", "NVIDIA GeForce RTX 3090"))
    assert nvidia_smi.held_by(PID) == nvidia_smi.Held("NVIDIA GeForce RTX 3090", 7010 << 20)


def test_an_engine_on_two_cards_is_refused(answers):
    answers(row(PID, 3500) + row(PID, 3600, "GPU-2", "Tesla T4"))
    with pytest.raises(CannotRun, match="a seat is on one") as error:
        nvidia_smi.held_by(PID)
    assert "CUDA_VISIBLE_DEVICES" in error.value.next_step


@pytest.mark.parametrize("used", ["[N/A]", "[Insufficient Permissions]", "[Unknown Error]", "[Not Supported]", "0"])
def test_an_answer_that_is_no_number_is_an_error_and_never_0(answers, used):
    answers(row(PID, used))
    with pytest.raises(CannotRun) as error:
        nvidia_smi.held_by(PID)
    assert repr(used) in error.value.message
    assert "--source engine-report" in error.value.next_step


@pytest.mark.parametrize(
    ("rows", "listed"),
    [("", "lists none at all"), (row(911, 10726), "lists 911")],
    ids=["none", "others"],
)
def test_a_process_that_is_not_listed_is_an_error_that_names_those_that_are(answers, rows, listed):
    answers(rows)
    with pytest.raises(CannotRun, match=f"pid {PID}") as error:
        nvidia_smi.held_by(PID)
    assert listed in error.value.message


@pytest.mark.parametrize(
    ("out", "err", "code"),
    [
        ("No devices were found\n", "", 6),
        (f"{NO_DRIVER}\n\n", "", 9),
        ("Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 570.195\n", "", 18),
        ("", "", 255),
    ],
    ids=["no-devices", "no-driver", "version-mismatch", "silent"],
)
def test_a_driver_that_fails_is_quoted(answers, out, err, code):
    answers(out, err=err, code=code)
    with pytest.raises(CannotRun, match=f"exit code {code}") as error:
        nvidia_smi.held_by(PID)
    assert (out.strip() or "printed nothing") in error.value.message


@pytest.mark.parametrize("out", ["No devices were found\n", f"{UUID}, Tesla T4, {PID}\n", "6996\n"])
def test_an_answer_in_another_form_is_refused_also_with_exit_code_0(answers, out):
    answers(out)
    with pytest.raises(CannotRun, match="printed no table of processes"):
        nvidia_smi.held_by(PID)


def test_without_nvidia_smi_the_error_names_it(answers):
    assert not driver.is_installed()
    with pytest.raises(CannotRun, match="no nvidia-smi on PATH"):
        nvidia_smi.held_by(PID)


def test_inside_a_container_no_pid_is_trusted(answers, monkeypatch):
    """The driver would list another process under our number."""
    answers(row(PID, 6996))
    monkeypatch.setattr(driver, "pid_namespace", lambda: 4026532198)
    with pytest.raises(CannotRun, match="outside of this container") as error:
        nvidia_smi.held_by(PID)
    assert "--pid=host" in error.value.next_step


def test_the_pid_namespace_is_the_kernels_number():
    assert driver.pid_namespace() > 0
