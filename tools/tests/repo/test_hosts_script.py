"""`make hosts` changes nothing before the operator has confirmed the preview."""

from __future__ import annotations

import os
import subprocess

import pytest

from corral import paths


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
def empty_inventory(tmp_path):
    """An inventory without hosts: plays start, and have nothing to do."""
    (tmp_path / "hosts.yml").write_text("all: {hosts: {}}\n")
    return str(tmp_path)


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
def test_only_a_yes_goes_beyond_the_preview(empty_inventory, answer, runs, status):
    done = hosts(answer=answer, INVENTORY=empty_inventory, PLAYBOOK="reboot")

    assert done.stdout.count("PLAY [Restart machines") == runs, done.stdout + done.stderr
    assert done.returncode == status
