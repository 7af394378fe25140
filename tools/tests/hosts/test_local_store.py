"""local_store on bare hosts: what it refuses.  test_store_machine.py uses a real disk."""

from __future__ import annotations

import pytest

from tests.support.hosts.playbook import play_role


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        pytest.param({}, ["missing required arguments: local_store_disk"], id="no disk"),
        pytest.param(
            {"local_store_disk": "/dev/nvme9n1"}, ["/dev/nvme9n1 is no disk of this machine", "lsblk"], id="absent"
        ),
        pytest.param(
            {"local_store_disk": "/dev/null"}, ["/dev/null is no disk of this machine"], id="character device"
        ),
        pytest.param({"local_store_disk": "/srv/disk"}, ['local_store_disk is "/srv/disk"', "below /dev"], id="file"),
        pytest.param(
            {"local_store_disk": "/dev/vdb", "local_store_label": "models-of-corral"},
            ["1 to 12 letters"],
            id="long label",
        ),
        pytest.param({"local_store_disk": "/dev/vdb", "local_store_size": "lots"}, ["such as 400g"], id="size"),
        pytest.param({"local_store_disk": "/dev/vdb", "local_store_path": "/srv/a b"}, ['"/srv/a b"'], id="path"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_changes(hosts, variables, words):
    before = [host.changed_files() for host in hosts]

    play_role("local_store", hosts, variables=variables).refused(*words)

    assert [host.changed_files() for host in hosts] == before
