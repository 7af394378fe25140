"""The timeline of a recording: which events follow from it, how they are shown, and the post-mortem that it begins."""

from __future__ import annotations

import json
import re
import time
from contextlib import closing
from dataclasses import asdict, replace
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corral import paths
from corral.cli import timeline as command
from corral.cli.main import main
from corral.drill.small_disk import fill
from corral.errors import Refused
from corral.exporter.alertmanager import Alert
from corral.exporter.holders import Kind
from corral.exporter.llama_swap import Change
from corral.exporter.yields import Yielded
from corral.timeline import post_mortem, recording, report
from corral.timeline.events import Code
from corral.timeline.report import Timeline
from tests.repo.test_documents import HEADINGS
from tests.support.kernel import small_disk
from tests.support.recorded import BEGAN, MIB, PROMISES, SILENT, Scene, reading, request

CALM = {"immich_ml": 2040, "frigate": 1900}
GROWN = CALM | {"immich_ml": 10726}
FAILED = request(500, load_failure="process-ended")
PAIRS = {
    Code.OVER: Code.WITHIN,
    Code.FOREIGN: Code.FOREIGN_ENDED,
    Code.NO_ROOM: Code.ROOM,
    Code.UNKNOWN: Code.KNOWN,
    Code.SILENT: Code.ANSWERS,
}


@pytest.fixture
def scene(tmp_path):
    with closing(Scene(tmp_path / "records")) as found:
        yield found


def incident(scene):
    """2026-06-02, in minutes: a tenant grows while the model is not loaded, and the next loads fail."""
    scene.sample(reading(chat=6996, **CALM), models={"chat": "ready"}, times=8)
    scene.sample(reading(**CALM), models={}, times=4)
    for mib in (4700, 9200, 10726, 10726):
        scene.sample(reading(**CALM | {"immich_ml": mib}))
    scene.sample(times=4, requests=[FAILED, FAILED])
    scene.sample(reading(**CALM), times=4)


def timeline(scene, *, since=0.0, until=None):
    until = scene.now if until is None else until
    return Timeline(recording.read(scene.lines()), BEGAN + since, until, UTC)


def texts(scene, **options):
    return [one.text for one in timeline(scene, **options).events]


def test_the_incident_has_each_event_once_in_its_order(scene):
    incident(scene)
    assert texts(scene) == [
        "the exporter has started",
        "chat is loaded",
        "chat is unloaded",
        "immich-ml holds 4,700 MiB, 2,600 more than the 2,100 promised",
        "chat does not fit: 4,562 MiB short; largest excess: immich-ml",
        *["2 requests to chat failed: its load failed, the process ended before it was ready"] * 4,
        "immich-ml keeps to its promise again",
        "chat fits again",
    ]


def test_a_model_that_yielded_has_its_reason(scene):
    """The tenant whose pod waits, or the floor."""
    taken = [
        (Yielded("t4", "chat", "free-below-floor", "", 300 * MIB, 1024 * MIB, 3600.0),),
        (Yielded("t4", "chat", "tenant-waits", "immich-ml", 300 * MIB, 1600 * MIB, 90.0),),
        (Yielded("t4", "chat", "free-below-floor", "", 300 * MIB, 1024 * MIB, 14.6),),
        (),
    ]
    scene.options["take_yields"] = lambda: taken.pop() if taken else ()
    scene.restart()
    scene.sample(reading(chat=6996), models={"chat": "ready"})
    scene.sample(reading(), models={})
    scene.sample(reading(), models={}, times=2)
    scene.sample(times=2)
    found = [one for one in timeline(scene).events if one.code is Code.YIELDED]
    assert [one.text for one in found] == [
        "chat, idle for 15 s, yields: 300 MiB are free, less than the 1,024 of yield.floor_mib",
        "chat, idle for 2 min, yields: a pod of immich-ml waits; 300 MiB are free, 1,600 are left of its budget",
        "chat, idle for 60 min, yields: 300 MiB are free, less than the 1,024 of yield.floor_mib",
    ]
    assert [(one.card, one.name, one.reason) for one in found] == [
        ("t4", "chat", "free-below-floor"),
        ("t4", "chat", "tenant-waits"),
        ("t4", "chat", "free-below-floor"),
    ]
    assert texts(scene)[2:4] == [found[0].text, "chat is unloaded"]


