"""`corral validate`."""

from __future__ import annotations

import json
import shutil

import pytest

from corral import paths
from corral.cli.main import main

CATALOG = paths.REPOSITORY / "terraform" / "catalog"


@pytest.fixture
def catalog(tmp_path):
    """A copy of the operator's catalog."""
    shutil.copytree(CATALOG, tmp_path / "terraform" / "catalog")
    return tmp_path / "terraform" / "catalog"


def test_the_operators_catalog_is_valid_and_without_a_lock(capsys):
    assert main(["validate", "--catalog", str(CATALOG)]) == 0

    shown = capsys.readouterr()
    assert "minicpm-v-4-5, qwen3-8b, qwen3vl-4b, qwen3vl-8b" in shown.out
    assert "warning: lock.json does not exist\n" in shown.err
    assert f"Run: corral lock --catalog {CATALOG}" in shown.err


def test_the_catalog_is_found_upwards(catalog, monkeypatch, capsys):
    below = catalog / "models"
    monkeypatch.chdir(below)

    assert main(["validate"]) == 0
    assert str(catalog) in capsys.readouterr().out


def test_no_catalog_anywhere_is_refused_with_the_option_to_give(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)

    assert main(["validate"]) == 2
    assert "--catalog DIR" in capsys.readouterr().err


def test_a_wrong_catalog_exits_2_with_file_line_and_rule(catalog, capsys):
    file = catalog / "models" / "qwen3-8b.yaml"
    file.write_text(file.read_text().replace("context: 16384", "context: 0"))

    assert main(["validate", "--catalog", str(catalog)]) == 2
    assert f"{file}:4: context: must be more than 0, not 0." in capsys.readouterr().err


def test_json_lists_the_problems(catalog, capsys):
    file = catalog / "models" / "qwen3-8b.yaml"
    file.write_text(file.read_text().replace("parallel: 1", "paralel: 1"))

    assert main(["validate", "--json", "--catalog", str(catalog)]) == 2
    shown = json.loads(capsys.readouterr().out)
    assert shown["valid"] is False
    assert [(item["file"], item["line"]) for item in shown["problems"]] == [(str(file), 5)]


def test_a_stale_lock_is_a_warning(catalog, capsys):
    (catalog / "lock.json").write_text('{"version": 1, "models": {}}')

    assert main(["validate", "--catalog", str(catalog)]) == 0
    assert "warning: lock.json has version 1, and this corral reads version 2" in capsys.readouterr().err
    assert main(["validate", "--json", "--catalog", str(catalog)]) == 0
    [warning] = json.loads(capsys.readouterr().out)["lock_warnings"]
    assert (warning["lock"], warning["code"]) == ("lock.json", "version")
