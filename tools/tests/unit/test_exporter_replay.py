"""A new exporter goes on with the excesses that the one before it has recorded, where nothing is between the two."""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import asdict

import pytest

from corral.exporter import account, recorder, replay
from tests.support.recorded import BEGAN, PROMISES, SILENT, Scene, reading

CALM = reading(immich_ml=2040)
GROWN = reading(immich_ml=10726)
EVERY_S = recorder.EVERY_S


@pytest.fixture
def scene(tmp_path):
    with closing(Scene(tmp_path / "records")) as found:
        yield found


def since(scene, now=GROWN, *, after_s=EVERY_S):
    """Since when immich-ml is over its promise, by an exporter that starts *after_s* seconds after the last sample."""
    at = scene.now - EVERY_S + after_s
    (found,) = replay.continued(scene.folder, at).date(account.of(PROMISES, now), at)
    return next(row.over_since for row in found.rows if row.name == "immich-ml")


def test_an_excess_has_the_time_of_the_first_sample_that_showed_it(scene):
    scene.sample(CALM, times=2)
    scene.sample(GROWN, times=3)
    scene.sample(SILENT)
    scene.sample(GROWN)
    assert since(scene) == BEGAN + 2 * EVERY_S


def test_the_restarts_before_are_no_break(scene):
    scene.sample(GROWN)
    scene.restart()
    scene.sample(GROWN)
    assert since(scene) == BEGAN


def test_an_excess_that_had_ended_begins_anew(scene):
    scene.sample(GROWN)
    scene.sample(CALM)
    assert since(scene) == scene.now
    assert since(scene, CALM) is None


@pytest.mark.parametrize("after_s", [4 * EVERY_S + 1, -1])
def test_an_exporter_that_was_away_or_whose_clock_was_set_back_does_not_know(scene, after_s):
    scene.sample(GROWN)
    assert since(scene, after_s=after_s) == scene.now - EVERY_S + after_s


def test_a_gap_in_the_records_is_a_break(scene):
    scene.sample(GROWN)
    scene.now += 3600
    scene.sample(GROWN)
    assert since(scene) == BEGAN + EVERY_S + 3600


DAMAGED = {
    "a list": b"[]",
    "nothing": b"{}",
    "a word": b'{"at": "x"}',
    "no reading": b'{"at": 1780000021.0, "reading": {}}',
    "torn": b'{"version": 1, "at"',
    "deep": b"[" * 100_000,
    "a number of 400 digits": b'{"at": %s}' % (b"9" * 400),
    "no number": b'{"at": NaN}',
    "no text": b"\xff\xfe",
    "a size that is a word": json.dumps(
        {"at": BEGAN, "reading": asdict(reading(frigate=1)) | {"certain": []}}, default=str
    )
    .replace('"held": 1048576', '"held": "x"')
    .encode(),
}


@pytest.mark.parametrize("line", DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_line_is_counted_and_costs_itself_and_its_repetitions_alone(scene, capsys, line):
    scene.sample(GROWN, times=7)
    (path,) = recorder.segments(scene.folder)
    head, first, *same = path.read_bytes().splitlines()
    path.write_bytes(b"\n".join([head, line, first, *same]))
    assert since(scene) == BEGAN
    assert capsys.readouterr().err == "exporter: 1 line of the records is damaged, and left out.\n"
    path.write_bytes(b"\n".join([head, line, first, line, *same]))  # which of them are the same is unknown
    assert since(scene) == scene.now
    assert capsys.readouterr().err == "exporter: 2 lines of the records are damaged, and left out.\n"
    path.write_bytes(b"\n".join([line, head, first, *same]))
    assert since(scene) == BEGAN


def test_no_record_is_no_excess(scene):
    assert since(scene) == scene.now
