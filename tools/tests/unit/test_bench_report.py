"""The document of a benchmark: its verdict by its own rules, its pictures, its samples."""

from __future__ import annotations

import json
import random
import xml.etree.ElementTree as ET

import pytest

from corral import markdown
from corral.bench import figures, plot, report, saved, verdict
from corral.bench.exchange import Sample
from corral.bench.load import Level, Run
from corral.bench.loads import Load
from corral.bench.measuring import Measured, Question
from corral.bench.neighbours import Beside, Neighbours
from corral.bench.plot import Line
from corral.bench.report import Files, Held, Surroundings
from corral.bench.verdict import Goal, State
from corral.cli.bench_report import Watch
from corral.errors import CannotRun, Refused
from corral.exporter.account import OTHER, CardAccount, Row
from corral.exporter.driver import Card

GIB = 1 << 30
TRIAGE = Goal("triage", prompt_tokens=256, answer_tokens=64, p95_seconds=4.0)
CONDITIONS = {"at": "2026-11-24T10:00:00+0000", "endpoint": "http://127.0.0.1:8080"}
SVG = "{http://www.w3.org/2000/svg}"


def sample(at, *, e2e, outcome="ok", tokens=64):
    return Sample(
        *(at, at, outcome), first=at + e2e / 4, last=at + e2e, ended=at + e2e, chunks=tokens, output_tokens=tokens
    )


