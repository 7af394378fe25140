"""Events as words: lines, sentences, JSON."""

import json

import pytest

from corral.agent import progress
from corral.agent.progress import Downloading, Event, Finished, Hashing, Lines, Planned, Retrying, as_json, describe


def test_every_event_is_json_under_its_own_name():
    assert json.loads(as_json(Retrying("x", "the connection was reset", 0.5))) == {
        "event": "retrying",
        "name": "x",
        "reason": "the connection was reset",
        "wait_seconds": 0.5,
        "patience_seconds": None,
    }
    kinds = [kind for kind in vars(progress).values() if isinstance(kind, type) and issubclass(kind, Event)]
    assert len(kinds) > 8
    assert json.loads(as_json(progress.StartedOver("x", "a", "b")))["event"] == "started-over"


def test_progress_is_a_line_every_few_seconds_with_rate_and_time_left(monkeypatch):
    now, lines = [100.0], []
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    report = Lines(lines.append)
    for second in range(13):
        report(Downloading("m/x", "a" * 64, 2_000_000_000 + second * 100_000_000, 10_000_000_000, second * 100_000_000))
        now[0] += 1
    assert lines == [
        "m/x: 10.0 GB to fetch, 2.0 GB of it are here already",
        "m/x: fetching, 25 %, 100.0 MB/s, 1 min 15 s left",
        "m/x: fetching, 30 %, 100.0 MB/s, 1 min 10 s left",
    ]


def test_with_several_files_a_line_also_has_the_progress_of_all(monkeypatch):
    now, lines = [100.0], []
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    report = Lines(lines.append)
    report(Planned(files=2, bytes_total=4_000_000_000, bytes_missing=4_000_000_000, bytes_free=9e9))
    for second in range(6):
        report(Downloading("m/x", "a" * 64, second * 100_000_000, 1_000_000_000, second * 100_000_000))
        now[0] += 1
    assert lines[-1] == "m/x: fetching, 50 %, 100.0 MB/s, 5.0 s left; of all, 12 %, 35 s left"


def test_while_nothing_arrives_the_reason_is_written_once_for_each_try_and_no_progress(monkeypatch):
    now, lines = [100.0], []
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    report = Lines(lines.append)
    for tick in range(60):
        report(Downloading("m/x", "a" * 64, 0, 1_000_000_000, 0))
        if tick % 20 == 0:
            for _connection in range(8):
                report(Retrying("m/x", "hub: connection refused", 4.0, 60.0 - tick))
        now[0] += 0.5
    assert lines == [
        "m/x: 1.0 GB to fetch",
        "m/x: hub: connection refused; again in 4.0 s; giving up in 1 min 00 s unless bytes arrive",
        "m/x: hub: connection refused; again in 4.0 s; giving up in 40 s unless bytes arrive",
        "m/x: hub: connection refused; again in 4.0 s; giving up in 20 s unless bytes arrive",
    ]


def test_the_plan_names_free_space_and_what_needs_it():
    planned = Planned(files=2, bytes_total=7_000_000_000, bytes_missing=5_000_000_000, bytes_free=70_000_000_000)
    assert describe(planned) == "2 files, 7.0 GB; 5.0 GB to fetch, 70.0 GB free"


def test_hashing_is_reported_only_when_it_takes_a_while(monkeypatch):
    now, lines = [0.0], []
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    report = Lines(lines.append)
    for second in range(6):
        report(Hashing("m/x", (second + 1) * 1_000_000_000, 10_000_000_000))
        now[0] += 1.5
    assert lines == ["m/x: checking, 50 %, 666.7 MB/s, 7.5 s left"]


def test_nothing_to_do_has_a_sentence():
    assert describe(Planned(files=1, bytes_total=5, bytes_missing=0, bytes_free=9)) == "1 file, 5 B; nothing to fetch"
    assert Finished(models=0, files=0, bytes_total=0, bytes_moved=0, seconds=0).reused == 1.0
    assert Finished(models=1, files=1, bytes_total=10, bytes_moved=20, seconds=0).reused == 0.0


@pytest.mark.parametrize(
    ("size", "expected"), [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (4.7e9, "4.7 GB"), (2e12, "2.0 TB")]
)
def test_sizes_read_well(size, expected):
    assert progress.human(size) == expected


@pytest.mark.parametrize(
    ("seconds", "expected"), [(0.44, "0.4 s"), (12.4, "12 s"), (200, "3 min 20 s"), (7500, "2 h 05 min")]
)
def test_durations_read_well(seconds, expected):
    assert progress.duration(seconds) == expected
