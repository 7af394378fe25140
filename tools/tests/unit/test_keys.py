"""Keys: how they are made, replaced and kept, and that the guard takes every change over."""

from __future__ import annotations

import hashlib
import json
import os
import stat
import threading

import pytest

from corral import keys
from corral.door.config import Client
from corral.door.keys import Keys as GuardsKeys
from corral.door.refusals import Refusal
from corral.errors import Refused
from corral.keys import OPERATOR, LocalKeys


@pytest.fixture
def store(tmp_path):
    return LocalKeys(tmp_path / "state")


@pytest.fixture
def guard(store):
    """The guard's own reading of the keys: the client of a key, None for one that it does not take."""
    clients = {
        name: Client(name, None, None, "operator" if name == OPERATOR else "client")
        for name in ("photos", "desk", OPERATOR)
    }
    keys.ensure_operator(store)
    reading = GuardsKeys(store.file, clients, pytest.fail)

    def client_of(key):
        try:
            return reading.client_of({"authorization": f"Bearer {key}"}).name
        except Refusal:
            return None

    return client_of


def test_a_key_has_its_prefix_and_256_random_bits(store):
    made = {keys.add(store, name) for name in ("photos", "desk", "tv")}

    assert len(made) == 3
    for key in made:
        assert key.startswith("corral-")
        assert len(key.removeprefix("corral-")) == 43  # base64 of 32 bytes


def test_only_the_hash_of_a_key_is_kept(store):
    key = keys.add(store, "photos")

    assert json.loads(store.file.read_text()) == {
        "version": 1,
        "clients": {"photos": [hashlib.sha256(key.encode()).hexdigest()]},
    }
    assert not [file for file in store.file.parent.iterdir() if key in file.read_text()]


def test_the_files_are_this_users_alone_whatever_the_umask_is(store):
    before = os.umask(0)
    try:
        keys.add(store, "photos")
        keys.ensure_operator(store)
    finally:
        os.umask(before)

    modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in store.file.parent.iterdir()}
    assert modes == {"keys.json": 0o600, "operator.key": 0o600, "lock": 0o600}
    assert stat.S_IMODE(store.file.parent.stat().st_mode) == 0o700


def test_a_new_key_is_valid_for_the_guard_at_once_and_a_revoked_one_is_not(store, guard):
    key = keys.add(store, "photos")
    assert guard(key) == "photos"

    keys.revoke(store, "photos", only_old=False)
    assert guard(key) is None


def test_both_keys_are_valid_until_the_old_one_is_revoked(store, guard):
    old = keys.add(store, "photos")
    new = keys.rotate(store, "photos")
    assert (guard(old), guard(new)) == ("photos", "photos")

    keys.revoke(store, "photos", only_old=True)
    assert (guard(old), guard(new)) == (None, "photos")


def test_a_second_rotation_before_the_first_has_ended_is_refused(store):
    keys.add(store, "photos")
    keys.rotate(store, "photos")

    with pytest.raises(Refused, match="the old one is still valid") as refused:
        keys.rotate(store, "photos")
    assert "corral keys revoke photos --old" in refused.value.next_step


def test_a_client_with_a_key_is_not_given_another_by_add(store):
    keys.add(store, "photos")

    with pytest.raises(Refused, match="has a key already") as refused:
        keys.add(store, "photos")
    assert refused.value.next_step == "corral keys rotate photos"


@pytest.mark.parametrize(
    ("action", "message"),
    [
        (lambda store: keys.rotate(store, "photos"), "photos has no key"),
        (lambda store: keys.revoke(store, "photos", only_old=False), "photos has no key"),
        (lambda store: keys.revoke(store, "photos", only_old=True), "photos has no key"),
        (lambda store: [keys.add(store, "photos"), keys.revoke(store, "photos", only_old=True)], "has no old key"),
        (lambda store: [keys.ensure_operator(store), keys.revoke(store, OPERATOR, only_old=False)], "corral's own"),
    ],
    ids=["rotate without a key", "revoke without a key", "old without a key", "old without a rotation", "the operator"],
)
def test_what_makes_no_sense_is_refused_and_changes_nothing(store, action, message):
    with pytest.raises(Refused, match=message):
        action(store)

    assert sum(map(len, store.read().of.values())) <= 1


def test_the_operators_key_is_made_once_and_kept(store, guard):
    key = keys.ensure_operator(store)

    assert keys.ensure_operator(store) == store.operator_key() == key
    assert guard(key) == OPERATOR


def test_a_rotated_operators_key_is_the_one_that_corral_sends(store, guard):
    old = keys.ensure_operator(store)
    new = keys.rotate(store, OPERATOR)

    assert keys.ensure_operator(store) == new
    assert (guard(old), guard(new)) == (OPERATOR, OPERATOR)
    keys.revoke(store, OPERATOR, only_old=True)
    assert (guard(old), guard(new)) == (None, OPERATOR)


@pytest.mark.parametrize("lost", ["keys.json", "operator.key"])
def test_an_operators_key_of_which_a_half_was_lost_is_made_anew(store, lost):
    old = keys.ensure_operator(store)
    (store.file.parent / lost).unlink()

    new = keys.ensure_operator(store)

    assert new != old
    assert store.read().of == {OPERATOR: (hashlib.sha256(new.encode()).hexdigest(),)}


def test_changes_at_the_same_time_lose_no_key(store):
    names = [f"client-{number}" for number in range(8)]
    threads = [threading.Thread(target=keys.add, args=(store, name)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(store.read().of) == names


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "[" * 100_000,
        '{"version": 2, "clients": {}}',
        '{"version": 1, "clients": {"photos": ["abc"]}}',
        '{"version": 1, "clients": {"photos": "' + "a" * 64 + '"}}',
    ],
    ids=["empty", "no object", "nested", "another version", "no hash", "no list"],
)
def test_a_file_of_another_form_is_refused_and_left_alone(store, text):
    store.file.parent.mkdir(parents=True)
    store.file.write_text(text)

    with pytest.raises(Refused, match="no key in it can be relied on"):
        keys.add(store, "photos")
    assert store.file.read_text() == text
