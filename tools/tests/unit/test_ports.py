"""Loopback ports: free, in use, and by whom."""

from __future__ import annotations

import os
import socket
from contextlib import ExitStack
from pathlib import Path

import pytest

from corral.engine import ports
from corral.errors import CannotRun
from tests.support.engine_process import free_port


@pytest.fixture
def held():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


def test_a_port_in_use_is_refused_with_its_holder_and_the_next_command(held):
    with pytest.raises(CannotRun, match=rf"Port {held} is in use by pid {os.getpid()} \(") as error:
        ports.require_free(held)
    assert f"corral up --port {held + 1}" in error.value.next_step


def test_a_free_port_passes(held):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        port = other.getsockname()[1]
    ports.require_free(port)
    assert ports.holder(port) == ""


def test_a_listener_is_known_by_its_process(held):
    assert ports.is_listening(os.getpid(), held)
    assert not ports.is_listening(1, held)


def test_engines_of_two_stacks_do_not_meet(monkeypatch):
    monkeypatch.setattr(ports, "_problem", lambda _: None)
    assert abs(ports.for_engines(50, 8080) - ports.for_engines(50, 8081)) >= 50


@pytest.mark.parametrize("taken", [0, 1])
def test_engines_keep_away_from_the_place_of_another_stack(taken):
    door = free_port()
    first = ports.for_engines(3, door)
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # its last connections may still be closing
        listener.bind(("127.0.0.1", first + taken))
        listener.listen()
        assert abs(ports.for_engines(3, door) - first) >= 100


def test_two_stacks_that_start_at_the_same_moment_get_places_of_their_own():
    door = free_port()
    with ExitStack() as scope, ExitStack() as other:
        first = ports.for_engines(3, door, scope)
        assert abs(ports.for_engines(3, door, other) - first) >= 100
        scope.close()
        assert ports.for_engines(3, door) == first


def test_the_last_place_is_followed_by_the_first():
    last = ports.for_engines(3, 198)
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", last))
        listener.listen()
        assert ports.for_engines(3, 198) < last


def test_too_many_engines_are_refused():
    with pytest.raises(CannotRun, match="50000 free ports"):
        ports.for_engines(50_000, 8080)


def test_another_door_is_free_and_no_port_that_the_kernel_assigns_by_itself():
    found = {ports.other_door() for _ in range(20)}
    lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    assert len(found) > 10
    assert all(2_000 <= port < min(10_000, lowest) and port != ports.DOOR for port in found)


def test_no_drill_and_no_demo_chooses_the_port_that_a_test_has_chosen():
    found = {free_port() for _ in range(20)}
    assert len(found) == 20
    assert found.isdisjoint(ports.OTHER_DOORS)


def test_without_a_free_port_there_is_no_other_door(held):
    with pytest.raises(CannotRun, match=rf"no free port from {held} to {held}\."):
        ports.other_door(range(held, held + 1))
