"""Builds of llama.cpp: read from a tag, and how far they are apart by what was measured."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import pytest

from corral.catalog import flags
from corral.engine import builds
from corral.engine.builds import Measured, apart, in_tag, lacking, table
from corral.engine.embedded import LLAMA_CPP_BUILD, WHEEL_VERSION
from corral.vram import rules
from corral.vram.rules import engine_drift

GOLDEN = json.loads((Path(__file__).parents[1] / "fixtures" / "vram-golden-b11549.json").read_text())["models"]
MIB = 1 << 20


def measured(number, lacks=(), **gpu_bytes):
    counted = {name: tuple(size * MIB for size in sizes) for name, sizes in gpu_bytes.items()} or None
    return Measured(build=f"b{number}", wheel=f"1.{number}", lacks=lacks, gpu_bytes=counted)


@pytest.fixture
def some_builds(monkeypatch):
    """b100, b200 and b300 with bytes, b50 and b400 with flags alone."""
    found = (
        measured(50, lacks=("new", "newer")),
        measured(100, lacks=("new", "newer"), m=(100, 1000)),
        measured(200, lacks=("newer",), m=(110, 1000)),
        measured(300, m=(90, 1010)),
        measured(400),
    )
    monkeypatch.setattr(builds, "table", lambda: found)


@pytest.mark.parametrize(
    ("tag", "build"),
    [
        ("server-cuda-b11549", "b11549"),
        ("v252-cuda-b10775-non-root", "b10775"),
        ("b9713", "b9713"),
        ("server-cuda", None),
        ("v252", None),
        ("2.11-alpine", None),
        ("b10775-with-b11549", None),
        ("lab10775", None),
        ("b107750000", None),
    ],
)
def test_the_build_is_read_from_a_tag_that_names_exactly_one(tag, build):
    assert in_tag(tag) == build


def test_one_build_is_not_apart_from_itself():
    assert apart(LLAMA_CPP_BUILD, LLAMA_CPP_BUILD) is None


def test_a_measured_build_is_compared_as_it_was_measured(some_builds):
    found = apart("b200", "b300")

    assert (found.growth, found.least_mib, found.most_mib) == (Fraction(1, 100), -20, 10)
    assert found.measured == ("b300",)


def test_a_build_between_two_measured_ones_is_as_bad_as_the_worse(some_builds):
    assert apart("b300", "b150").growth == Fraction(20, 90)
    assert apart("b300", "b150").measured == ("b100", "b200")


@pytest.mark.parametrize("runs", ["b99", "b350", "b401"])
def test_a_build_outside_of_the_measured_ones_is_as_bad_as_any_two_of_them(some_builds, runs):
    found = apart("b300", runs)

    assert (found.growth, found.measured) == (Fraction(20, 90), ())
    assert "was not measured" in found.sentence


def test_a_build_that_takes_less_makes_no_seat_smaller(some_builds, monkeypatch):
    monkeypatch.setattr(builds, "table", lambda: (measured(100, m=(50, 500)), measured(300, m=(90, 1010))))

    assert apart("b300", "b100").growth == 0
    monkeypatch.setattr(rules, "LLAMA_CPP_BUILD", "b300")
    assert engine_drift(100 * MIB, "b100") is None


def test_the_row_of_the_drift_is_the_growth_in_bytes_rounded_up(some_builds, monkeypatch):
    monkeypatch.setattr(rules, "LLAMA_CPP_BUILD", "b200")

    row = engine_drift(1000 * MIB + 1, "b300")

    assert (row.name, row.bytes) == ("engine-drift", 10 * MIB + 1)
    assert "the image runs llama.cpp b300, and b200 predicted the seats" in row.source


def test_a_flag_is_lacking_where_a_build_next_to_it_lacks_it(some_builds):
    assert lacking("b100", ["new", "old"]) == {"new": "b100 does not know it"}
    assert lacking("b60", ["new"]) == {"new": "b50 and b100 do not know it"}
    assert lacking("b150", ["new"]) == {"new": "b100 does not know it yet, and b150 may not either"}
    assert lacking("b1", ["new"]) == {"new": "b50 does not know it"}
    assert lacking("b350", ["new", "newer"]) == {}
    assert lacking("b9999", ["new", "newer"]) == {}


def test_the_table_has_the_pinned_build_and_its_golden_bytes():
    [pinned] = [one for one in table() if one.build == LLAMA_CPP_BUILD]

    assert pinned.wheel == WHEEL_VERSION
    assert not {flag.name for flag in flags.table()} & set(pinned.lacks)
    assert pinned.gpu_bytes == {
        model: tuple(sum(cell["gpu"].values()) for cell in cells) for model, cells in GOLDEN.items()
    }


def test_every_build_of_the_table_lacks_only_what_another_has_and_has_every_golden_line():
    [pinned] = [one for one in table() if one.build == LLAMA_CPP_BUILD]
    known = {flag.name for flag in flags.table()} | set(pinned.lacks)
    counted = [one for one in table() if one.gpu_bytes is not None]

    assert len(table()) == 10
    assert len(counted) == 8
    for one in table():
        assert set(one.lacks) <= known
    for one in counted:
        assert {model: len(row) for model, row in one.gpu_bytes.items()} == {
            model: len(cells) for model, cells in GOLDEN.items()
        }
