"""The stand-ins for a card's other tenants, as real processes."""

from __future__ import annotations

import os
import subprocess
import sys

import psutil
import pytest

from corral.bench import neighbours
from corral.bench.neighbours import Neighbours
from corral.errors import CannotRun

IDLE = Neighbours("idle", 0.0, 0)
LEAVES_WITHOUT_ENDING_THEM = """
import os
from corral.bench import neighbours
with neighbours.running(neighbours.Neighbours("50%", 0.5, 1)):
    os.write(1, " ".join(str(one.pid) for one in neighbours.psutil.Process().children()).encode())
    os._exit(0)
"""


@pytest.fixture
def children():
    """The stand-ins among the children of this process; those that it had before, also dead ones, are other tests'."""
    others = psutil.Process().children()

    def find():
        own = [one for one in psutil.Process().children() if one not in others]
        return [one for one in own if "stand_in_tenant" in " ".join(one.cmdline())]

    return find


def test_one_runs_on_each_core_and_none_after_the_block(children):
    with neighbours.running(IDLE):
        during = children()
    assert len(during) == os.cpu_count()
    assert children() == []


def test_an_interrupt_of_the_terminal_reaches_no_stand_in(children):
    """Ctrl-C is sent to every process of the group that the bench is in; it ends its stand-ins itself."""
    with neighbours.running(IDLE):
        groups = {os.getpgid(one.pid) for one in children()}
    assert groups
    assert os.getpgrp() not in groups


def test_a_stand_in_that_was_killed_makes_the_level_an_error_and_not_a_quiet_neighbour(children):
    def kill_one():
        with neighbours.running(IDLE):
            killed = children()[-1]
            killed.kill()
            while killed.status() != psutil.STATUS_ZOMBIE:
                os.sched_yield()

    with pytest.raises(CannotRun, match="ended by itself, with exit code -9") as error:
        kill_one()
    assert "--neighbours-hold" in error.value.next_step
    assert children() == []


def test_stand_ins_do_not_outlive_a_parent_that_ends_at_once():
    parent = subprocess.run([sys.executable, "-c", LEAVES_WITHOUT_ENDING_THEM], capture_output=True, check=True)
    pids = [int(pid) for pid in parent.stdout.split()]
    assert len(pids) == os.cpu_count()
    left = [psutil.Process(pid) for pid in pids if psutil.pid_exists(pid)]
    _, alive = psutil.wait_procs(left, timeout=60)
    assert alive == []
