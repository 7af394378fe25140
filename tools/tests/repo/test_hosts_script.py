"""`make hosts` changes nothing before the operator has confirmed the preview."""

from __future__ import annotations

import json
import os
import subprocess

import pytest

from corral import paths
from tests.support.hosts.inventory import GROUPS


def hosts(*words, answer="", **variables):
    return subprocess.run(
        [paths.REPOSITORY / "tools" / "dev" / "hosts.sh", *words],
        env=os.environ | variables,
        input=answer,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def inventory(tmp_path):
    """A store alone, on a machine that cannot exist: the plays of the other groups start, and have nothing to do."""
    host = {"ansible_host": "machine.invalid"} | GROUPS["store"]
    (tmp_path / "hosts.json").write_text(json.dumps({"store": {"hosts": {"nas": host}}}))
    return str(tmp_path / "hosts.json")


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        pytest.param({"INVENTORY": ""}, "name an inventory", id="no inventory"),
        pytest.param({"INVENTORY": "/nowhere"}, "/nowhere does not exist", id="inventory does not exist"),
        pytest.param(
            {"INVENTORY": "ansible/inventories/example", "PLAYBOOK": "nas"},
            "the plays are: check gpu-nodes llama-server reboot site store upgrade",
            id="no such play",
        ),
    ],
)
def test_nothing_runs_without_an_inventory_and_a_play(variables, words):
    done = hosts(**variables)

    assert done.returncode == 2
    assert words in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize(("answer", "runs", "status"), [("n\n", 1, 1), ("", 1, 1), ("y\n", 2, 0)])
def test_only_a_yes_goes_beyond_the_preview(inventory, answer, runs, status):
    done = hosts(answer=answer, INVENTORY=inventory, PLAYBOOK="llama-server")

    assert done.stdout.count("PLAY [Serve the catalog") == runs, done.stdout + done.stderr
    assert done.returncode == status


@pytest.mark.parametrize("playbook", ["llama-server", "reboot"])
def test_every_play_is_preceded_by_the_check_of_the_inventory_and_of_the_arguments(inventory, playbook):
    done = hosts("-e", "nfs_store_threads=0", answer="y\n", INVENTORY=inventory, PLAYBOOK=playbook)

    assert "nfs_store_threads is 0" in done.stdout, done.stdout + done.stderr
    assert done.returncode != 0
    assert "PLAY [Serve the catalog" not in done.stdout
    assert "PLAY [Restart machines" not in done.stdout
