"""Hosts for the tests of ansible/: booted once for each module."""

from __future__ import annotations

from contextlib import contextmanager

import pytest

from tests.support.hosts.host import Host
from tests.support.hosts.images import COMPILING, SUITES, Image
from tests.support.hosts.room import Room
from tests.support.hosts.vendor import Vendor, served
from tests.support.hosts.vm import VirtualMachine


def pytest_addoption(parser):
    parser.addoption("--long", action="store_true", help="also compile the real llama.cpp: most of an hour")


def pytest_configure(config):
    """Keep the order of the files: the next test of a file uses the host as the previous one left it."""
    config.option.randomly_reorganize = False


def pytest_ignore_collect(collection_path, config):
    """Collect the long tests only with --long."""
    return True if collection_path.stem.endswith("_long") and not config.getoption("--long") else None


@contextmanager
def booted(hosts):
    """The *hosts*, running until the end of the block."""
    started = []
    try:
        for host in hosts:
            started.append(host)
            host.start()
        yield started
    finally:
        for host in started:
            host.stop()


@pytest.fixture(scope="session")
def room():
    """The bridge and the keys; see tests/support/hosts/room.py."""
    return Room()


@pytest.fixture(scope="module")
def hosts(room):
    """One bare host of every Debian that corral supports, fresh for each file of tests."""
    with booted(Host(room, system, Image(system)) for system in SUITES) as started:
        yield started


@pytest.fixture(scope="module")
def builders(room):
    """Two hosts of Debian 13 with a toolchain, fresh for each file of tests."""
    image = Image("debian-13", installed=COMPILING)
    with booted(Host(room, f"builder-{number}", image) for number in (1, 2)) as started:
        yield started


@pytest.fixture(scope="module")
def vendor(room, tmp_path_factory):
    """A stand-in for NVIDIA's package repository, served to the hosts."""
    repository = Vendor(tmp_path_factory.mktemp("vendor"))
    with served(repository):
        yield repository


@pytest.fixture(scope="module")
def virtual(room):
    """The virtual machine, fresh for each file of tests; for tests that need a kernel of their own."""
    machine = VirtualMachine(room)
    try:
        machine.start()
        yield machine
    finally:
        machine.stop()