def test_minute_by_minute_it_has_what_changed_and_like_failures_are_one_line(scene):
    incident(scene)
    assert list(report.rows(timeline(scene))) == [
        ("20:27", "4,124", "the exporter has started"),
        ("20:27", "4,124", "chat is loaded"),
        ("20:29", "11,120", "chat 6,996 → 0 MiB"),
        ("20:29", "11,120", "chat is unloaded"),
        ("20:30", "2,434", "immich-ml 2,040 → 10,726 MiB"),
        ("20:30", "2,434", "immich-ml holds 4,700 MiB, 2,600 more than the 2,100 promised"),
        ("20:30", "2,434", "chat does not fit: 4,562 MiB short; largest excess: immich-ml"),
        ("20:31", "2,434", "8 requests to chat failed: its load failed, the process ended before it was ready"),
        ("20:32", "11,120", "immich-ml 10,726 → 2,040 MiB"),
        ("20:32", "11,120", "immich-ml keeps to its promise again"),
        ("20:32", "11,120", "chat fits again"),
    ]


def test_loads_that_are_followed_are_events_however_short_they_were(scene):
    scene.changes = ()
    scene.sample(models={"chat": "ready"})
    scene.changes = (
        Change(1, BEGAN + 2, "other", 1.26, "cold"),
        Change(2, BEGAN + 9, "chat", None),
        Change(3, BEGAN + 1, "chat", cause="evicted"),
        Change(4, BEGAN + 8, "other", cause="died"),
    )
    scene.sample(times=3)
    scene.sample(models={})
    scene.changes += (Change(5, BEGAN + 40, "chat", cause="idle"),)
    scene.sample()
    assert texts(scene) == [
        "the exporter has started",
        "chat is loaded",
        "chat is unloaded: another model was asked for",
        "(other) is loaded after 1.3 s, cold",
        "(other) is unloaded: its process ended by itself",
        "chat is loaded",
        "chat is unloaded: its time to live was over",
    ]


def test_a_load_has_its_own_minute_also_where_nothing_was_recorded_then(scene):
    scene.changes = ()
    scene.sample(times=2)
    scene.now = BEGAN + 200
    scene.changes = (Change(1, BEGAN + 110, "chat", 1.0, "warm"), Change(2, BEGAN + 190, "chat", cause="yielded"))
    scene.sample()
    found = [(time, free, text) for time, free, text in report.rows(timeline(scene)) if "chat" in text]
    assert found == [
        ("20:28", "?", "chat is loaded after 1.0 s, from the page cache"),
        ("20:30", "15,060", "chat is unloaded: a neighbour needed memory"),
    ]
    document = timeline(scene).as_json()["events"]
    assert [one["at"] for one in document if one["name"] == "chat"] == [BEGAN + 110, BEGAN + 190]


def test_where_loads_are_not_followed_the_samples_show_them(scene):
    scene.changes = ()
    scene.sample(models={"chat": "ready"}, times=2)
    scene.changes = None
    scene.sample(models={})
    scene.changes = (Change(1, BEGAN, "chat", cause="idle"),)
    scene.sample()
    assert texts(scene)[2:] == ["chat is unloaded"]
    scene.restart()
    scene.sample(models={"chat": "ready"})
    assert texts(scene)[3:] == ["the exporter has started", "chat is loaded"]


def test_a_curve_has_the_height_of_the_card_and_its_first_last_and_extreme_figures(scene):
    incident(scene)
    card, free, *holders = report.curves(timeline(scene))
    assert card == "t4: 15,360 MiB"
    assert free.startswith("  free       ")
    assert free.endswith("  4,124 → 11,120 MiB, at least 2,434")
    assert [line.split()[0] for line in holders] == ["immich-ml", "chat", "frigate", "not"]
    drawn = holders[0][len("  not attributed  ") :][: report.CELLS]
    assert (drawn[0], drawn[45], drawn[-1]) == ("▂", "▆", "▂")
    assert holders[0].endswith("  2,040 → 2,040 MiB, at most 10,726")


