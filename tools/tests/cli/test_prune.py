"""`corral prune`: what it prints, and how it ends."""

import json
import shlex
import subprocess

import pytest

from corral.agent.fetch import fetch
from corral.agent.lock_file import read_lock
from corral.cli.main import main
from corral.demo.hub import RepoContent
from corral.terraform import homelab
from corral.terraform.program import find_terraform
from tests.support.fetching import REPO, shop, weights
from tests.support.locks import hub_model, write_lock


@pytest.fixture(autouse=True)
def stack(monkeypatch, tmp_path):
    """The homelab's stack, which was never applied."""
    monkeypatch.setattr(homelab, "STACK", tmp_path / "stack")
    return tmp_path / "stack"


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


@pytest.fixture
def left(one):
    """The lock of a model, n, that is in the store and has left the catalog."""
    assert prune(one, "--grace", "0", "--yes") == 0
    one.hub.update("org/other", RepoContent({"b.gguf": weights(70_000, 3)}))
    path = write_lock(one.folder / "other", n=hub_model(one.hub, "org/other", "b.gguf"))
    fetch(read_lock(path), one.store, hub=one.client)
    return path


def has_n(one):
    return (one.store.root / "n" / "model.gguf").is_file()


def test_a_model_that_left_the_catalog_is_listed_and_removed(one, left, capsys):
    capsys.readouterr()
    assert prune(one, "--grace", "0") == 0
    out, err = capsys.readouterr()
    assert [row.split("\t")[0].split("/")[0] for row in out.splitlines()[1:]] == ["n", "sets", "blobs"]
    assert "model of 70.0 kB that no lock names" in out
    assert "3 things, 70.0 kB, would be removed; nothing was." in err
    assert has_n(one)
    command = err.partition("Remove it with: corral ")[2]
    assert main(shlex.split(command)) == 0
    assert "Removed 3 things, 70.0 kB." in capsys.readouterr().err
    assert not has_n(one)


def test_a_model_of_another_catalog_stays_with_its_lock_and_the_command_names_it_again(one, left, capsys):
    capsys.readouterr()
    assert prune(one, "--grace", "0", "--yes", "--keep-lock", str(left)) == 0
    assert capsys.readouterr().err == "Nothing to remove.\n"
    assert has_n(one)
    (one.store.root / "gone").symlink_to(f"sets/gone@{'0' * 12}")
    assert prune(one, "--grace", "0", "--keep-lock", str(left)) == 0
    assert f"--grace 0 --keep-lock {left}" in capsys.readouterr().err


def test_a_lock_to_keep_that_is_not_there_removes_nothing(one, left, tmp_path, capsys):
    assert prune(one, "--grace", "0", "--yes", "--keep-lock", str(tmp_path / "none")) == 2
    assert f"{tmp_path / 'none'} does not exist" in capsys.readouterr().err
    assert has_n(one)


def test_a_model_of_the_applied_lock_stays_until_the_next_apply(one, left, stack, capsys):
    stack.mkdir()
    document = {key: value for key, value in json.loads(left.read_text()).items() if key != "seal"}
    (stack / "lock.json").write_text(json.dumps(document))
    (stack / "main.tf").write_text('output "lock" {\n  value = jsondecode(file("lock.json"))\n}\n')
    for words in (["init"], ["apply", "-auto-approve"]):
        subprocess.run([find_terraform(), *words], cwd=stack, check=True, capture_output=True)
    capsys.readouterr()
    assert prune(one, "--grace", "0", "--yes") == 0
    assert capsys.readouterr().err == "Nothing to remove.\n"
    assert has_n(one)


def test_in_a_cluster_the_store_is_not_named(one, capsys):
    assert prune(one, "--context", "none-such") == 2
    assert "In a cluster, the store is that of the stack there." in capsys.readouterr().err
