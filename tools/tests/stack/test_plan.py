"""`corral plan --local`: Terraform's own words, and its refusals."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from corral import paths
from corral.cli.main import main
from corral.drill.small_disk import fill
from corral.engine import stack
from corral.engine.door import Door
from corral.errors import CannotRun
from corral.terraform import local
from tests.support.kernel import small_disk
from tests.support.tiny_catalog import write_tiny_catalog

DEMO = paths.REPOSITORY / "terraform" / "catalog-demo"


def test_the_plan_shows_the_configuration_that_would_run(capsys):
    assert main(["plan", "--local", "--catalog", str(DEMO)]) == 0
    assert "--alias tiny-vision" in capsys.readouterr().out


def test_the_plan_of_a_running_stack_keeps_its_ports(capsys, monkeypatch):
    monkeypatch.setattr(
        stack, "running", lambda _state: SimpleNamespace(first_engine_port=23800, door=Door(8080, 23799))
    )

    assert main(["plan", "--local", "--catalog", str(DEMO)]) == 0

    assert re.search(r'"startPort": 23800$', capsys.readouterr().out, re.MULTILINE)


def test_a_stale_lock_is_refused_by_name(tmp_path, capsys):
    shutil.copytree(DEMO, tmp_path / "catalog")
    model = tmp_path / "catalog" / "models" / "tiny-text.yaml"
    model.write_text(model.read_text().replace("context: 2048", "context: 1024"))

    assert main(["plan", "--local", "--catalog", str(tmp_path / "catalog")]) == 2
    error = capsys.readouterr().err
    assert "models/tiny-text.yaml has changed since it was locked" in error
    assert "corral lock --catalog" in error


def test_a_refusal_with_remedies_beneath_it_does_not_name_the_command_for_them(tmp_path, capsys):
    write_tiny_catalog(tmp_path / "catalog")
    card = tmp_path / "catalog" / "cards" / "laptop.yaml"
    card.write_text(card.read_text().replace("vram_mib: 4096", "vram_mib: 2900"))
    assert main(["lock", "--catalog", str(tmp_path / "catalog")]) == 0
    capsys.readouterr()

    assert main(["plan", "--local", "--catalog", str(tmp_path / "catalog")]) == 2

    refusal, headline, *_, step = capsys.readouterr().err.splitlines()
    assert refusal.endswith("add up to 2926 of its 2900 MiB.")
    assert headline == "laptop is short of 26 MiB. Each of these alone would do:"
    assert step == f"  → corral seat --catalog {tmp_path}/catalog"


def test_a_full_disk_is_named_and_nothing_is_left_in_the_repository(tmp_path, monkeypatch, capsys):
    """Terraform leaves a file beside its configuration, for a moment, so it has its own: other tests read the stack."""
    shutil.copytree(paths.REPOSITORY / "terraform" / "modules", tmp_path / "terraform" / "modules")
    own = shutil.copytree(local.STACK, tmp_path / "terraform" / "stacks" / "local")
    monkeypatch.setattr(local, "STACK", own)
    store, engine = tmp_path / "store", Path("llama-server")
    with small_disk(tmp_path / "disk", 1 << 20) as disk:
        monkeypatch.setenv("CORRAL_STATE", str(disk / "state"))
        room = fill(disk)
        assert main(["plan", "--local", "--catalog", str(DEMO)]) == 3
        assert f"{disk}/state/terraform is full: No space left on device" in capsys.readouterr().err

        room.unlink()
        local.render_local(DEMO, store, engine, state=disk / "state")
        (disk / "state" / "terraform" / "terraform.tfstate").unlink()
        os.truncate(fill(disk), (disk / "filler").stat().st_size - 4096)
        with pytest.raises(CannotRun, match="state/terraform is full: No space left on device") as caught:
            local.render_local(DEMO, store, engine, state=disk / "state")
    assert "errored.tfstate" not in caught.value.message
    assert not (own / "errored.tfstate").exists()


def test_the_configuration_of_another_machine_names_what_lies_there(capsys):
    there = ["--store=/srv/models", "--engine=/opt/llama-server", "--preflight=/opt/preflight.sh"]
    words = ["render", "--print=llama-swap", f"--catalog={DEMO}", "--first-engine-port=6000", *there]
    assert main(words) == 0
    config = yaml.safe_load(capsys.readouterr().out)
    command = " ".join(config["models"]["tiny-vision"]["cmd"].split())
    assert re.match(
        r"/opt/preflight\.sh --model tiny-vision --need-mib \d+ -- /opt/llama-server -m /srv/models/", command
    )
    assert config["startPort"] == 6000
