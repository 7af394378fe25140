"""Keys: by hash, from a file that changes while the guard runs."""

import json
from hashlib import sha256
from pathlib import Path

import pytest

from corral.door.config import Client, Misconfigured
from corral.door.keys import Keys
from corral.door.refusals import Refusal
from tests.support.guard_process import write_keys

CLIENTS = {name: Client(name, None, None) for name in ("first", "second")}


@pytest.fixture
def path(tmp_path):
    write_keys(tmp_path / "keys.json", first=["one", "other"], second=["two"])
    return tmp_path / "keys.json"


@pytest.fixture
def warned():
    return []


@pytest.fixture
def keys(path, warned):
    return Keys(path, CLIENTS, warned.append)


def owner(keys, *, bearer="", **fields):
    given = {name.replace("_", "-"): value for name, value in fields.items()}
    if bearer:
        given["authorization"] = f"Bearer {bearer}"
    try:
        return keys.client_of(given).name
    except Refusal as refused:
        return refused.code


def test_a_key_is_read_from_either_field(keys):
    assert owner(keys, bearer="one") == "first"
    assert owner(keys, x_api_key="two") == "second"
    assert owner(keys, authorization="bearer  other") == "first"
    assert owner(keys, bearer="one", x_api_key="one") == "first"


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"authorization": "one"},
        {"authorization": "Basic b25lOm9uZQ=="},
        {"authorization": "Bearer"},
        {"x-api-key": ""},
        {"authorization": "Bearer one", "x-api-key": "two"},
        {"cookie": "key=one"},
    ],
    ids=str,
)
def test_no_key_and_two_keys_are_no_key(keys, fields):
    with pytest.raises(Refusal) as refused:
        keys.client_of(fields)

    assert (refused.value.status, refused.value.code) == (401, "key-missing")
    assert b"\r\nWWW-Authenticate: Bearer\r\n" in refused.value.answer()


@pytest.mark.parametrize("key", ["One", "one ", "on", "three", "\xff", sha256(b"one").hexdigest()])
def test_another_text_is_no_key_not_even_the_hash(keys, key):
    assert owner(keys, bearer=f"x{key}") == "key-unknown"
    assert owner(keys, x_api_key=key) == "key-unknown"


def test_a_new_file_is_valid_at_once(keys, path, warned):
    write_keys(path, first=["new"], second=["two"])

    assert (owner(keys, bearer="new"), owner(keys, bearer="one"), warned) == ("first", "key-unknown", [])


def test_a_file_that_is_written_in_place_is_valid_at_once(keys, path):
    path.write_text(path.read_text().replace(sha256(b"one").hexdigest(), sha256(b"new").hexdigest()))

    assert (owner(keys, bearer="new"), owner(keys, bearer="one")) == ("first", "key-unknown")


def test_a_secret_of_kubernetes_is_valid_when_its_link_flips(tmp_path):
    for name, key in (("..1", "one"), ("..2", "two")):
        (tmp_path / name).mkdir()
        write_keys(tmp_path / name / "keys.json", first=[key])
    (tmp_path / "..data").symlink_to("..1")
    (tmp_path / "keys.json").symlink_to("..data/keys.json")
    keys = Keys(tmp_path / "keys.json", CLIENTS, pytest.fail)
    assert owner(keys, bearer="one") == "first"

    (tmp_path / "..new").symlink_to("..2")
    (tmp_path / "..new").replace(tmp_path / "..data")

    assert (owner(keys, bearer="one"), owner(keys, bearer="two")) == ("key-unknown", "first")


def digests(**keys):
    return {"version": 1, "clients": keys}


BROKEN = {
    "not JSON": "{",
    "another version": json.dumps(digests() | {"version": 2}),
    "a member too much": json.dumps(digests() | {"keys": []}),
    "a key in place of a hash": json.dumps(digests(first=["one"])),
    "a hash in capitals": json.dumps(digests(first=["A" * 64])),
    "a hash without a list": json.dumps(digests(first="a" * 64)),
    "a list of clients": json.dumps(digests() | {"clients": []}),
    "one key of two clients": json.dumps(digests(first=["a" * 64], second=["a" * 64])),
    "a client twice": '{"version": 1, "clients": {"first": [], "first": []}}',
    "binary": "\x00\xff",
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_file_leaves_the_keys_before_it_and_is_reported_once(keys, path, warned, case):
    path.write_text(BROKEN[case], encoding="latin-1")

    assert [owner(keys, bearer=key) for key in ("one", "two", "one")] == ["first", "second", "first"]
    assert len(warned) == 1
    assert f"{path} is not used, the keys before it stay valid: " in warned[0]
    write_keys(path, second=["new"])
    assert (owner(keys, bearer="new"), owner(keys, bearer="one")) == ("second", "key-unknown")


def test_a_file_that_is_gone_leaves_the_keys_before_it(keys, path, warned):
    path.unlink()

    assert (owner(keys, bearer="one"), owner(keys, bearer="one")) == ("first", "first")
    assert len(warned) == 1


@pytest.mark.parametrize("content", [None, "{", '{"version": 1, "clients": {"first": ["x"]}}'])
def test_without_a_file_that_can_be_used_there_is_no_start(tmp_path, content):
    path = Path(tmp_path / "keys.json")
    if content is not None:
        path.write_text(content)

    with pytest.raises(Misconfigured, match=r"keys\.json"):
        Keys(path, CLIENTS, pytest.fail)


def test_a_key_of_a_client_that_the_configuration_does_not_have_is_no_key(path):
    keys = Keys(path, {"first": CLIENTS["first"]}, pytest.fail)

    assert (owner(keys, bearer="one"), owner(keys, bearer="two")) == ("first", "key-unknown")


def test_without_keys_every_request_is_the_only_clients():
    keys = Keys(None, {"first": CLIENTS["first"]}, pytest.fail)

    assert (owner(keys), owner(keys, bearer="anything")) == ("first", "first")
