"""nfs_store on bare hosts: what it refuses, and that check mode works.  test_store_machine.py serves for real."""

from __future__ import annotations

import pytest

from tests.support.hosts.playbook import play_cases, play_role

CLIENTS = [{"host": "10.231.0.1", "access": "rw"}]


REFUSED = {
    "no clients": ({}, ["missing required arguments: nfs_store_clients"]),
    "empty": ({"nfs_store_clients": []}, ["no machine could mount"]),
    "everybody": ({"nfs_store_clients": [{"host": "*", "access": "ro"}]}, ['the host "*"', "192.168.1.0/24"]),
    "internet": ({"nfs_store_clients": [{"host": "0.0.0.0/0", "access": "ro"}]}, ["more addresses than /8"]),
    "access": ({"nfs_store_clients": [{"host": "a", "access": "write"}]}, ["write", "ro, rw"]),
    "twice": ({"nfs_store_clients": CLIENTS * 2}, ["names a host twice: 10.231.0.1, 10.231.0.1"]),
    "root": ({"nfs_store_clients": CLIENTS, "nfs_store_path": "/"}, ['"/" cannot be exported']),
    "outside": ({"nfs_store_clients": CLIENTS, "nfs_store_filesystem": "/srv/hdd"}, ["does not lie in", "/srv/hdd"]),
    "squash": ({"nfs_store_clients": CLIENTS, "nfs_store_squash": "no_root_squash"}, ["no_root_squash", "all_squash"]),
}


@pytest.fixture(scope="module")
def refused(hosts):
    """The outcome of each case on bare hosts, in one run."""
    return play_cases("nfs_store", hosts, {case: changed for case, (changed, _) in REFUSED.items()})


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_work_is_refused_before_anything_changes(hosts, refused, case):
    refused[case].refused(*REFUSED[case][1])
    assert all(host.result("command -v exportfs").returncode for host in hosts)


def test_check_mode_on_a_bare_host_shows_the_exports_and_changes_nothing(hosts):
    before = [host.changed_files() for host in hosts]

    played = play_role("nfs_store", hosts, "--check", variables={"nfs_store_clients": CLIENTS}).succeeded()

    assert "+/srv/nfs-ssd/llamacpp 10.231.0.1(rw,sync,no_subtree_check,root_squash)" in played.text
    assert [host.changed_files() for host in hosts] == before


def test_nothing_is_exported_while_the_disk_is_missing(hosts):
    variables = {"nfs_store_clients": CLIENTS, "nfs_store_filesystem": "/srv/nfs-ssd"}

    played = play_role("nfs_store", hosts, variables=variables)

    played.refused("Nothing is mounted on /srv/nfs-ssd, so the models would fill the root disk")
    assert played.failed == {"debian-12", "debian-13"}
