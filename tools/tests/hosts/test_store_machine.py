"""site.yml on three machines, of which the store has a kernel of its own; local_store on that one before.

The virtual machine serves its disk by NFS and mounts it too; clients that know nothing of Ansible look at it from
other addresses.
The tests build on each other, in this order: emulation is too slow for a fresh start each.
"""

from __future__ import annotations

import hashlib
import json
import re
from functools import partial

import pytest

from tests.support.engine_process import chat
from tests.support.hosts import gpu_host, llama_host
from tests.support.hosts.host import wait_for
from tests.support.hosts.playbook import ANSIBLE, play, play_cases, play_role
from tests.support.hosts.vm import ADDRESS

# A minute each on an idle machine; a busy one emulates many times slower.
pytestmark = pytest.mark.timeout(900)

slowly = partial(play_role, limit_s=840)

PATH = "/srv/nfs-ssd/llamacpp"
MODEL = bytes(range(256)) * 4096
URL = f"nfs://{ADDRESS}{PATH}"
AS_POD = "version=4&uid=10001&gid=10001"


@pytest.fixture(scope="module")
def variables(room):
    return {
        "local_store_disk": "/dev/vdb",
        "local_store_path": "/srv/nfs-ssd",
        "nfs_store_filesystem": "/srv/nfs-ssd",
        "nfs_store_clients": [
            {"host": room.address("writer"), "access": "rw"},
            {"host": room.address("reader"), "access": "ro"},
            {"host": ADDRESS, "access": "ro"},
        ],
        "nfs_client_tuning_nconnect": 4,
    }


@pytest.fixture(scope="module")
def site(virtual, hosts, variables, vendor, tmp_path_factory):
    """Plays site.yml: the virtual machine is the store, Debian 12 a node with a card, Debian 13 a host of its own."""
    node, server = hosts
    catalog = llama_host.write_catalog(tmp_path_factory.mktemp("served"))
    gpu_host.prepare(node)
    llama_host.prepare(server, catalog)
    groups = {"store": [virtual], "gpu_nodes": [node], "llama_hosts": [server]}
    group_variables = {
        "store": {name: value for name, value in variables.items() if name.startswith("nfs_store_")},
        "gpu_nodes": gpu_host.variables(vendor) | {"node_metrics_address": "{{ ansible_host }}"},
        "llama_hosts": llama_host.variables(catalog),
    }
    return lambda: play(ANSIBLE / "playbooks" / "site.yml", groups, group_variables=group_variables, limit_s=840)


FULL = {
    "/dev/vdc": (["a signature of xfs"], "mkfs.xfs -q -L photos /dev/vdc"),
    "/dev/vdd": (["a signature of dos", "/dev/vdd1"], "echo 'start=2048, type=83' | sfdisk --quiet /dev/vdd"),
    "/dev/vde": (
        ["a signature of LVM2_member", "the volume group vault", "/dev/mapper/vault-keep"],
        "vgcreate --quiet vault /dev/vde && lvcreate --quiet --name keep --size 64m vault",
    ),
}
"""The reasons of the refusal of a disk with a file system, with partitions, and of another volume group."""


@pytest.fixture(scope="module")
def refused(virtual, variables):
    """The outcome of local_store on each disk that is not empty, in one run that left the disks unchanged."""
    for _, fill in FULL.values():
        virtual.run(fill)
    look = (
        "for disk in /dev/vd[cde]; do head -c 2M $disk | sha256sum; done; ls /srv; vgs --noheadings --options vg_name"
    )
    before = virtual.run(look)
    cases = {disk: variables | {"local_store_disk": disk} for disk in FULL}
    played = play_cases("local_store", [virtual], cases, limit_s=840)
    assert virtual.run(look) == before
    return played


@pytest.mark.parametrize("disk", FULL)
def test_a_disk_that_holds_anything_is_refused_in_words_and_left_alone(refused, disk):
    refused[disk].refused(f"{disk} is not empty", *FULL[disk][0], f"wipefs --all {disk}")


def test_check_mode_on_an_empty_disk_changes_nothing(virtual, variables):
    slowly("local_store", [virtual], "--check", variables=variables).succeeded()

    assert virtual.run("wipefs --no-act /dev/vdb; ls /srv; vgs --noheadings corral 2>/dev/null || true") == ""


def test_the_first_run_makes_the_store_and_says_how_kubernetes_takes_it(virtual, variables):
    played = slowly(["local_store", "nfs_client_tuning"], [virtual], variables=variables).succeeded()

    assert "path: /srv/nfs-ssd" in played.text
    assert "storage: 1Gi" in played.text
    (mounted,) = json.loads(virtual.run("findmnt --json --output FSTYPE,LABEL,OPTIONS /srv/nfs-ssd"))["filesystems"]
    assert (mounted["fstype"], mounted["label"]) == ("xfs", "corral-model")
    assert {"noatime", "nodev", "nosuid", "noexec"} <= set(mounted["options"].split(","))


