"""`corral verify`: what it prints, and how it ends."""

import json

import pytest

from corral.cli.main import main
from tests.support import faulty_hub as faults
from tests.support.fetching import shop


@pytest.fixture
def words(tmp_path):
    with shop(tmp_path, size=100_000) as made:
        made.fetch()
    return made, ["verify", "--catalog", str(made.folder), "--store", str(made.store.root)]


def test_a_good_store_is_a_table_and_exit_0(words, capsys):
    _, command = words
    assert main(command) == 0
    assert capsys.readouterr().out.splitlines() == [
        "model\tfile\tsize\tstate\tdetail",
        "m\tmodel.gguf\t100.0 kB\tok\t",
    ]


def test_damage_is_exit_1_with_the_hashes_and_the_next_command(words, capsys):
    made, command = words
    made.published.write_bytes(b"!" * 100_000)
    assert main([*command, "--json"]) == 1
    out, err = capsys.readouterr()
    (found,) = json.loads(out)
    assert (found["model"], found["file"], found["state"], found["size"]) == ("m", "model.gguf", "damaged", 100_000)
    assert found["detail"].startswith("sha256 ")
    assert "Not as locked: 1 file of 1.  Repair it with: corral verify --repair" in err


def test_an_empty_store_is_missing_everything(words, tmp_path, capsys):
    made, _ = words
    assert main(["verify", "--catalog", str(made.folder), "--store", str(tmp_path / "empty")]) == 1
    assert "missing" in capsys.readouterr().out
    assert not (tmp_path / "empty").exists()


def test_an_unknown_model_is_refused(words, capsys):
    _, command = words
    assert main([*command, "other"]) == 2
    assert "has no model other" in capsys.readouterr().err


@pytest.fixture
def damaged(tmp_path, monkeypatch):
    with shop(tmp_path, size=100_000) as made:
        monkeypatch.setenv("HF_ENDPOINT", made.hub.endpoint)
        made.fetch()
        made.published.write_bytes(b"!" * 100_000)
        yield made, ["verify", "--catalog", str(made.folder), "--store", str(made.store.root)]


def test_what_was_repaired_is_exit_0_with_what_was_wrong(damaged, capsys):
    made, command = damaged
    assert main([*command, "--repair", "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert found["state"] == "repaired"
    assert found["detail"].startswith("sha256 ")
    assert made.published.read_bytes() == made.content


def test_what_could_not_be_repaired_is_exit_1_with_the_reason(damaged, capsys):
    made, command = damaged
    made.hub.faults = [faults.Status(on=faults.RESOLVE, status=404, times=None)]
    assert main([*command, "--repair"]) == 1
    out, err = capsys.readouterr()
    assert "\tdamaged\tsha256 " in out
    assert "a.gguf does not exist" in err
    assert err.endswith("Not as locked: 1 file of 1.\n")