def test_what_began_before_is_there_at_the_beginning(scene):
    incident(scene)
    failed = "2 requests to chat failed: its load failed, the process ended before it was ready"
    assert texts(scene, since=250, until=BEGAN + 270) == [
        "before: immich-ml holds 10,726 MiB, 8,626 more than the 2,100 promised",
        "before: chat does not fit: 4,562 MiB short; largest excess: immich-ml",
        failed,
        failed,
    ]


def test_a_record_that_begins_late_or_has_ended_is_an_event(scene):
    scene.sample(reading(**CALM), times=2)
    since, until = -600, scene.now + 600
    assert texts(scene, since=since, until=until) == [
        "nothing is recorded before this",
        "the exporter has started",
        "nothing is recorded after this",
    ]
    assert texts(scene, since=-30, until=scene.now + 30) == ["the exporter has started"]
    scene.sample(times=60)
    assert texts(scene, until=BEGAN + 100) == ["the exporter has started"]


def test_where_it_is_not_known_what_a_tenant_holds_no_program_is_accused_of_a_tenants_part(scene):
    """On one machine no process can be assigned to a tenant."""
    local = replace(reading(photoedit=800), certain=frozenset({Kind.MODEL}))
    scene.sample(local, times=2)
    assert Code.FOREIGN not in {one.code for one in timeline(scene).events}
    scene.sample(replace(reading(photoedit=9000), certain=frozenset({Kind.MODEL})), times=2)
    assert "photoedit holds 9,000 MiB, and has no promise on t4" in texts(scene)


def test_what_was_true_hours_before_is_not_taken_for_the_beginning(scene):
    scene.sample(reading(**GROWN), times=2)
    scene.now += 36000
    scene.sample(reading(**CALM))
    assert texts(scene, since=35000) == ["nothing was recorded for 600 min before this"]
    (free, *_) = list(report.curves(timeline(scene, since=35000)))[1:]
    assert "at least 11,120" in free


def test_what_the_lock_does_not_have_any_more_has_not_become_well(scene):
    scene.sample(reading(**GROWN), times=2)
    card = PROMISES["t4"]
    scene.options |= {"seal": "1" * 64, "promises": {"t4": replace(card, tenants={}, models={})}}
    scene.restart()
    scene.sample(reading(**GROWN), times=2)
    assert texts(scene)[3:] == [
        "the exporter has started",
        "the promises are those of another lock (111111111111)",
    ]


def test_a_room_that_is_not_known_is_not_there_again(scene):
    scene.sample(reading(**GROWN), times=3)
    (card,) = reading(**GROWN).cards
    blind = replace(reading(**GROWN), cards=(replace(card, card=replace(card.card, free=None)),))
    scene.sample(blind, times=3)
    scene.sample(reading(**GROWN), times=3)
    assert [one.code for one in timeline(scene).events].count(Code.NO_ROOM) == 1
    assert Code.ROOM not in {one.code for one in timeline(scene).events}


def test_a_row_has_its_day_where_there_are_several(scene):
    scene.sample(models={"chat": "ready"})
    scene.now += 2 * 86400
    scene.sample(models={})
    assert [time for time, *_ in report.rows(timeline(scene))] == ["05-28 20:27"] * 2 + ["05-30 20:27"] * 2


def test_the_events_are_gone_through_once_whatever_the_number_of_minutes(scene, monkeypatch):
    """Once for each of a week's 10,080 minutes would be minutes."""
    incident(scene)
    passes, merged = [], report._merged

    class Counted(list):
        def __iter__(self):
            passes.append(len(self))
            return super().__iter__()

    monkeypatch.setattr(report, "_merged", lambda every: Counted(merged(every)))
    assert len({time for time, *_ in report.rows(timeline(scene))}) > 3
    assert len(passes) == 1


