"""`corral keys`: what is printed, where, and what is refused."""

from __future__ import annotations

import json
import os

import pytest

from corral import paths
from corral.cli.main import main
from corral.keys import MONITOR, LocalKeys
from tests.support.locked_catalog import SMALLEST_INTENT, write_sources


@pytest.fixture
def keys(tmp_path, capsys):
    """Runs `corral keys` on a catalog with the clients desk and photos; gives exit code, stdout and stderr."""
    clients = {"photos": {"models": ["m"], "requests": 4}, "desk": {"requests": 2}}
    catalog = write_sources(tmp_path / "catalog", {"m": SMALLEST_INTENT}, clients={"clients": clients})

    def run(*words):
        capsys.readouterr()
        code = main(["keys", *words, "--catalog", str(catalog)])
        return code, *capsys.readouterr()

    return run


def test_a_key_is_all_of_stdout_and_is_never_printed_again(keys):
    code, key, _ = keys("add", "photos")

    assert code == 0
    assert key.startswith("corral-")
    assert key.count("\n") == 1
    assert not [text for text in (*keys("list")[1:], *keys("list", "--json")[1:]) if key.strip() in text]


def test_the_list_names_the_next_command_for_every_client(keys):
    keys("add", "photos")
    keys("rotate", "photos")

    code, table, _ = keys("list")

    assert code == 0
    assert [line.split("\t") for line in table.splitlines()] == [
        ["client", "keys", "models", "requests", "next"],
        ["operator", "0", "all", "any number", ""],
        ["desk", "0", "all", "2", "corral keys add desk"],
        ["photos", "2", "m", "4", "corral keys revoke photos --old"],
    ]


def test_the_key_of_an_exporter_is_listed_and_only_an_apply_makes_it(keys):
    store = LocalKeys(paths.state_dir())
    with store.exclusive_lock():
        store.write(store.read().replaced(MONITOR, ["a-key"]))

    assert ["monitor", "1", "none", "any number", ""] in [line.split("\t") for line in keys("list")[1].splitlines()]
    assert json.loads(keys("list", "--json")[1])["monitor"] == {"keys": 1}
    for action in ("add", "rotate"):
        code, out, error = keys(action, "monitor")
        assert (code, out) == (2, "")
        assert "is an exporter's" in error
        assert "corral keys revoke monitor && corral apply" in error
    assert keys("revoke", "monitor")[0] == 0


def test_a_client_that_left_the_catalog_is_listed_with_its_keys(keys, tmp_path):
    keys("add", "photos")
    (tmp_path / "catalog" / "clients.yaml").unlink()

    [left] = json.loads(keys("list", "--json")[1])["clients"]
    assert left == {"name": "photos", "keys": 1, "permits": None}
    assert "it is not in the catalog: corral keys revoke photos" in keys("list")[1]
    assert keys("revoke", "photos")[0] == 0
    assert json.loads(keys("list", "--json")[1])["clients"] == []


def test_the_words_of_the_rotation_are_commands(keys):
    keys("add", "photos")

    _, _, message = keys("rotate", "photos")

    assert "corral keys revoke photos --old" in message
    assert keys("revoke", "photos", "--old") == (0, "", "The old key of photos is invalid now.\n")


def test_json_has_the_key_and_the_number_of_valid_ones(keys):
    made = json.loads(keys("add", "photos", "--json")[1])
    assert (made["name"], made["key"][:7]) == ("photos", "corral-")
    keys("rotate", "photos")
    assert json.loads(keys("revoke", "photos", "--old", "--json")[1]) == {"name": "photos", "keys": 1}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["add", "tv"], "The catalog has no client tv; it has: desk, photos."),
        (["add"], "needs the name of a client"),
        (["list", "photos"], "lists every client"),
        (["add", "photos", "--old"], "--old is for revoke, not for add"),
        (["revoke", "photos"], "photos has no key"),
    ],
    ids=" ".join,
)
def test_what_makes_no_sense_is_refused(keys, words, message):
    code, printed, error = keys(*words)

    assert (code, printed) == (2, "")
    assert message in error
    assert LocalKeys(paths.state_dir()).read().of == {}


def test_a_key_whose_reader_has_ended_is_not_made_and_that_is_an_error(keys, capsys, monkeypatch):
    reader, writer = os.pipe()
    os.close(reader)

    with os.fdopen(writer, "w") as gone:
        monkeypatch.setattr("sys.stdout", gone)
        assert keys("add", "photos")[0] == 3

    assert LocalKeys(paths.state_dir()).read().of == {}