def test_site_yml_makes_all_machines_ready_in_one_run(virtual, hosts, site):
    site().succeeded()

    node, server = hosts
    assert virtual.run(f"stat --format '%u %g %a' {PATH}") == "10001 10001 755"
    assert "runtimes.nvidia]" in node.run("containerd config dump")
    assert node.run("systemctl is-active prometheus-node-exporter") == "active"
    assert "nconnect" in node.run("cat /etc/nfsmount.conf.d/corral.conf")
    assert chat(llama_host.endpoint(server), "Hello.", model="tiny-text")["message"]["content"] == "OK"


def test_the_second_runs_change_nothing(virtual, variables, site):
    again = site().succeeded()
    disk = slowly("local_store", [virtual], variables=variables).succeeded()  # nfs_client_tuning's: its own file

    assert set(again.changed.values()) == {0}, again.text
    assert len(again.changed) == 4  # three machines, and localhost, where an inventory without hosts is refused
    assert set(disk.changed.values()) == {0}, disk.text


def test_an_export_that_exportfs_does_not_take_never_lands(virtual, variables):
    before = virtual.run("cat /etc/exports.d/corral.exports; exportfs -s")
    clients = [*variables["nfs_store_clients"], {"host": "no-such-host.invalid", "access": "ro"}]

    played = slowly("nfs_store", [virtual], tasks_from="export", variables=variables | {"nfs_store_clients": clients})

    played.refused("no-such-host.invalid")
    assert virtual.run("cat /etc/exports.d/corral.exports; exportfs -s") == before


def test_a_client_on_the_list_reads_the_same_bytes(room, virtual, tmp_path):
    virtual.put(MODEL, f"{PATH}/model.gguf")

    read = room.client("reader", "nfs-cp", f"{URL}/model.gguf?{AS_POD}", str(tmp_path / "copy"))

    assert read.returncode == 0, read.stderr
    assert (tmp_path / "copy").read_bytes() == MODEL


def test_a_client_that_may_writes_as_the_pods_user(room, virtual, tmp_path):
    (tmp_path / "new").write_bytes(MODEL[:2048])  # nfs-cp takes a short write for a failure

    wrote = room.client("writer", "nfs-cp", str(tmp_path / "new"), f"{URL}/new?{AS_POD}")

    assert wrote.returncode == 0, wrote.stderr
    assert virtual.run(f"sha256sum < {PATH}/new").split()[0] == hashlib.sha256(MODEL[:2048]).hexdigest()
    assert virtual.run(f"stat --format %u {PATH}/new; rm {PATH}/new") == "10001"


@pytest.mark.parametrize(
    ("client", "user"),
    [
        pytest.param("reader", AS_POD, id="read-only client"),
        pytest.param("writer", "version=4&uid=0&gid=0", id="root of a client"),
    ],
)
def test_who_may_not_write_cannot(room, virtual, tmp_path, client, user):
    (tmp_path / "other").write_bytes(b"other")

    refused = room.client(client, "nfs-cp", str(tmp_path / "other"), f"{URL}/{client}?{user}")

    assert refused.returncode != 0
    assert re.search("ROFS|ACCES|PERM", refused.stderr + refused.stdout), refused
    assert virtual.run(f"ls {PATH}") == "model.gguf"


def test_a_client_off_the_list_sees_nothing(room, virtual):
    refused = room.client("stranger", "nfs-ls", f"{URL}?{AS_POD}")

    assert refused.returncode != 0
    assert "model.gguf" not in refused.stdout


def test_a_mount_without_options_gets_the_read_ahead_and_the_connections(virtual, variables):
    mount_and_read(virtual)


def test_all_of_it_is_there_after_a_reboot(room, virtual, variables):
    virtual.put("[nfsd]\nlease-time=10\ngrace-time=10\n", "/etc/nfs.conf.d/zz-test.conf")  # 90 s each otherwise
    virtual.reboot(seconds=600)  # a processor that is emulated, and shared

    # In the time of grace a version 4 server opens nothing anew.
    wait_for(
        "the store after a reboot",
        lambda: room.client("reader", "sh", "-c", f"nfs-cat '{URL}/model.gguf?{AS_POD}' >/dev/null").returncode == 0,
        seconds=150,
    )
    assert virtual.run("sysctl --values vm.dirty_bytes vm.dirty_background_bytes").split() == ["268435456", "67108864"]
    mount_and_read(virtual)


def mount_and_read(virtual):
    """Mount the store as the kubelet does, and return the kernel's settings of the mount."""
    virtual.run(f"mkdir -p /mnt && mount -t nfs -o ro {ADDRESS}:{PATH} /mnt")
    try:
        options = virtual.run("findmnt --noheadings --output FSTYPE,OPTIONS /mnt")
        bdi = virtual.run("findmnt --noheadings --output MAJ:MIN /mnt")
        assert virtual.run("sudo -u ops sha256sum /mnt/model.gguf").split()[0] == hashlib.sha256(MODEL).hexdigest()
        assert virtual.result("touch /mnt/new").returncode != 0
        virtual.run("udevadm settle")
        assert virtual.run(f"cat /sys/class/bdi/{bdi}/read_ahead_kb") == "15360"
        assert "nfs4" in options
        # rsize is the server's to cap: by its memory, which is small here.
        assert {"nconnect=4", "hard", "noatime"} <= set(re.split("[ ,]+", options))
    finally:
        virtual.run("umount /mnt")