def test_while_the_driver_is_silent_nothing_ends(scene):
    scene.sample(reading(**GROWN), times=2)
    scene.sample(SILENT, times=2)
    scene.sample(reading(**GROWN), times=2)
    assert texts(scene)[1:] == [
        "immich-ml holds 10,726 MiB, 8,626 more than the 2,100 promised",
        "chat does not fit: 4,562 MiB short; largest excess: immich-ml",
        "what is held on t4 is unknown: nvidia-smi did not respond within 1 s.",
        "what is held on t4 is known again",
    ]


def test_a_holder_whose_figure_is_missing_is_not_within_its_promise(scene):
    scene.sample(reading(**GROWN))
    scene.sample(reading(**GROWN | {"immich_ml": None}, free=2434))
    scene.sample(reading(**CALM))
    codes = [one.code for one in timeline(scene).events if one.name == "immich-ml"]
    assert codes == [Code.OVER, Code.WITHIN]
    assert timeline(scene).events[-1].at == BEGAN + 30


def test_one_sample_without_room_is_the_end_of_an_engine_and_no_event(scene):
    scene.sample(reading(**CALM))
    scene.sample(reading(**CALM, free=2000))
    scene.sample(reading(**CALM))
    assert Code.NO_ROOM not in {one.code for one in timeline(scene).events}


def test_llama_swap_that_is_silent_ends_no_model(scene):
    scene.sample(models={"chat": "ready"})
    scene.sample(models=None)
    scene.sample(models={"chat": "ready"})
    assert texts(scene)[1:] == ["chat is loaded", "llama-swap does not answer", "llama-swap answers again"]


def test_a_llama_swap_that_is_not_read_is_one_event_and_neither_silent_nor_without_models(scene):
    scene.options["find_llama_swap"] = None
    scene.restart()
    scene.sample(times=3)
    found = timeline(scene)
    unread = "llama-swap is not read: no load and no failed request is recorded"
    assert [one.text for one in found.events] == ["the exporter has started", unread]
    assert [one["models"] for one in found.as_json()["samples"]] == ["not-read"]
    del scene.options["find_llama_swap"]
    scene.restart()
    scene.sample(models={"chat": "ready"})
    assert texts(scene)[2:] == ["the exporter has started", "chat is loaded", "llama-swap is read"]


def test_a_model_that_was_loaded_again_between_two_samples_has_other_processes(scene):
    scene.sample(reading(chat=6996), models={"chat": "ready"})
    scene.sample(SILENT, models=None)
    scene.sample(reading(frigate=1, chat=6996), models={"chat": "ready"})
    assert "chat was unloaded and loaded again" in texts(scene)


def test_an_alert_is_an_event_until_its_alertmanager_has_it_no_more(scene):
    alert = Alert("CorralNoRoomForModel", {"card": "t4", "model": "chat", "culprit": "immich-ml"})
    scene.sample()
    scene.alerts = (alert, Alert("CorralDriverSilent", {"card": "t4"}))
    scene.sample(times=2)
    scene.alerts = None
    scene.sample(times=2)
    scene.alerts = (alert,)
    scene.sample(times=2)
    assert [(one.at - BEGAN, one.text) for one in timeline(scene).events][1:] == [
        (15, "the alert CorralNoRoomForModel (model chat, culprit immich-ml) fires"),
        (15, "the alert CorralDriverSilent fires"),
        (75, "the alert CorralDriverSilent has ended"),
    ]


def test_a_foreign_holder_is_one_beyond_the_reserve(scene):
    scene.sample(reading(**CALM, xmrig=512))
    scene.sample(reading(**CALM, xmrig=513))
    scene.sample(reading(**CALM))
    assert texts(scene)[1:] == [
        "xmrig holds 513 MiB, and has no promise on t4",
        "xmrig holds no more than the reserve of t4",
    ]


def crowd(changed=0):
    """More small foreign holders of two kinds than a record has places for."""
    names = {f"{kind}{at}": 100 for at in range(40) for kind in "ab"}
    (card,) = (found := reading(immich_ml=2040 + changed, **names, free=1000)).cards
    kinds = {"a": Kind.POD, "b": Kind.PROCESS}
    holders = tuple(replace(one, kind=kinds.get(one.name[0], one.kind)) for one in card.holders)
    return replace(found, cards=(replace(card, holders=holders),))


