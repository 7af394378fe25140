"""The flight recorder: what is written is read back, survives a torn write and a restart, and stays in its bounds."""

from __future__ import annotations

import json
import shutil
import subprocess
import threading
from contextlib import closing
from unittest.mock import Mock

import pytest

from corral.exporter import account, recorder
from corral.exporter.llama_swap import Change
from corral.exporter.recorder import Failure
from corral.exporter.yields import Yielded
from corral.timeline import recording
from tests.support.kernel import modes, umask
from tests.support.recorded import BEGAN, PROMISES, SILENT, Scene, reading, request

CALM = reading(immich_ml=2040, frigate=1900)
GROWN = reading(immich_ml=10726, frigate=1900)


@pytest.fixture
def scene(tmp_path):
    with closing(Scene(tmp_path / "records")) as found:
        yield found


def read(scene):
    return recording.read(scene.lines())


def test_a_moment_has_the_account_the_states_and_the_failures_of_its_time(scene):
    scene.sample(CALM, models={"chat": "ready"})
    failed = [request(500, load_failure="process-ended")] * 3 + [request(429), request()]
    scene.sample(GROWN, models={}, requests=failed)

    first, second = read(scene).moments

    assert (first.at, second.at) == (BEGAN, BEGAN + recorder.EVERY_S)
    assert first.accounts == account.of(PROMISES, CALM)
    assert second.accounts == account.of(PROMISES, GROWN)
    assert (first.models, second.models) == ({"chat": "ready"}, {})
    assert (first.is_start, second.is_start) == (True, False)
    assert first.failures == ()
    assert second.failures == (Failure("chat", 429, "", 1), Failure("chat", 500, "process-ended", 3))


def test_what_is_unknown_is_recorded_as_that(scene):
    scene.sample(SILENT, models=None)
    (moment,) = read(scene).moments
    assert [one.unknown for one in moment.accounts] == ["hanging"]
    assert moment.models is None


def test_a_request_is_a_failure_once_and_none_of_before_the_start_is(scene):
    scene.requests = (request(500),)
    scene.sample()
    scene.sample(requests=[request(503)])
    scene.sample(models=None)
    scene.sample(models={})
    assert [[one.status for one in moment.failures] for moment in read(scene).moments] == [[], [503], [], []]


def test_a_model_that_the_lock_does_not_have_has_no_name_of_its_own(scene):
    scene.sample()
    scene.sample(models={"x" * 1000: "ready"}, requests=[request(404, model="y" * 1000)])
    moment = read(scene).moments[-1]
    assert (moment.models, moment.failures) == ({"(other)": "ready"}, (Failure("(other)", 404, "", 1),))


def test_a_sample_that_is_the_same_is_a_line_with_only_its_time(scene):
    scene.sample(CALM, times=4)
    head, first, *same = map(json.loads, scene.lines())
    assert ("promises" in head, "reading" in first) == (True, True)
    assert [sorted(line) for line in same] == [["at", "version"]] * 3
    assert {one.accounts for one in read(scene).moments} == {account.of(PROMISES, CALM)}
    assert len(read(scene).moments) == 4


def test_a_restart_goes_on_in_the_same_segment_with_its_own_promises(scene):
    scene.sample(CALM)
    scene.options["seal"] = "1" * 64
    scene.restart()
    scene.sample(CALM)
    moments = read(scene).moments
    assert len(recorder.segments(scene.folder)) == 1
    assert [(one.seal[0], one.is_start) for one in moments] == [("0", True), ("1", True)]
    assert moments[0].accounts == moments[1].accounts


def test_a_write_that_was_torn_anywhere_costs_that_line_alone(scene):
    scene.sample(CALM, times=2)
    (path,) = recorder.segments(scene.folder)
    kept = path.read_bytes()
    scene.sample(GROWN)
    torn = path.read_bytes()[len(kept) :]
    assert torn.count(b"\n") == 1
    for size in range(1, len(torn) - 1):
        path.write_bytes(kept + torn[:size])
        scene.restart()
        scene.sample(CALM)
        found = read(scene)
        assert found.damaged == 1
        assert len(found.moments) == 3
        assert {one.accounts for one in found.moments} == {account.of(PROMISES, CALM)}


