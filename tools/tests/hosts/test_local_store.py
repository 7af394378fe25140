"""local_store on bare hosts: what it refuses.  test_store_machine.py uses a real disk."""

from __future__ import annotations

import pytest

from tests.support.hosts.playbook import play_cases

REFUSED = {
    "no disk": ({}, ["missing required arguments: local_store_disk"]),
    "absent": ({"local_store_disk": "/dev/nvme9n1"}, ["/dev/nvme9n1 is not a disk of", "lsblk"]),
    "character device": ({"local_store_disk": "/dev/null"}, ["/dev/null is not a disk of"]),
    "file": ({"local_store_disk": "/srv/disk"}, ['local_store_disk is "/srv/disk"', "below /dev"]),
    "long label": ({"local_store_disk": "/dev/vdb", "local_store_label": "models-of-corral"}, ["1 to 12 letters"]),
    "size": ({"local_store_disk": "/dev/vdb", "local_store_size": "lots"}, ["such as 400g"]),
    "path": ({"local_store_disk": "/dev/vdb", "local_store_path": "/srv/a b"}, ['"/srv/a b"']),
}


@pytest.fixture(scope="module")
def refused(hosts):
    """The outcome of each case on bare hosts, in one run that changed no file."""
    before = [host.changed_files() for host in hosts]
    played = play_cases("local_store", hosts, {case: changed for case, (changed, _) in REFUSED.items()})
    assert [host.changed_files() for host in hosts] == before
    return played


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_work_is_refused_before_anything_changes(hosts, refused, case):
    refused[case].refused(*REFUSED[case][1])
