"""nvidia-smi's tables, read strictly: what is no figure is unknown, and what is no table is a fault with a code."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from corral.exporter import driver
from corral.exporter.driver import Card
from corral.exporter.errors import DriverFault, DriverUnknown
from tests.support.engine_process import wait_for
from tests.support.fake_nvidia_smi import CARDS, UUID, install, install_script

MIB = 1 << 20


@pytest.fixture
def smi(tmp_path, monkeypatch):
    """The folder where nvidia-smi is looked for, before the usual ones."""
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    return tmp_path


def fault_of(read, **options):
    with pytest.raises(DriverUnknown) as error:
        read(**options)
    return error.value.fault


def test_a_card_has_its_total_and_its_free_memory_in_bytes(smi):
    install(smi, "")
    assert driver.cards() == (Card(UUID, "Tesla T4", 15360 * MIB, 2210 * MIB),)
    assert driver.cards()[0].used == 13150 * MIB


def test_the_answers_of_a_real_driver_are_read(smi):
    """Recorded of driver 580.159.04 and an H200: of the 143,771 MiB it reserves 616 for itself, which are not free."""
    cards = f"{UUID}, 143771, 910, NVIDIA H200\n"
    install(
        smi,
        f"{UUID}, NVIDIA H200, 1420, 692, /tmp/d/bin/llama-server\n{UUID}, NVIDIA H200, 1747, 141540, python3\n",
        cards=cards,
    )
    assert driver.cards() == (Card(UUID, "NVIDIA H200", 143771 * MIB, 910 * MIB),)
    assert [(one.pid, one.used, one.program) for one in driver.processes()] == [
        (1420, 692 * MIB, "/tmp/d/bin/llama-server"),
        (1747, 141540 * MIB, "python3"),
    ]
    driver.check(driver.cards(), driver.processes())


def test_a_program_with_a_comma_in_its_name_is_one_process(smi):
    install(smi, f"{UUID}, Tesla T4, 42, 152, /opt/a, b/tool\n")
    (process,) = driver.processes()
    assert (process.pid, process.used, process.program) == (42, 152 * MIB, "/opt/a, b/tool")


@pytest.mark.parametrize("word", ["[N/A]", "[Not Supported]", "[Insufficient Permissions]", "[Unknown Error]"])
def test_what_the_driver_does_not_report_is_unknown_and_never_0(smi, word):
    install(smi, f"{UUID}, Tesla T4, 42, {word}, python3\n", cards=f"{UUID}, {word}, {word}, Tesla T4\n")
    assert [one.used for one in driver.processes()] == [None]
    (card,) = driver.cards()
    assert (card.total, card.free, card.used) == (None, None, None)


@pytest.mark.parametrize(
    "table",
    [
        "No devices were found\n",
        f"{UUID}, Tesla T4, 42\n",
        f"{UUID}, Tesla T4, 42, 5k, python3\n",
        f"{UUID}, Tesla T4, -1, 5, python3\n",
        f"{UUID}, Tesla T4, ٤٢, 5, python3\n",
        f"{UUID}, Tesla T4, 42, 1.5, python3\n",
        f"{UUID}, Tesla T4, 42, , python3\n",
        f"{UUID}, Tesla T4, 42, {'9' * 5000}, python3\n",
        f"{UUID}, Tesla T4, {'9' * 5000}, 5, python3\n",
        f"{UUID}, Tesla T4, 42, {'9' * 13}, python3\n",
        ", , 42, , \n",
        "gpu_uuid, gpu_name, 42, 5, process_name\n",
        "\x00\xff\n",
    ],
)
def test_rubbish_is_unreadable_also_with_exit_code_0(smi, table):
    install(smi, table)
    assert fault_of(driver.processes) is DriverFault.UNREADABLE


@pytest.mark.parametrize(
    "table",
    [
        f"{UUID}, 15360, 2210\n",
        f"{UUID}, 15360, 15361, Tesla T4\n",
        CARDS + CARDS,
        f"{UUID}, 15 GB, 1, Tesla T4\n",
        f"{UUID}, {'9' * 5000}, 1, Tesla T4\n",
        f"{UUID}, , , Tesla T4\n",
        ",,,\n",
        "Error, 15360, 2210, Tesla T4\n",
    ],
    ids=["no-name", "more-free-than-all", "one-card-twice", "unit", "digits", "no-figure", "commas", "no-uuid"],
)
def test_a_table_of_cards_that_cannot_be_is_unreadable(smi, table):
    install(smi, "", cards=table)
    assert fault_of(driver.cards) is DriverFault.UNREADABLE


def test_two_cards_of_one_name_are_two_cards(smi):
    install(smi, "", cards=f"{CARDS}GPU-2, 15360, 15360, Tesla T4\n")
    assert [card.uuid for card in driver.cards()] == [UUID, "GPU-2"]


def test_a_driver_that_fails_is_quoted_with_its_exit_code(smi):
    install(smi, "", cards="", err="Driver/library version mismatch", code=18)
    with pytest.raises(DriverUnknown, match=r"exit code 18.*version mismatch") as error:
        driver.cards()
    assert error.value.fault is DriverFault.FAILED


def test_without_the_program_the_fault_is_missing(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert not driver.is_installed()
    assert fault_of(driver.cards) is DriverFault.MISSING


def test_a_program_that_does_not_start_is_its_own_fault(smi):
    (smi / "nvidia-smi").write_text("#!/no/such/shell\n")
    (smi / "nvidia-smi").chmod(0o755)
    # The kernel reports the missing interpreter as a missing file.
    assert fault_of(driver.cards) in (DriverFault.MISSING, DriverFault.NOT_STARTED)


def test_a_driver_that_hangs_is_given_up_and_killed(smi, tmp_path):
    pid = tmp_path / "pid"
    install_script(smi, f"echo $$ >{pid}.new; mv {pid}.new {pid}; exec sleep 600\n")
    assert fault_of(driver.cards, limit_s=0.5) is DriverFault.HANGING
    assert not Path(f"/proc/{pid.read_text().strip()}").exists()


def test_what_a_driver_that_hangs_has_started_is_killed_with_it(smi, tmp_path):
    pid = tmp_path / "pid"
    install_script(smi, f"sleep 600 & echo $! >{pid}.new; mv {pid}.new {pid}; wait\n")
    assert fault_of(driver.cards, limit_s=0.5) is DriverFault.HANGING
    command_line = Path(f"/proc/{pid.read_text().strip()}/cmdline")
    wait_for(lambda: not command_line.exists() or not command_line.read_bytes(), what="the end of the child")


@pytest.mark.parametrize("script", ["exec yes\n", "yes >&2\n"])
def test_a_driver_that_prints_without_end_is_unreadable_and_killed(smi, tmp_path, script):
    pid = tmp_path / "pid"
    install_script(smi, f"echo $$ >{pid}; {script}")
    with pytest.raises(DriverUnknown, match="prints more than 1 MiB") as error:
        driver.cards(limit_s=30)
    assert error.value.fault is DriverFault.UNREADABLE
    assert not Path(f"/proc/{pid.read_text().strip()}").exists()


def test_a_driver_that_prints_a_little_again_and_again_is_given_up_in_time(smi):
    install_script(smi, "while :; do echo; sleep 0.05; done\n")
    assert fault_of(driver.cards, limit_s=0.5) is DriverFault.HANGING


def test_a_driver_that_cannot_be_killed_is_not_started_a_second_time(smi, tmp_path, monkeypatch):
    """A process in the kernel's hands takes no SIGKILL: here one that is never sent it stands for that."""
    pids = tmp_path / "pids"
    install_script(smi, f"echo $$ >>{pids}; exec sleep 600\n")
    monkeypatch.setattr("os.killpg", lambda *_: None)
    assert fault_of(driver.cards, limit_s=0.5) is DriverFault.HANGING
    with pytest.raises(DriverUnknown, match="cannot be killed") as error:
        driver.processes(limit_s=0.5)
    assert error.value.fault is DriverFault.HANGING
    (pid,) = map(int, pids.read_text().split())

    os.kill(pid, signal.SIGKILL)
    left = driver._unkillable[pid]
    left.wait(timeout=30)
    install(smi, "")
    assert driver.cards()
