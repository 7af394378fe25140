"""nfs_client_tuning on bare hosts.  test_store_machine.py mounts, and reads the kernel's settings."""

from __future__ import annotations

import pytest

from tests.support.hosts.playbook import play_cases, play_role

VARIABLES = {"nfs_client_tuning_server": "192.168.1.30", "nfs_client_tuning_nconnect": 4}
FILES = {"/etc/nfs.conf.d/corral-client.conf", "/etc/nfsmount.conf.d/corral.conf", "/etc/sysctl.d/60-corral-nfs.conf"}


REFUSED = {
    "connections": ({"nfs_client_tuning_nconnect": 17}, ["nconnect is 17", "1 to 16"]),
    "read-ahead": ({"nfs_client_tuning_read_ahead_kb": 64}, ["read_ahead_kb is 64", "128 to"]),
    "soft": ({"nfs_client_tuning_options": ["soft", "noatime"]}, ["kill llama-server"]),
}


@pytest.fixture(scope="module")
def refused(hosts):
    """The outcome of each case on bare hosts, in one run."""
    return play_cases("nfs_client_tuning", hosts, {case: changed for case, (changed, _) in REFUSED.items()})


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_work_is_refused_before_anything_changes(hosts, refused, case):
    refused[case].refused(*REFUSED[case][1])


def test_check_mode_on_a_bare_host_changes_nothing(hosts):
    before = [host.changed_files() for host in hosts]

    play_role("nfs_client_tuning", hosts, "--check", variables=VARIABLES).succeeded()

    assert [host.changed_files() for host in hosts] == before


def test_the_first_run_writes_the_settings_and_the_second_changes_nothing(hosts):
    play_role("nfs_client_tuning", hosts, variables=VARIABLES).succeeded()

    for host in hosts:
        assert host.changed_files() >= FILES
        assert '[ Server "192.168.1.30" ]\nnconnect=4\nhard=True\n' in host.run("cat /etc/nfsmount.conf.d/corral.conf")
    again = play_role("nfs_client_tuning", hosts, variables=VARIABLES).succeeded()
    assert set(again.changed.values()) == {0}, again.text
