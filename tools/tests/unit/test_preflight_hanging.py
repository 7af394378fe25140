"""A driver that hangs: the preflight decides all the same, while its query still hangs.

A process in an uninterruptible sleep cannot be made here.  What it does to those that wait is produced: one process
holds the pipes open and is out of reach of every signal to the group; another is traced by this test, so that it cannot
be reaped after it was killed.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.support.engine_process import wait_for
from tests.support.kernel import not_permitted
from tests.support.preflight import REFUSED, Preflight, decision, records
from tests.support.shells import SHELLS, shell

_PTRACE_SEIZE = 0x4206


@pytest.fixture(params=sorted(SHELLS))
def preflight(request, tmp_path):
    return Preflight(shell(request.param), tmp_path / "bin")


@pytest.fixture
def hanging(tmp_path) -> Iterator[Path]:
    """A file for the pid of a process that hangs, and is ended with the test."""
    pid = tmp_path / "pid"
    yield pid
    with contextlib.suppress(OSError, ValueError):
        os.kill(int(pid.read_text()), signal.SIGKILL)


def hang(pid: Path) -> str:
    """A script that ignores SIGTERM, and leaves a process with the pipes in its hands in a session of its own."""
    return f"""trap '' TERM
        setsid sh -c 'echo $$ >{pid}.new && cat {pid}.new >{pid}; exec sleep 600' &
        exec sleep 600"""


def hangs(pid: Path) -> bool:
    return psutil.pid_exists(int(pid.read_text()))


def test_an_nvidia_smi_that_ignores_signals_and_holds_the_pipe_does_not_hold_the_load(preflight, hanging):
    preflight.install("nvidia-smi", hang(hanging))

    done = preflight()

    assert (done.returncode, done.stdout) == (0, "started\n")
    assert decision(done).reason == "no-answer"
    assert hangs(hanging)


def test_an_nvidia_smi_that_hangs_at_its_list_of_processes_does_not_hold_the_refusal(preflight, hanging):
    preflight.install("nvidia-smi", f'case $1 in --query-gpu=*) echo "100, 15360"; exit ;; esac\n{hang(hanging)}')

    done = preflight()

    assert done.returncode == REFUSED
    assert decision(done).code == "no-room"
    assert records(done)[-1].code == "unattributed"
    assert hangs(hanging)


def test_an_nvidia_smi_that_cannot_be_reaped_does_not_hold_the_load(tmp_path):
    preflight = Preflight(shell("dash"), tmp_path / "bin")  # busybox would not use the `sleep` below
    sleep, pid, traced = shutil.which("sleep"), tmp_path / "pid", tmp_path / "traced"
    preflight.install("nvidia-smi", f"echo $$ >{pid}.new && cat {pid}.new >{pid}; exec {sleep} 600")
    (preflight.programs / "sleep").unlink()  # it begins to count when the fault is there
    preflight.install("sleep", f"while [ ! -e {traced} ]; do {sleep} 0.01; done; exec {sleep} $1")
    process = subprocess.Popen(
        preflight.command(), env=preflight.environment({}), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    wait_for(lambda: pid.exists() and pid.read_text().strip(), what="nvidia-smi")
    child = int(pid.read_text())
    try:
        if ctypes.CDLL(None, use_errno=True).ptrace(_PTRACE_SEIZE, child, 0, 0) != 0:
            not_permitted(f"ptrace: {os.strerror(ctypes.get_errno())}")
        traced.touch()
        out, error = process.communicate(timeout=30)
        # It was killed, and is still there.
        wait_for(lambda: psutil.Process(child).status() == psutil.STATUS_ZOMBIE, what="the end of nvidia-smi")
    finally:
        process.kill()
        os.kill(child, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(child, 0)

    assert (process.returncode, out) == (0, "started\n")
    assert "reason=no-answer" in error


def test_without_setsid_a_source_that_hangs_does_not_hold_the_load(tmp_path, hanging):
    preflight = Preflight(shell("dash"), tmp_path / "bin")
    (preflight.programs / "setsid").unlink()  # as on macOS

    done = preflight(CORRAL_VRAM_SOURCE=f"echo $$ >{hanging}; exec sleep 600")

    assert decision(done).reason == "no-answer"
    assert done.stdout == "started\n"
