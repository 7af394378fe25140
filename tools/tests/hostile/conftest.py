"""Bounds for what these tests do in their own process; the commands that they run have limits of their own."""

from __future__ import annotations

import pytest

from tests.support.hostile import within


@pytest.fixture(autouse=True)
def bounded():
    """The test takes 20 processor seconds and 512 MiB more than any before it, at the most."""
    with within(memory_mib=512, cpu_seconds=20):
        yield
