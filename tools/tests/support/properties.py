"""Settings of the property tests: the same examples in every run, as many as a second or two allows."""

from __future__ import annotations

from hypothesis import settings


def examples(count=300):
    """A decorator for a test with ``given``: *count* examples, derived from the test itself and kept nowhere."""
    return settings(max_examples=count, derandomize=True, database=None, deadline=None)
