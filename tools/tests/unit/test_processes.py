"""Processes are known by pid and birth; nothing else is ever signalled."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import replace

import psutil
import pytest

from corral.engine import processes

MARKER = {"CORRAL_TEST": "marker"}
CHILD = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready', flush=True); input()"


@pytest.fixture
def spawn():
    started = []

    def run(code: str = "input()", marker: dict[str, str] = MARKER, *, session: bool = True) -> subprocess.Popen[bytes]:
        environment = {name: value for name, value in os.environ.items() if name not in MARKER} | marker
        command = [sys.executable, "-c", code]
        child = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, start_new_session=session
        )
        started.append(child)
        return child

    yield run
    for child in started:
        child.kill()
        child.communicate()


def test_a_process_is_alive_until_it_ends(spawn):
    child = spawn()
    mark = processes.mark(child.pid)
    assert processes.is_alive(mark)
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert not processes.is_alive(mark)  # not reaped yet
    child.wait()
    assert not processes.is_alive(mark)
    assert processes.mark(child.pid) is None


@pytest.mark.parametrize("change", [{"birth": 1.0}, {"boot": "another"}], ids=["birth", "boot"])
def test_another_process_of_the_same_pid_is_not_signalled(spawn, change):
    child = spawn()
    impostor = replace(processes.mark(child.pid), **change)
    assert not processes.is_alive(impostor)
    assert processes.send(impostor, signal.SIGKILL) is False
    assert child.poll() is None


def test_a_process_that_has_gone_is_not_signalled(spawn):
    child = spawn()
    mark = processes.mark(child.pid)
    child.kill()
    child.wait()
    assert processes.send(mark, signal.SIGTERM) is False


def test_a_process_that_ignores_term_is_killed(spawn):
    child = spawn(CHILD)
    child.stdout.readline()
    assert processes.end([processes.mark(child.pid)], grace_s=0.1) == []
    assert child.wait(5) == -signal.SIGKILL


def test_a_session_is_found_by_session_and_marker(spawn):
    leader = spawn("print(flush=True); input()")
    leader.stdout.readline()  # before its program runs, the kernel has no environment of it
    mark = processes.mark(leader.pid)
    assert processes.of_session(mark, MARKER) == [mark]
    assert processes.of_session(mark, {"CORRAL_TEST": "another"}) == []
    stranger = spawn(marker=MARKER)
    assert processes.mark(stranger.pid) not in processes.of_session(mark, MARKER)


def test_carriers_of_a_marker_are_found_in_any_session(spawn):
    carriers = [spawn("print(flush=True); input()") for _ in range(2)]
    other = spawn("print(flush=True); input()", marker={"CORRAL_TEST": "another"})
    for one in (*carriers, other):
        one.stdout.readline()
    assert {one.pid for one in processes.carrying(MARKER)} == {one.pid for one in carriers}


def test_a_session_survives_its_leader(spawn):
    code = "import subprocess, sys; print(subprocess.Popen([sys.executable, '-c', 'input()']).pid, flush=True); input()"
    leader = spawn(code)
    mark = processes.mark(leader.pid)
    child = int(leader.stdout.readline())
    leader.kill()
    leader.wait()
    left = processes.of_session(mark, MARKER)
    assert [one.pid for one in left] == [child]
    assert processes.end(left, grace_s=2) == []


def test_a_member_whose_program_begins_is_found_when_the_kernel_has_its_environment(spawn, monkeypatch):
    """Stands in for the moment of exec() in which a process has no environment."""
    leader = spawn("print(flush=True); input()")
    leader.stdout.readline()
    mark, environ = processes.mark(leader.pid), psutil.Process.environ
    answers = iter(({}, {}))
    monkeypatch.setattr(psutil.Process, "environ", lambda process: next(answers, None) or environ(process))
    assert processes.of_session(mark, MARKER) == [mark]
    monkeypatch.setattr(psutil.Process, "environ", lambda _: {})
    monkeypatch.setattr(processes, "_BEGINNING_S", 0.1)
    assert processes.of_session(mark, MARKER) == []


def test_a_process_older_than_the_leader_is_no_member(spawn):
    leader = spawn()
    mark = processes.mark(leader.pid)
    assert processes.of_session(replace(mark, birth=mark.birth + 1000), MARKER) == []
