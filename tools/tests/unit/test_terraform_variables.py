"""Keys of a variable's value that its type does not have."""

from __future__ import annotations

import pytest

from corral.terraform.variables import dropped

LIMITS = {"load_seconds": 300, "drain_seconds": 60}


@pytest.mark.parametrize(
    ("given", "converted", "sentences"),
    [
        ({"load_seconds": 3}, LIMITS, []),
        ({"laod_seconds": 3}, LIMITS, ["v has no key laod_seconds; its keys are: drain_seconds, load_seconds."]),
        ({"a": {"b": 1}}, {"a": {"c": None}}, ["v.a has no key b; its keys are: c."]),
        ([{"a": 1}, {"b": 2}], [{"a": 1}, {"a": None}], ["v[1] has no key b; its keys are: a."]),
        ({"team": "home"}, {"team": "home"}, []),
        ({"a": {"b": 1}}, {"a": None}, []),
        (["b", "a"], ["a", "b"], []),
        ([], [], []),
        (None, None, []),
    ],
    ids=["known", "unknown", "within-another", "in-a-list", "of-a-map", "of-null", "of-a-set", "empty", "null"],
)
def test_each_key_that_its_type_does_not_have_is_named_with_its_place(given, converted, sentences):
    assert list(dropped(given, converted, "v")) == sentences
