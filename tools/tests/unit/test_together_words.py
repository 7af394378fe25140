"""Which models run together, in words."""

from __future__ import annotations

import pytest

from corral.lock import together


@pytest.mark.parametrize(
    ("sets", "words", "several"),
    [
        ([["a"]], "a", False),
        ([["a"], ["b"]], "one of a, b", False),
        ([["a", "b"]], "a + b", True),
        ([["a", "c"], ["b"]], "a + c or b", True),
        ([[f"m{number}", "x"] for number in range(6)], "m0 + x or m1 + x or m2 + x or m3 + x or 2 more", True),
    ],
)
def test_the_sets_of_a_group_are_words(sets, words, several):
    assert together.words(sets) == words
    assert together.several(sets) is several


def test_what_stands_for_an_id_is_shown():
    assert together.words([["a", "b"]], {"b": "b (declared)"}) == "a + b (declared)"
