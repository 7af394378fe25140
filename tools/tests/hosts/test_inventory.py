"""site.yml's first play: what an inventory is refused for, without a host; the machines named here do not exist."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys

import pytest
import yaml

from tests.support.hosts.playbook import ANSIBLE

EXAMPLE = ANSIBLE / "inventories" / "example"


def check(folder, tmp_path):
    """Run the first play of site.yml on the inventory in *folder*."""
    first = yaml.safe_load((ANSIBLE / "playbooks" / "site.yml").read_text())[0]
    assert first["roles"] == ["inventory_check"]
    playbook = tmp_path / "first.json"
    playbook.write_text(json.dumps([first]))
    return subprocess.run(
        [sys.executable, "-m", "ansible", "playbook", "--inventory", str(folder), str(playbook)],
        cwd=ANSIBLE,
        # ssh that fails at once: whoever connects is found out.
        env=os.environ
        | {"ANSIBLE_HOME": str(tmp_path / "ansible"), "ANSIBLE_SSH_EXECUTABLE": "/bin/false", "LC_ALL": "C.UTF-8"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def inventory(tmp_path):
    """A copy of the example to spoil."""
    return shutil.copytree(EXAMPLE, tmp_path / "inventory")


def spoil(file, change):
    content = yaml.safe_load(file.read_text())
    change(content)
    file.write_text(yaml.safe_dump(content))


def test_the_example_is_accepted_without_a_connection(inventory, tmp_path):
    done = check(inventory, tmp_path)

    assert done.returncode == 0, done.stdout + done.stderr
    assert "failed=0" in done.stdout
    assert "unreachable=1" not in done.stdout


def to(group, **hosts):
    return lambda content: content["all"]["children"].setdefault(group, {"hosts": {}})["hosts"].update(hosts)


@pytest.mark.parametrize(
    ("file", "change", "words"),
    [
        pytest.param("hosts.yml", to("gpus", a={}), "has the group gpus, which no play knows", id="unknown group"),
        pytest.param("hosts.yml", to("store", second={}), "nas and second. There is one store", id="two stores"),
        pytest.param(
            "group_vars/store.yml",
            lambda v: v.update(nfs_store_thread=4),
            "nas sets nfs_store_thread, and no role",
            id="misspelt",
        ),
        pytest.param("group_vars/store.yml", lambda v: v.pop("nfs_store_clients"), "missing required", id="missing"),
        pytest.param(
            "group_vars/store.yml",
            lambda v: v.update(nfs_store_clients=[{"host": "*", "access": "ro"}]),
            'names "*"',
            id="meaning",
        ),
        pytest.param(
            "group_vars/gpu_nodes.yml", lambda v: v.update(gpu_node_card="a100"), "Name one of: t4", id="card"
        ),
        pytest.param(
            "group_vars/gpu_nodes.yml",
            lambda v: v.update(local_store_disk="vdb"),
            "has to be a device below /dev",
            id="switched on",
        ),
    ],
)
def test_what_cannot_work_is_refused(inventory, tmp_path, file, change, words):
    spoil(inventory / file, change)

    done = check(inventory, tmp_path)

    assert done.returncode != 0, done.stdout
    assert words in " ".join(done.stdout.split()), done.stdout + done.stderr