def test_foreign_holders_without_number_that_do_not_change_are_no_changes_and_no_excess(scene):
    for changed in range(12):
        scene.sample(crowd(changed))
    sums = [row for row in timeline(scene).moments[0].accounts[0].rows if row.name == "(other)"]
    assert len({row.kind for row in sums}) == 2
    assert all(row.held > 512 * MIB for row in sums)
    assert texts(scene) == ["the exporter has started", *[one for one in texts(scene) if "chat does not fit" in one]]
    assert not [text for *_, text in report.rows(timeline(scene)) if "→" in text]
    drawn = [line.strip() for line in report.curves(timeline(scene))]
    assert [line.split("  ")[0] for line in drawn if "(other)" in line] == [
        "(other) of kind pod",
        "(other) of kind process",
    ]


def test_a_program_that_calls_itself_a_sum_is_a_foreign_holder(scene):
    scene.sample(reading(**CALM | {"(other)": 600}))
    assert texts(scene)[1:] == ["(other) holds 600 MiB, and has no promise on t4"]


def test_two_holders_of_one_name_have_each_their_own_events(scene):
    (card,) = (found := reading(same=600, other=700, **CALM)).cards
    twins = [replace(one, name="x") if one.name in ("same", "other") else one for one in card.holders]
    pod = [replace(one, kind=Kind.POD) if one.held == 700 * MIB else one for one in twins]
    scene.sample(replace(found, cards=(replace(card, holders=tuple(pod)),)))
    assert texts(scene)[1:] == [f"x holds {mib} MiB, and has no promise on t4" for mib in (700, 600)]


def test_a_gap_a_restart_a_clock_that_jumps_and_another_lock_are_events(scene):
    scene.sample(times=2)
    scene.now += 3600
    scene.options["seal"] = "1" * 64
    scene.restart()
    scene.sample()
    scene.now -= 7200
    scene.sample()
    found = texts(scene, since=-3600, until=scene.now + 7200)
    assert found == [
        "nothing is recorded before this",
        "the exporter has started",
        "nothing was recorded for 60 min before this",
        "the exporter has started",
        "the promises are those of another lock (111111111111)",
        "the clock was set back by 7185 s",
        "nothing is recorded after this",
    ]


BACK = "the clock was set back by 3600 s"
BEFORE, AFTER = "nothing is recorded before this", "nothing is recorded after this"


@pytest.mark.parametrize(
    ("since", "until", "found"),
    [
        (0, 780, ["the exporter has started", BACK]),  # to a time before the period
        (-2805, 780, [BEFORE, "the exporter has started", "the clock was set back by 3570 s", AFTER]),
        (-2900, 780, [BEFORE, "the exporter has started", BACK, AFTER]),
        (-2900, -2700, [BACK, AFTER]),
        (300, 360, []),
    ],
)
def test_what_was_recorded_after_the_clock_was_set_back_is_not_taken_for_before(scene, since, until, found):
    scene.sample(times=52)
    scene.now -= 3615
    scene.sample(times=5)
    assert texts(scene, since=since, until=BEGAN + until) == found


SAMPLES = st.tuples(
    st.one_of(
        st.just(SILENT),
        st.builds(
            reading,
            immich_ml=st.sampled_from([0, 2040, 10726, None]),
            chat=st.sampled_from([0, 6996, 8000]),
            xmrig=st.sampled_from([0, 600]),
            free=st.sampled_from([0, 2000, 12000]),
        ),
    ),
    st.sampled_from([None, {}, {"chat": "ready"}, {"chat": "starting"}]),
)


@settings(deadline=None)
@given(st.lists(SAMPLES, min_size=1, max_size=12))
def test_what_has_begun_ends_before_it_begins_again(tmp_path_factory, samples):
    with closing(Scene(tmp_path_factory.mktemp("recorded") / "records")) as scene:
        for found, models in samples:
            scene.sample(found, models=models)
        active = set()
        for one in timeline(scene).events:
            if one.code in PAIRS:
                assert (one.code, one.name) not in active
                active.add((one.code, one.name))
            for begin in (begin for begin, end in PAIRS.items() if end is one.code):
                active.remove((begin, one.name))
        assert list(report.rows(timeline(scene)))
        json.dumps(timeline(scene).as_json())


