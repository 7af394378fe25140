"""`corral prune`: what it prints, and how it ends."""

import json

import pytest

from corral.cli.main import main
from corral.demo.hub import RepoContent
from tests.support.fetching import REPO, shop, weights


@pytest.fixture
def one(tmp_path):
    """A store that holds an old version and a new one."""
    with shop(tmp_path, size=100_000) as made:
        made.fetch()
        made.hub.update(REPO, RepoContent({"a.gguf": weights(50_000, 2)}))
        made.fetch()
        yield made


def prune(one, *words):
    return main(["prune", "--catalog", str(one.folder), "--store", str(one.store.root), *words])


def blobs(one):
    return len(list((one.store.root / "blobs").iterdir()))


def test_an_invalid_duration_is_refused_with_examples(one, capsys):
    with pytest.raises(SystemExit) as ended:
        prune(one, "--grace", "5x")
    assert ended.value.code == 2
    assert "'5x' is no duration such as 90s, 15m, 24h or 7d" in capsys.readouterr().err


def test_without_yes_it_lists_what_would_be_removed_and_the_command(one, capsys):
    assert prune(one, "--grace", "0") == 0
    out, err = capsys.readouterr()
    rows = [line.split("\t") for line in out.splitlines()]
    assert rows[0] == ["path", "size", "idle", "what"]
    assert [row[0].split("/")[0] for row in rows[1:]] == ["sets", "blobs"]
    assert rows[2][1] == "100.0 kB"
    assert "2 things, 100.0 kB, would be removed; nothing was." in err
    assert "Remove it with: corral prune --yes" in err
    assert blobs(one) == 2


def test_with_yes_it_is_removed(one, capsys):
    assert prune(one, "--grace", "0s", "--yes") == 0
    assert "Removed 2 things, 100.0 kB." in capsys.readouterr().err
    assert blobs(one) == 1
    assert prune(one, "--grace", "0s", "--yes") == 0
    assert capsys.readouterr() == ("", "Nothing to remove.\n")


def test_by_default_a_day_has_to_pass(one, capsys):
    assert prune(one, "--yes") == 0
    out, err = capsys.readouterr()
    assert out == ""
    assert err == "Nothing to remove.  Idle for less than 24 h 00 min: 2 things, 100.0 kB.\n"
    assert blobs(one) == 2


def test_json_holds_all_of_it(one, capsys):
    assert prune(one, "--grace", "0", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["deleted"], found["grace"], found["bytes"], found["waiting"]) == (False, 0, 100_000, [])
    assert [removal["size"] for removal in found["removals"]] == [0, 100_000]


def test_without_a_lock_it_is_refused_and_nothing_is_removed(one, tmp_path, capsys):
    (tmp_path / "empty").mkdir()
    command = ["prune", "--catalog", str(tmp_path / "empty"), "--store", str(one.store.root), "--grace", "0", "--yes"]
    assert main(command) == 2
    assert "There is no lock" in capsys.readouterr().err
    assert blobs(one) == 2


def test_a_grace_that_is_no_duration_is_wrong_usage(one, capsys):
    with pytest.raises(SystemExit) as ended:
        prune(one, "--grace", "soon")
    assert ended.value.code == 2


def test_what_could_not_be_removed_is_exit_1(one, monkeypatch, capsys):
    def refuse(_path):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("corral.agent.prune._unlink_link", refuse)
    assert prune(one, "--grace", "0", "--yes") == 1
    out, err = capsys.readouterr()
    assert "Permission denied" in out
    assert "1 thing could not be removed." in err