def test_after_a_damaged_line_nothing_is_taken_for_the_same_as_before(scene):
    scene.sample(CALM)
    scene.sample(GROWN, times=3)
    (path,) = recorder.segments(scene.folder)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:2], b'{"version": 2, "at": 1}\n', *lines[3:]]))
    found = read(scene)
    assert (len(found.moments), found.damaged) == (1, 1)


@pytest.mark.parametrize(
    "line",
    [
        b"\x00" * 40,
        b"[]",
        b'{"version": 1}',
        b'{"version": 1, "at": "soon"}',
        b'{"version": 1, "at": 1.0, "more": 1}',
        b'{"version": 1, "at": 1.0, "reading": {"cards": [{}]}, "models": {}, "failures": []}',
        b'{"version": 1, "at": 1.0, "seal": "", "promises": {"t4": {}}, "is_start": true}',
    ],
)
def test_a_line_that_the_recorder_did_not_write_is_counted_and_left_out(scene, line):
    scene.sample(CALM)
    found = recording.read([line, *scene.lines(), line])
    assert (len(found.moments), found.damaged) == (1, 2)


def test_a_dozen_holders_that_all_change_leave_seven_days(scene):
    names = {f"a_program_with_a_name_{at}": 100 + at for at in range(10)}
    scene.sample(reading(immich_ml=2040, frigate=1900, **names), models={"chat": "ready"})
    *_, line = scene.lines()
    assert len(line) < 1600
    assert 7 * 24 * 3600 / recorder.EVERY_S * 1600 < recorder.MOST_BYTES - 2 * recorder.SEGMENT_BYTES


def test_programs_without_number_are_one_beside_the_largest(scene):
    programs = {f"program_{at:03}": 300 - at for at in range(200)}
    scene.sample(reading(immich_ml=2040, frigate=1900, **programs, free=1000))
    (moment,) = read(scene).moments
    rows = {row.name: row.held for row in moment.accounts[0].rows if row.kind == "process"}
    assert len(rows) == 21
    assert rows["program-000"] == 300 << 20
    assert rows["(other)"] == sum(300 - at for at in range(20, 200)) << 20
    assert moment.accounts[0].others == 14360 << 20


def test_all_segments_together_are_bounded_and_the_newest_stay(scene, monkeypatch):
    monkeypatch.setattr(recorder, "SEGMENT_BYTES", 1 << 12)
    monkeypatch.setattr(recorder, "MOST_BYTES", 1 << 16)
    largest = 0
    for at in range(300):
        scene.sample(reading(immich_ml=1000 + at))
        largest = max(largest, sum(path.stat().st_size for path in recorder.segments(scene.folder)))
    moments = read(scene).moments
    assert (1 << 16) / 2 < largest <= 1 << 16
    assert 50 < len(moments) < 300
    assert [one.at for one in moments] == [scene.now - recorder.EVERY_S * at for at in range(len(moments), 0, -1)]
    (first, *_) = recorder.segments(scene.folder)
    assert int(first.stem) > 1


def test_only_the_segments_of_the_time_are_opened(scene, monkeypatch):
    monkeypatch.setattr(recorder, "SEGMENT_BYTES", 1)
    scene.sample(CALM, times=10)
    assert len(recorder.segments(scene.folder)) == 10

    def opened(since):
        streams = recorder.open_since(scene.folder, since)
        names = [int(one.name.rpartition("/")[2].partition(".")[0]) for one in streams]
        for one in streams:
            one.close()
        return names

    assert opened(BEGAN) == [*range(1, 11)]
    assert opened(0) == [*range(1, 11)]
    assert opened(BEGAN + 8.5 * recorder.EVERY_S) == [9, 10]
    assert opened(scene.now + 1e6) == [10]


