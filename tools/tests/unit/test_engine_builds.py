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
from corral.vram.prediction import Bytes
from corral.vram.rules import engine_drift

GOLDEN = json.loads((Path(__file__).parents[1] / "fixtures" / "vram-golden-b11549.json").read_text())["models"]
MIB = 1 << 20


def measured(number, lacks=(), models=None, projectors=None):
    """A build; sizes in MiB."""
    counted = [sizes and {"one": tuple(size * MIB for size in sizes)} for sizes in (models, projectors)]
    facts = {"build": f"b{number}", "wheel": f"1.{number}", "lacks": lacks}
    return Measured(**facts, gpu_bytes=counted[0], projector_bytes=counted[1])


def gpu(models=0, projector=0):
    return Bytes(weights=models * MIB, context=0, compute=0, projector=projector * MIB)


@pytest.fixture
def some_builds(monkeypatch):
    """b100, b200 and b300 with bytes, b50 and b400 with flags alone; b200 has no projectors."""
    found = (
        measured(50, lacks=("new", "newer")),
        measured(100, ("new", "newer"), (100, 1000), (50,)),
        measured(200, ("newer",), (110, 1000)),
        measured(300, (), (90, 1010), (40,)),
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
    found = apart("b300", "b100")

    assert (found.model.growth, found.model.least_mib, found.model.most_mib) == (Fraction(10, 90), -10, 10)
    assert (found.projector.growth, found.projector.least_mib, found.projector.most_mib) == (Fraction(10, 40), 10, 10)
    assert found.model.measured == found.projector.measured == ("b100",)


def test_a_build_between_two_measured_ones_is_as_bad_as_the_worse(some_builds):
    found = apart("b300", "b150")

    assert (found.model.growth, found.model.measured) == (Fraction(20, 90), ("b100", "b200"))
    assert (found.projector.growth, found.projector.measured) == (Fraction(10, 40), ("b100", "b300"))


@pytest.mark.parametrize("runs", ["b99", "b350", "b401"])
def test_a_build_outside_of_the_measured_ones_is_as_bad_as_any_two_of_them(some_builds, runs):
    found = apart("b300", runs)

    assert (found.model.growth, found.model.measured) == (Fraction(20, 90), ())
    assert f"golden command lines of {runs} were not measured" in found.sentence


def test_a_build_that_takes_less_makes_no_seat_smaller(monkeypatch):
    less = measured(100, (), (50, 500), (5,)), measured(300, (), (90, 1010), (5,))
    monkeypatch.setattr(builds, "table", lambda: less)
    monkeypatch.setattr(rules, "LLAMA_CPP_BUILD", "b300")

    assert apart("b300", "b100").model.growth == 0
    assert engine_drift(gpu(100, 100), "b100") is None


def test_the_row_is_the_growth_of_the_model_and_of_its_projector_rounded_up(some_builds, monkeypatch):
    monkeypatch.setattr(rules, "LLAMA_CPP_BUILD", "b300")

    row = engine_drift(gpu(900, 80), "b100")
    assert (row.name, row.bytes) == ("engine-drift", (100 + 20) * MIB)
    assert "the image runs llama.cpp b100, and b300 predicted the seats" in row.source
    assert engine_drift(gpu(900), "b100").bytes == 100 * MIB
    assert engine_drift(Bytes(weights=10, context=0, compute=0, projector=0), "b100").bytes == 2


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
    lines = {model: len(cells) for model, cells in GOLDEN.items()}
    assert len(table()) >= 10
    for one in table():
        assert set(one.lacks) <= known
    for kind in ("gpu_bytes", "projector_bytes"):
        counted = [getattr(one, kind) for one in table() if getattr(one, kind) is not None]
        assert len(counted) >= 4
        wanted = {name: len(row) for name, row in getattr(pinned, kind).items()}
        assert wanted == (lines if kind == "gpu_bytes" else dict.fromkeys(wanted, 3))
        assert all({name: len(row) for name, row in one.items()} == wanted for one in counted)