# -- the command ----------------------------------------------------------------------------------------------


@pytest.fixture
def recorded(tmp_path, monkeypatch):
    """The incident, recorded on this machine in 2026-05."""
    monkeypatch.setenv("CORRAL_STATE", str(tmp_path))
    with closing(Scene(tmp_path / "records")) as scene:
        incident(scene)
    times = ["--since", "2026-05-28T20:00+00:00", "--until", "2026-05-28T21:00Z", "--utc"]
    return ["timeline", "--catalog", str(tmp_path), *times]


def test_the_command_prints_curves_and_rows_and_the_same_for_programs(recorded, capsys):
    assert main(recorded) == 0
    printed = capsys.readouterr().out
    assert "t4: 15,360 MiB\n  free " in printed
    assert (
        "20:31\t2,434\t8 requests to chat failed: its load failed, the process ended before it was ready\n" in printed
    )
    assert main([*recorded, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [one["count"] for one in document["events"] if one["event"] == "requests-failed"] == [2, 2, 2, 2]
    assert {one["event"] for one in document["events"]} <= {str(code) for code in Code}
    assert len(document["samples"]) == 6
    held = {one["name"]: one["held"] for one in document["samples"][3]["cards"]["t4"]["held"]}
    assert held["immich-ml"] == 10726 << 20


def test_the_command_begins_a_post_mortem_in_utc_and_prints_its_path(recorded, capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(paths, "REPOSITORY", tmp_path)
    (tmp_path / "post-mortems").mkdir()
    assert main([*recorded, "--post-mortem", "No room"]) == 0
    path = tmp_path / "post-mortems" / "2026-05-28-no-room.md"
    assert capsys.readouterr().out == f"{path}\n"
    assert "Times are UTC." in path.read_text()
    assert main([*recorded, "--post-mortem", "No room"]) == 2


@pytest.mark.parametrize(
    ("options", "code", "problem"),
    [
        (["--since", "yesterday"], 2, "'yesterday' is no time: 14:00, 2026-11-23T14:00, 90m, 2h or 3d"),
        (["--since", "25:00"], 2, "'25:00' is no time"),
        (["--until", "2026-05-28T19:00Z"], 2, "--until must be later than --since."),
        (["--since", "2026-05-28T20:40Z"], 3, "The last sample is of 2026-05-28 20:32"),
        (["--post-mortem", ""], 2, "The title '' has no letter or digit"),
    ],
)
def test_an_invalid_time_or_one_without_records_is_refused_with_the_rule(recorded, capsys, options, code, problem):
    try:
        found = main([*recorded, *options])
    except SystemExit as error:
        found = error.code
    assert found == code
    assert problem in capsys.readouterr().err


@pytest.mark.parametrize(
    "line",
    [
        '{"version": 1, "at": NaN}',
        '{"version": 1, "at": 1e400}',
        '{"version": 1, "at": -1}',
        '{"version": 1, "at": 1e300}',
        '{"version": 1, "at": 1, "seal": "", "is_start": true, "promises": {"t4": NO_CARD}}',
        '{"version": 1, "at": 1, "models": {}, "failures": [], "alerts": null, "reading": {"cards": [LESS]}}',
        '{"version": 1, "at": 1, "models": {}, "failures": [], "alerts": null, "reading": {}, "yields": [BELOW]}',
        '{"version": 1, "at": 1, "models": {}, "failures": [], "alerts": null, "reading": {}, "changes": [LATE]}',
    ],
)
def test_an_impossible_figure_is_a_damaged_line(recorded, capsys, tmp_path, line):
    (path,) = (tmp_path / "records").iterdir()
    less = {"card": {"uuid": "", "name": "", "total": -1, "free": 1}, "holders": []}
    none = {"vram": 0, "reserve": 0, "tenants": {}, "models": {}}
    late = asdict(Change(1, 1e300, "chat"))
    below = asdict(Yielded("t4", "chat", "free-below-floor", "", -1, 1, 60.0))
    for name, found in (("NO_CARD", none), ("LESS", less), ("BELOW", below), ("LATE", late)):
        line = line.replace(name, json.dumps(found))
    for words in ("1 line of the recording is damaged", "2 lines of the recording are damaged"):
        path.write_text(f"{path.read_text()}{line}\n")
        assert main(recorded) == 0
        assert f"{words}, and left out." in capsys.readouterr().err


@pytest.mark.parametrize(
    ("now", "text", "found"),
    [
        ("2026-03-29T08:00", "01:00", "2026-03-29T01:00+01:00"),
        ("2026-03-29T08:00", "14:00", "2026-03-28T14:00+01:00"),
        ("2026-07-01T08:00", "07:30", "2026-07-01T07:30+02:00"),
        ("2026-07-01T08:00", "90m", "2026-07-01T06:30+02:00"),
    ],
)
def test_a_clock_time_is_the_last_one_of_this_machines_zone(monkeypatch, now, text, found):
    """On 2026-03-29 the clocks of Berlin skipped an hour."""
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    try:

        class Clock(datetime):
            @classmethod
            def now(cls):
                return cls.fromisoformat(now)

        monkeypatch.setattr(command, "datetime", Clock)
        assert command._time(text) == datetime.fromisoformat(found).timestamp()
    finally:
        monkeypatch.undo()
        time.tzset()


def test_a_post_mortem_is_not_written_through_a_link(recorded, tmp_path, monkeypatch):
    monkeypatch.setattr(paths, "REPOSITORY", tmp_path)
    (tmp_path / "post-mortems").mkdir()
    (tmp_path / "post-mortems" / "2026-05-28-x.md").symlink_to(tmp_path / "elsewhere")
    assert main([*recorded, "--post-mortem", "x"]) == 2
    assert not (tmp_path / "elsewhere").exists()


def test_without_a_record_it_names_the_command_that_makes_one(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("CORRAL_STATE", str(tmp_path))
    assert main(["timeline", "--catalog", str(tmp_path)]) == 3
    assert "corral exporter" in capsys.readouterr().err


def test_a_post_mortem_begins_with_the_headings_that_the_repository_requires(scene, tmp_path):
    incident(scene)
    path = post_mortem.write(timeline(scene), tmp_path, "No room for chat!")
    text = path.read_text()
    assert path.name == "2026-05-28-no-room-for-chat.md"
    assert text.startswith("# 2026-05-28: No room for chat!\n")
    assert tuple(re.findall(r"^## (.+)$", text, re.MULTILINE)) == HEADINGS
    assert (
        "\n| time | free MiB | what happened |\n| --- | --- | --- |\n| 20:27 | 4,124 | the exporter has started |\n"
        in text
    )
    assert "damaged" not in text
    (record,) = (tmp_path / "records").iterdir()
    record.write_text(f"{record.read_text()}[]\n")
    damaged = post_mortem.write(timeline(scene), tmp_path, "damaged").read_text()
    assert "\n1 line of the recording is damaged.\n" in damaged
    with pytest.raises(Refused, match="is there already"):
        post_mortem.write(timeline(scene), tmp_path, "no room: for CHAT")
    with pytest.raises(Refused, match="has no letter or digit"):
        post_mortem.write(timeline(scene), tmp_path, "¡…!")


def test_a_post_mortem_that_a_full_disk_cuts_is_not_left_behind(scene, tmp_path):
    incident(scene)
    with small_disk(tmp_path / "disk", 8192) as disk:
        fill(disk)
        with pytest.raises(Refused, match="cannot be written: No space left on device"):
            post_mortem.write(timeline(scene), disk, "x")
        assert list(disk.glob("*.md")) == []


def test_a_name_from_outside_is_no_markup_in_a_post_mortem(scene, tmp_path):
    scene.sample(reading(**{"<b>|[x](y)`\n## z": 600}))
    text = post_mortem.write(timeline(scene), tmp_path, "x").read_text()
    assert r"\<b\>\|\[x\](y)\`�\#\# z holds 600 MiB" in text
    assert tuple(re.findall(r"^## (.+)$", text, re.MULTILINE)) == HEADINGS
