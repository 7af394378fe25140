"""`corral warm`: what it prints, and how it ends."""

import json

import pytest

from corral.cli.main import main
from tests.support.fetching import shop

SIZE = 4_000_000
"""Of which 1 % is more than a page: the kernel may drop one again at any moment."""


@pytest.fixture
def one(tmp_path):
    with shop(tmp_path, size=SIZE) as made:
        made.fetch()
        yield made


def warm(one, *words):
    return main(["warm", "--catalog", str(one.folder), "--store", str(one.store.root), *words])


def test_each_file_and_the_total_are_listed_with_what_is_in_memory(one, capsys):
    assert warm(one, "m") == 0
    heading, file, total = (line.split("\t") for line in capsys.readouterr().out.splitlines())
    assert heading == ["model", "file", "size", "before", "now", "read in", "from memory"]
    assert file[:2] == ["m", "model.gguf"]
    assert float(file[4].removesuffix(" %")) >= 99
    assert total[0] == "total"


def test_json_has_whether_it_is_warm(one, capsys):
    assert warm(one, "m", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["warm"] is True
    assert found["files"][0]["size"] == found["total"]["size"] == SIZE
    assert SIZE >= found["files"][0]["cached"] == found["total"]["cached"] >= 0.99 * SIZE


def test_less_than_99_percent_is_exit_1_whatever_was_read(one, monkeypatch, capsys):
    monkeypatch.setattr("corral.agent.warm.cached_bytes", lambda _path: SIZE * 98_999 // 100_000)
    assert warm(one, "m") == 1
    out, err = capsys.readouterr()
    assert "\t99.0 %\t" in out
    assert "Not in memory to 99 %: m/model.gguf." in err


def test_a_model_has_to_be_named(one, capsys):
    with pytest.raises(SystemExit) as ended:
        warm(one)
    assert ended.value.code == 2