def run_of(users, *, e2e=2.0, count=200, failed=0, tokens=64, beside=None):
    """Each user's requests follow each other; *failed* of them are refused."""
    samples = [sample(at // users * e2e, e2e=e2e, tokens=tokens) for at in range(count)]
    samples += [sample(0.0, e2e=0.1, outcome="http-429") for _ in range(failed)]
    run = Run(Level(users=users, neighbours=beside), samples, seconds=count / users * e2e)
    run.beside = Beside(2 * beside.share, beside.mib) if beside else None
    return run


def decided(*runs, goals=(TRIAGE,), prompt_tokens=256, answer_tokens=64):
    levels = [figures.of(one) for one in runs]
    return verdict.of(levels, goals, prompt_tokens=prompt_tokens, answer_tokens=answer_tokens)


def states(found):
    return [(one.level, one.state) for one in found.decisions]


def test_a_model_serves_the_largest_load_up_to_which_every_level_holds():
    found = decided(run_of(8, e2e=5.0), run_of(1), run_of(2, e2e=3.9), run_of(16))
    assert states(found) == [
        ("1 user", State.HOLDS),
        ("2 users", State.HOLDS),
        ("8 users", State.FAILS),
        ("16 users", State.HOLDS),
    ]
    assert found.serves == "2 users"
    assert found.decisions[2].reason == "5.00 s for 95 of 100 answers, and triage asks for 4 s"


def test_a_failed_request_fails_a_level():
    found = decided(run_of(1, failed=1), goals=())
    assert states(found) == [("1 user", State.FAILS)]
    assert (found.serves, found.decisions[0].reason) == ("", "1 of 201 requests failed: 1 http-429")


def test_too_few_answers_for_a_budget_are_unknown_and_no_green():
    assert states(decided(run_of(1, count=199))) == [("1 user", State.UNKNOWN)]
    assert decided(run_of(1, count=199)).serves == ""


def test_a_late_client_decides_nothing(monkeypatch):
    monkeypatch.setattr(figures, "MOST_LAG_S", -1.0)
    assert states(decided(run_of(1))) == [("1 user", State.INVALID)]


@pytest.mark.parametrize(("prompt_tokens", "answer_tokens"), [(255, 64), (256, 63)])
def test_a_budget_with_longer_texts_than_those_measured_decides_nothing(prompt_tokens, answer_tokens):
    found = decided(run_of(1, e2e=9.0), prompt_tokens=prompt_tokens, answer_tokens=answer_tokens)
    assert states(found) == [("1 user", State.HOLDS)]
    assert states(decided(run_of(1, e2e=9.0))) == [("1 user", State.FAILS)]


def test_the_first_level_that_no_larger_one_exceeds_is_saturated():
    assert decided(run_of(1), run_of(2), run_of(4, e2e=3.9)).saturated == "2 users"
    assert decided(run_of(1), run_of(2), run_of(4)).saturated == ""


def drawn(lines, ticks=((0, "a"), (1, "b"))):
    return ET.fromstring(plot.draw("t & <u>", lines, ticks, x="load", y="s"))


def test_a_plot_has_a_line_for_each_series_with_gaps_where_nothing_is_known():
    root = drawn([Line("one", [(0, 1.0), (0.2, None), (0.6, 3.0), (1, 2.0)]), Line("two", [(0, 0.0), (1, 4.0)])])
    lines = [one.get("points").split() for one in root.iter(f"{SVG}polyline")]
    assert [len(points) for points in lines] == [1, 2, 2]
    heights = [float(points[-1].split(",")[1]) for points in lines]
    assert heights[2] < heights[1] < heights[0]  # 4, 2, 1: upwards is less
    texts = [one.text for one in root.iter(f"{SVG}text")]
    assert {"one", "two", "a", "b", "t & <u>"} <= set(texts)


@pytest.mark.parametrize(
    ("highest", "marks"),
    [(0, ["0", "1"]), (0.03, ["0", "0.01", "0.02", "0.03"]), (15360, ["0", "5,000", "10,000", "15,000", "20,000"])],
)
def test_the_marks_of_a_plot_are_round_and_reach_above_its_lines(highest, marks):
    root = drawn([Line("one", [(0, highest), (1, 0)])])
    assert [one.text for one in root.iter(f"{SVG}text") if one.get("class") == "mark"] == marks


def written(folder, measured, **around):
    files = Files(folder, "2026-11-24-night")
    report.write(files, "At *night*", CONDITIONS, measured, Question(256, 64), Surroundings("corral bench m", **around))
    return files


def test_a_document_has_verdict_figures_pictures_held_memory_and_samples(tmp_path):
    held = [Held(0.0, 10 * GIB, {"m": 4 * GIB}), Held(60.0, 4 * GIB, {"m": 4 * GIB, "immich-ml": 6 * GIB})]
    files = written(
        tmp_path / "benchmarks",
        [Measured("m", 1.0, (run_of(1), run_of(2, e2e=5.0)))],
        goals={"m": [TRIAGE]},
        held={"t4": held},
        facts=[("lock", "abc")],
    )
    text = files.document.read_text()
    assert text.startswith("# At \\*night\\*, 2026-11-24\n")
    assert "**m serves 1 user; 2 users: 5.00 s for 95 of 100 answers, and triage asks for 4 s" in text
    assert "| m | 2 users | fails | 5.00 s for 95 of 100 answers, and triage asks for 4 s |" in text
    assert all(f"* {rule}\n" in text for rule in verdict.RULES)
    assert "| m | 1 user | 200 | 0 | 500.0 ms |" in text
    assert "| immich-ml | 0 | 6,144 | 6,144 |" in text
    assert "| lock | abc |" in text
    links = {"2026-11-24-night.json.gz", "2026-11-24-night-latency-1.svg", "2026-11-24-night-card-t4.svg"}
    assert {one.name for one in files.document.parent.iterdir()} == links | {files.document.name}
    assert all(f"]({name})" in text for name in links)
    for name in links - {"2026-11-24-night.json.gz"}:
        assert ET.parse(files.document.parent / name).getroot().tag == f"{SVG}svg"
    assert len(saved.read(files.beside(".json.gz")).levels["m", "2 users"]["e2e"]) == 200


def test_each_state_of_the_neighbours_has_a_verdict_of_its_own_and_a_place_in_the_picture(tmp_path):
    idle, full = Neighbours("idle", 0.0, 0), Neighbours("full", 1.0, 4096)
    runs = [run_of(1, beside=idle), run_of(2, beside=idle), run_of(1, beside=full), run_of(2, beside=full, e2e=5.0)]
    files = written(tmp_path, [Measured("m", 1.0, tuple(runs))], goals={"m": [TRIAGE]})
    text = files.document.read_text()
    assert "**m serves 2 users, neighbours idle.**" in text
    assert "**m serves 1 user, neighbours full; 2 users, neighbours full: 5.00 s" in text
    assert "| m | 2 users | full | 2.00 | 4096 | 1250.0 ms | 5000.0 ms | 2.50 x |" in text
    root = ET.parse(files.beside("-neighbours-1.svg"))
    texts = [one.text for one in root.iter(f"{SVG}text")]
    assert {"E2E p50, 1 user", "E2E p50, 2 users", "idle: 0.0", "full: 2.0"} <= set(texts)


def load(*, cold, cached, seconds):
    return Load(cold, 100 << 20, cached << 20, seconds)


def test_loads_are_a_table_by_what_was_in_the_page_cache(tmp_path):
    loads = (
        *(load(cold=True, cached=0, seconds=one) for one in (4.0, 2.0, 3.0)),
        *(load(cold=False, cached=100, seconds=0.5) for _ in range(3)),
    )
    text = written(tmp_path, [Measured("m", 1.0, (run_of(1),), loads)]).document.read_text()
    assert "| m | cold | 3 | 2.00 s | 3.00 s | 4.00 s | 100 | 0% | 33 |" in text
    assert "| m | warm | 3 | 0.50 s | 0.50 s | 0.50 s | 100 | 100% | 200 |" in text
    assert "loads are none" not in text


@pytest.mark.parametrize(
    ("one", "why"),
    [
        (load(cold=True, cached=6, seconds=1.0), "6% of its files were in the page cache: another process"),
        (load(cold=False, cached=94, seconds=1.0), "94% of its files were in the page cache: the page cache kept no"),
    ],
)
def test_a_load_whose_page_cache_was_not_as_wanted_is_named(tmp_path, one, why):
    text = written(tmp_path, [Measured("m", 1.0, (run_of(1),), (one,))]).document.read_text()
    assert f"m: {why}" in text


def test_a_moment_at_which_nothing_was_known_is_a_gap_and_never_zero(tmp_path):
    held = [Held(0.0, GIB, {"m": GIB}), Held(5.0, GIB, {"m": GIB}), Held(10.0, None, None)]
    files = written(tmp_path, [Measured("m", 1.0, (run_of(1),))], held={"t4": held})
    assert "| m | 1,024 | 1,024 | ? |" in files.document.read_text()
    root = ET.parse(files.beside("-card-t4.svg"))
    assert [len(one.get("points").split()) for one in root.iter(f"{SVG}polyline")] == [2, 2]


def test_what_was_held_is_unknown_with_the_reason(tmp_path):
    files = written(tmp_path, [Measured("m", 1.0, (run_of(1),))], unknown="Not known of t4: nvidia-smi is missing.")
    assert "\nNot known of t4: nvidia-smi is missing.\n" in files.document.read_text()


def test_a_document_that_is_there_is_left_as_it_is(tmp_path):
    files = written(tmp_path, [Measured("m", 1.0, (run_of(1),))])
    before = files.document.read_bytes()
    with pytest.raises(Refused, match="is there already"):
        written(tmp_path, [Measured("m", 1.0, (run_of(2),))])
    assert files.document.read_bytes() == before


def test_samples_of_more_than_two_megabytes_lose_a_part_that_is_named(tmp_path, monkeypatch):
    source = random.Random(1)
    run = run_of(1)
    for one in run.samples:
        one.gaps = [source.random() for _ in range(50)]
    measured = [Measured("m", 1.0, (run,))]
    sizes = []
    for number, most in enumerate((2_000_000, 20_000, 1_000)):
        monkeypatch.setattr(report, "MOST_SAMPLE_BYTES", most)
        files = written(tmp_path / str(number), measured)
        sizes.append(files.beside(".json.gz").stat().st_size)
        text = files.document.read_text()
        assert ("it lacks" in text) == (number > 0)
    assert sizes[0] > 20_000 > sizes[1] > sizes[2]
    assert "it lacks the samples; it has the figures" in text


@pytest.mark.parametrize("title", ["", "…", "  "])
def test_a_title_without_a_letter_is_refused_with_an_example(title):
    with pytest.raises(Refused, match="no letter or digit") as error:
        markdown.slug(title, example='--report "t4"')
    assert error.value.next_step == '--report "t4"'


def test_the_conditions_of_a_document_are_those_of_its_samples(tmp_path):
    files = written(tmp_path, [Measured("m", 1.0, (run_of(1),))])
    assert saved.read(files.beside(".json.gz")).conditions == json.loads(json.dumps(CONDITIONS))


def account(**options):
    rows = (
        Row("model", "m", held=GIB),
        Row("tenant", "frigate", held=None),
        Row("tenant", "empty", held=0),
        Row("pod", OTHER, held=2 * GIB),
        Row("process", OTHER, held=3 * GIB),
        Row("process", "m", held=4 * GIB),
        Row("reserve", "reserve", promised=GIB),
    )
    known = {"driver": Card("GPU-1", "Tesla T4", 16 * GIB, 6 * GIB), "unknown": "", "problem": "", "rows": rows}
    return CardAccount("t4", 16 * GIB, **(known | options))


def test_each_holder_of_a_card_has_a_name_of_its_own():
    watch = Watch(lambda: (account(),))
    with watch.running():
        pass
    first, last = watch.held["t4"]
    assert first.holders == last.holders
    assert first.holders == {
        "m": GIB,
        "frigate": None,
        "(other) of kind pod": 2 * GIB,
        "(other) of kind process": 3 * GIB,
        "m of kind process": 4 * GIB,
    }
    assert (first.of("empty"), first.of("frigate"), watch.unknown) == (0, None, "")


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (lambda: (account(driver=None, unknown="missing", problem="There is no nvidia-smi."),), "t4: There is no"),
        (lambda: (_ for _ in ()).throw(CannotRun("The exporter is away.", next_step="x")), "The exporter is away."),
    ],
)
def test_a_card_that_becomes_unknown_is_named_with_the_reason_and_holds_unknown(fault, words):
    readings = iter([lambda: (account(),), fault])

    def read():
        return next(readings)()

    watch = Watch(read)
    with watch.running():
        pass
    assert [one.of("m") for one in watch.held["t4"]] == [GIB, None]
    assert words in watch.unknown
