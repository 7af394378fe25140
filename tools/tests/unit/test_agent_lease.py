"""Leases: one of two processes works; a dead holder is replaced, a live one is not."""

import json
import os
import subprocess
import sys
import time

import pytest

from corral.agent.lease import Holder, Lease, LeaseLost, server_time
from tests.support.engine_process import wait_for

OTHER_HOST = {"owner": "0000", "host": "elsewhere", "place": "elsewhere", "pid": 1, "born": "1"}


def held_elsewhere(path, age):
    path.write_text(json.dumps(list(OTHER_HOST.values())))
    then = time.time() - age
    os.utime(path, (then, then))


def test_one_of_two_gets_it_until_it_is_released(tmp_path):
    first, second = Lease(tmp_path / "x", 60), Lease(tmp_path / "x", 60)
    assert first.take()
    with first:
        assert not second.take()
        assert second.holder().pid == os.getpid()
    assert second.take()


def test_the_lease_of_a_dead_process_on_this_machine_is_taken_without_waiting(tmp_path):
    take_and_die = "import sys, pathlib, corral.agent.lease as l; assert l.Lease(pathlib.Path(sys.argv[1]), 9e9).take()"
    subprocess.run([sys.executable, "-c", take_and_die, str(tmp_path / "x")], check=True)
    assert Lease(tmp_path / "x", 9e9).take()


def test_a_live_lease_of_another_host_is_left_alone(tmp_path):
    held_elsewhere(tmp_path / "x", age=5)
    assert not Lease(tmp_path / "x", 60).take()


def test_a_silent_lease_of_another_host_is_taken_after_its_ttl(tmp_path):
    held_elsewhere(tmp_path / "x", age=61)
    assert Lease(tmp_path / "x", 60).take()


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[1]",
        "[" * 5000,
        '["a", "b", "c", "1", "e"]',
        '["a", "b", "c", true, "e"]',
        "[1, 2, 3, 4, 5]",
        "\udc80",
    ],
)
def test_an_unreadable_lease_is_only_taken_after_its_ttl(tmp_path, content):
    path = tmp_path / "x"
    path.write_text(content, errors="surrogateescape")
    assert not Lease(path, 60).take()
    os.utime(path, (time.time() - 61,) * 2)
    assert Lease(path, 60).take()


def test_a_link_or_a_fifo_is_no_lease_and_is_not_waited_for(tmp_path):
    victim, path = tmp_path / "victim", tmp_path / "x"
    victim.write_text(json.dumps(["0000", "elsewhere", "elsewhere", 1, "1"]))
    for plant in (lambda: path.symlink_to(victim), lambda: os.mkfifo(path)):
        plant()
        assert Lease(path, 60).holder() is None
        assert not Lease(path, 60).take()
        assert Lease(path, -1).take()
        path.unlink()
    assert "elsewhere" in victim.read_text()


@pytest.mark.parametrize("plant", [lambda clock, victim: clock.symlink_to(victim), lambda clock, _: os.mkfifo(clock)])
def test_the_clock_of_a_store_leads_to_no_file_outside_of_it(tmp_path, plant):
    (tmp_path / "store").mkdir()
    victim = tmp_path / "victim"
    victim.touch()
    os.utime(victim, (1, 1))
    plant(tmp_path / "store" / "clock", victim)
    assert server_time(tmp_path / "store") > 1000
    assert victim.stat().st_mtime == 1


def test_a_holder_from_elsewhere_is_printed_without_what_a_terminal_obeys():
    assert str(Holder("0", "host\x1b[2J", "", 7, "")) == r"process 7 on host\x1b[2J"


def test_the_heart_beats(tmp_path):
    path = tmp_path / "x"
    lease = Lease(path, 0.2)
    assert lease.take()
    os.utime(path, (1, 1))
    with lease:
        wait_for(lambda: path.stat().st_mtime > 1000, what="a sign of life")
    assert not path.exists()


def test_an_owner_that_was_replaced_notices_and_takes_nothing_away(tmp_path):
    path = tmp_path / "x"
    lease = Lease(path, 60)
    assert lease.take()
    with lease:
        lease.check()
        held_elsewhere(path, age=0)
        with pytest.raises(LeaseLost):
            lease.check()
    assert path.exists()