def test_one_folder_has_one_recorder_until_that_one_ends(scene):
    scene.sample(CALM)
    other = scene.new()
    with pytest.raises(OSError, match="another exporter records there"):
        other.record()
    scene.recorder.close()
    other.record()
    other.close()
    assert len(read(scene).moments) == 2


def test_a_folder_that_cannot_be_written_is_one_message_and_recorded_into_later(scene, capsys, monkeypatch):
    monkeypatch.setattr(recorder, "EVERY_S", 0.01)
    scene.folder.write_text("a file in the place of the folder")
    tries, written = [], threading.Event()
    record = scene.recorder.record

    def counted():
        tries.append(1)
        if len(tries) == 3:
            scene.folder.unlink()
        record()
        written.set()

    scene.recorder.record = counted
    with scene.recorder.running():
        assert written.wait(60)
    assert capsys.readouterr().err.count("Nothing is recorded in") == 1
    assert read(scene).moments


@pytest.mark.parametrize("place", ["records", "records/of a node"])
def test_a_file_in_the_place_of_the_folder_has_a_command_that_moves_it_away(tmp_path, place):
    taken = tmp_path / "records"
    taken.write_text("a file")
    with closing(Scene(tmp_path / place)) as scene:
        with pytest.raises(OSError, match="A folder belongs there: mv ") as refused:
            scene.sample(CALM)
        subprocess.run(str(refused.value).partition(": ")[2], shell=True, check=True)
        scene.sample(CALM)
        assert read(scene).moments
    assert (tmp_path / "records.old").read_text() == "a file"


def test_whatever_fails_costs_one_sample(scene, capsys, monkeypatch):
    monkeypatch.setattr(recorder, "EVERY_S", 0.01)
    errors, written = [RuntimeError("a test"), IndexError()], threading.Event()
    record = scene.recorder.record

    def failing():
        if errors:
            raise errors.pop()
        record()
        written.set()

    scene.recorder.record = failing
    with scene.recorder.running():
        assert written.wait(60)
    assert capsys.readouterr().err.count("Nothing is recorded") == 2
    assert read(scene).moments


@pytest.mark.parametrize("removed", ["folder", "segments"])
def test_records_that_are_removed_while_it_runs_are_begun_anew(scene, removed):
    scene.sample(CALM, times=2)
    if removed == "folder":
        shutil.rmtree(scene.folder)
    else:
        for path in recorder.segments(scene.folder):
            path.unlink()
    scene.sample(GROWN, times=2)
    assert [one.accounts for one in read(scene).moments] == [account.of(PROMISES, GROWN)] * 2
    with pytest.raises(OSError, match="another exporter records there"):
        scene.new().record()


def test_a_loop_of_restarts_stays_in_the_bounds(scene, monkeypatch):
    monkeypatch.setattr(recorder, "SEGMENT_BYTES", 1 << 12)
    monkeypatch.setattr(recorder, "MOST_BYTES", 1 << 16)
    for _ in range(300):
        scene.sample(CALM)
        scene.restart()
    assert sum(path.stat().st_size for path in recorder.segments(scene.folder)) <= 1 << 16
    assert len(recorder.segments(scene.folder)) > 8


def test_a_disk_that_was_full_is_no_start_and_costs_no_failure(scene, monkeypatch):
    scene.sample(CALM)
    write = recorder._write

    def full(*_):
        raise OSError("a test")

    monkeypatch.setattr(recorder, "_write", full)
    for _ in range(3):
        with pytest.raises(OSError, match="a test"):
            scene.sample(requests=[request(500)])
    monkeypatch.setattr(recorder, "_write", write)
    scene.sample(requests=[request(500)])
    first, last = read(scene).moments
    assert (first.is_start, last.is_start) == (True, False)
    assert last.failures == (Failure("chat", 500, "", 4),)


