"""`corral lock` against a real hub client and a hub on loopback."""

from __future__ import annotations

import json
import shutil
import socket

import pytest

from corral import paths
from corral.cli.main import main
from corral.demo.hub import RepoContent
from corral.demo.tour import tiny_hub

DEMO = paths.REPOSITORY / "terraform" / "catalog-demo"


@pytest.fixture(scope="module")
def hub_files(tmp_path_factory):
    return tmp_path_factory.mktemp("hub")


@pytest.fixture
def hub(hub_files, monkeypatch):
    with tiny_hub(hub_files) as running:
        monkeypatch.setenv("HF_ENDPOINT", running.endpoint)
        yield running


@pytest.fixture
def catalog(tmp_path):
    """The demo catalog, not locked yet."""
    for folder in ("models", "cards"):
        shutil.copytree(DEMO / folder, tmp_path / folder)
    return tmp_path


def lock(catalog, *words):
    return main(["lock", "--catalog", str(catalog), *words])


def test_the_demo_lock_is_what_the_hub_says(catalog, hub):
    assert lock(catalog) == 0
    assert (catalog / "lock.json").read_text() == (DEMO / "lock.json").read_text()


def test_check_needs_no_network_and_says_who_is_stale(catalog, hub, capsys, monkeypatch):
    lock(catalog)
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    assert lock(catalog, "--check") == 0
    before = (catalog / "lock.json").read_bytes()
    file = catalog / "models" / "tiny-text.yaml"
    file.write_text(file.read_text().replace("context: 2048", "context: 1024"))
    capsys.readouterr()

    assert lock(catalog, "--check", "--json") == 1
    shown = json.loads(capsys.readouterr().out)
    assert shown["stale"] == [{"model": "tiny-text", "reason": "has changed in the catalog since it was locked"}]
    assert (catalog / "lock.json").read_bytes() == before


def test_upgrade_moves_to_the_newest_commit_and_prints_what_changed(catalog, hub, hub_files, tmp_path, capsys):
    lock(catalog)
    capsys.readouterr()
    newer = tmp_path / "newer.gguf"
    newer.write_bytes((hub_files / "tiny-think-F16.gguf").read_bytes())
    hub.update("corral/tiny-text-GGUF", RepoContent(files={"tiny-text-F16.gguf": newer}))
    assert lock(catalog) == 0
    assert capsys.readouterr().out == ""

    assert lock(catalog, "--upgrade", "tiny-text") == 0

    shown = capsys.readouterr().out
    assert shown.startswith("tiny-text: upgraded\n  revision ")
    assert "~ tiny-text-F16.gguf: 647,936 → 648,192 bytes" in shown


def test_upgrade_of_an_unknown_model_is_refused(catalog, hub, capsys):
    assert lock(catalog, "--upgrade", "gpt-5") == 2
    assert "No model gpt-5" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("repo: corral/tiny-text-GGUF", "repo: corral/gone-GGUF", "There is no repository corral/gone-GGUF"),
        ("quant: F16", "quant: Q4_K_M", "no GGUF with quant Q4_K_M; the repository has: tiny-text-F16.gguf"),
        ("quant: F16", "quant: F16, revision: v9", "corral/tiny-text-GGUF has no revision v9"),
    ],
    ids=["repository", "quant", "revision"],
)
def test_what_the_hub_does_not_have_is_refused_by_name(catalog, hub, capsys, old, new, message):
    file = catalog / "models" / "tiny-text.yaml"
    file.write_text(file.read_text().replace(old, new))

    assert lock(catalog) == 2
    assert message in capsys.readouterr().err
    assert not (catalog / "lock.json").exists()


def test_a_hub_that_is_away_is_exit_3(catalog, monkeypatch, capsys):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{taken.getsockname()[1]}")

        assert lock(catalog) == 3
    assert "does not answer" in capsys.readouterr().err


def test_a_model_on_disk_is_hashed_where_it_lies(catalog, hub_files, hub, capsys):
    file = catalog / "models" / "tiny-vision.yaml"
    source = hub_files / "tiny-vision-F16.gguf"
    text = file.read_text().replace("repo: corral/tiny-vision-GGUF, quant: F16", f"path: {source}")
    file.write_text(text)

    assert lock(catalog) == 0

    entry = json.loads((catalog / "lock.json").read_text())["models"]["tiny-vision"]
    demo = json.loads((DEMO / "lock.json").read_text())["models"]["tiny-vision"]
    assert (entry["repo"], entry["revision"], entry["licence"]) == (None, None, None)
    assert [item["sha256"] for item in entry["files"]] == [item["sha256"] for item in demo["files"]]
    assert entry["files"][0]["path"] == str(source)
    assert entry["argv"] == demo["argv"]
