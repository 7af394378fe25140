"""The versions of adapters that were chosen: swapping, rolling back, and what is left of a file."""

from __future__ import annotations

import pytest

from corral import versions
from corral.errors import Refused
from corral.versions import LocalVersions

NAME, VERSIONS = "m:sql", ("v3", "v2", "v1")


@pytest.fixture
def store(tmp_path):
    return LocalVersions(tmp_path / "state" / "adapters" / "versions.json")


def serving(store, usable=VERSIONS):
    return versions.serving(store.read(), NAME, usable)


def test_the_first_serves_until_another_is_chosen(store):
    assert serving(store) == "v3"
    assert versions.swap(store, NAME, VERSIONS, "v1") == "v3"
    assert serving(store) == "v1"


def test_a_rollback_goes_back_swap_by_swap_and_then_no_further(store):
    for version in ("v2", "v1"):
        versions.swap(store, NAME, VERSIONS, version)
    assert [versions.rollback(store, NAME, VERSIONS) for _ in range(2)] == [("v1", "v2"), ("v2", "v3")]
    with pytest.raises(Refused, match="No other version of m:sql served before v3"):
        versions.rollback(store, NAME, VERSIONS)


def test_what_serves_already_is_no_swap(store):
    with pytest.raises(Refused, match="is served by v3 already"):
        versions.swap(store, NAME, VERSIONS, "v3")


def test_a_version_that_is_gone_is_neither_served_nor_gone_back_to(store):
    for version in ("v2", "v1"):
        versions.swap(store, NAME, VERSIONS, version)
    left = ("v3", "v2")
    assert serving(store, left) == "v2"
    assert versions.before(store.read(), NAME, left) == "v3"
    assert versions.rollback(store, NAME, left) == ("v2", "v3")


def test_a_new_first_version_does_not_serve_where_one_was_chosen(store):
    versions.swap(store, NAME, VERSIONS, "v2")
    assert serving(store, ("v4", *VERSIONS)) == "v2"


def test_the_choices_of_one_adapter_leave_those_of_another(store):
    versions.swap(store, NAME, VERSIONS, "v2")
    versions.swap(store, "m:art", ("a", "b"), "b")
    assert dict(store.read()) == {NAME: ["v2", "v3"], "m:art": ["b", "a"]}


@pytest.mark.parametrize("text", ["", "{", "[]", '{"version": 1}', '{"version": 1, "chosen": {"m:sql": [1]}}'])
def test_a_file_that_is_something_else_is_refused_with_the_command_that_removes_it(store, tmp_path, text):
    versions.swap(store, NAME, VERSIONS, "v2")
    file = tmp_path / "state" / "adapters" / "versions.json"
    file.write_text(text)
    for act in (store.read, lambda: versions.swap(store, NAME, VERSIONS, "v1")):
        with pytest.raises(Refused) as caught:
            act()
        assert f"rm {file}" in caught.value.next_step
    assert file.read_text() == text