def sample_on_full_disk(scene, monkeypatch):
    with monkeypatch.context() as broken:
        broken.setattr(recorder, "_write", Mock(side_effect=OSError("a test")))
        with pytest.raises(OSError, match="a test"):
            scene.sample()


def test_loads_of_while_the_disk_was_full_are_written_when_they_are_followed_again(scene, monkeypatch):
    scene.changes = ()
    scene.sample(CALM)
    loaded = tuple(Change(at, BEGAN + at, "chat", 1.0, "cold") for at in range(1, 4))
    scene.changes = loaded[:2]
    sample_on_full_disk(scene, monkeypatch)
    scene.changes = None
    scene.sample()
    scene.changes = loaded
    scene.sample(times=2)
    assert [one.changes for one in read(scene).moments] == [(), None, loaded, ()]


def test_a_disk_that_stays_full_keeps_no_more_than_is_listed(scene, monkeypatch):
    taken = [(YIELDED,) * 600] * 3
    scene.options["take_yields"] = lambda: taken.pop() if taken else ()
    scene.restart()
    scene.changes = ()
    scene.sample(CALM)
    for first in (1, 900, 1800):
        scene.changes = tuple(Change(at, BEGAN + at, "chat") for at in range(first, first + 900))
        sample_on_full_disk(scene, monkeypatch)
    scene.sample()
    last = read(scene).moments[-1]
    assert [one.number for one in last.changes] == [*range(2700 - 999, 2700)]
    assert len(last.yields) == 999


YIELDED = Yielded("t4", "chat", "tenant-waits", "immich-ml", 100, 200, 61.5)


def test_a_model_that_has_yielded_is_in_one_moment_also_after_a_disk_that_was_full(scene, monkeypatch):
    taken = [(YIELDED,), (YIELDED, YIELDED)]
    scene.options["take_yields"] = lambda: taken.pop() if taken else ()
    scene.restart()
    with monkeypatch.context() as broken:
        broken.setattr(recorder, "_write", Mock(side_effect=OSError("a test")))
        with pytest.raises(OSError, match="a test"):
            scene.sample(CALM)
    scene.sample(CALM, times=3)
    assert [moment.yields for moment in read(scene).moments] == [(YIELDED,) * 3, (), ()]


def test_a_line_of_before_models_yielded_has_none(scene):
    scene.sample(CALM)
    lines = [line.replace(b',"yields":[]', b"") for line in scene.lines()]
    assert b"yields" not in b"".join(lines)
    assert recording.read(lines).moments == read(scene).moments


def test_an_exporter_that_does_not_record_serves_no_others_records(scene):
    scene.sample(CALM)
    other = scene.new()
    assert other.open_since(0) == []
    (stream,) = scene.recorder.open_since(0)
    stream.close()


def test_its_files_are_closed_to_other_users(scene):
    with umask(0o022):
        scene.sample(CALM)
    assert modes(scene.folder) == {"folders": {0o700}, "files": {0o600}}


def test_a_llama_swap_that_need_not_run_is_no_fault(scene):
    scene.options |= {"find_llama_swap": lambda: None, "is_expected": lambda: False}
    scene.restart()
    scene.sample()
    scene.options |= {"is_expected": lambda: True}
    scene.restart()
    scene.sample()
    assert [one.models for one in read(scene).moments] == [{}, None]


def test_a_llama_swap_that_is_not_read_has_a_state_of_its_own(scene):
    scene.options["find_llama_swap"] = None
    scene.restart()
    scene.sample(times=2)
    assert [(one.models, one.changes) for one in read(scene).moments] == [("not-read", None)] * 2


def test_an_alertmanager_that_does_not_answer_is_one_message(scene, capsys):
    scene.alerts = None
    scene.sample(times=3)
    assert capsys.readouterr().err == "exporter: No alerts are recorded: a test\n"
    assert [one.alerts for one in read(scene).moments] == [None] * 3
