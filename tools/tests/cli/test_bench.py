"""`corral bench`: what it prints, what it saves, and its exit codes."""

import gzip
import json
import random
import re
import shlex
from argparse import Namespace
from dataclasses import replace
from functools import partial

import pytest

from corral.bench import figures, neighbours, saved
from corral.bench.exchange import Sample
from corral.bench.load import Level, Run
from corral.bench.measuring import Measured
from corral.cli import bench as bench_command
from corral.cli import bench_report
from corral.cli.main import main
from tests.support.paced_endpoint import BEFORE_LATER, Pace, serving

CONDITIONS = {"prompt_tokens": 256, "answer_tokens": 64, "may_end": False}


@pytest.fixture
def pace():
    return Pace(tokens=8)


@pytest.fixture
def bench(pace, monkeypatch):
    """Runs `corral bench` on the endpoint; its exit code.  This machine may be as late as it is."""
    monkeypatch.setattr(figures, "MOST_LAG_S", float("inf"))
    monkeypatch.setattr(figures, "LEAST_RATE", 0.0)
    with serving(pace) as address:

        def run(*words):
            return main(["bench", "--endpoint", address, *words])

        run.address = address
        yield run


def test_whole_answers_are_a_table_with_the_formulas(bench, capsys):
    assert bench("honest", "--users", "2", "--requests", "25") == 0
    out, err = capsys.readouterr()
    columns, row = (line.split("\t") for line in out.splitlines())
    found = dict(zip(columns, row, strict=False))
    assert (found["model"], found["load"], found["ok"], found["failed"]) == ("honest", "2 users", "25", "0")
    assert found["TTFT p50"].endswith(" ms")
    assert "n too small" in row
    for name, formula in figures.FORMULAS:
        assert f"{name} = {formula}" in err
    assert "honest: its first answer after" in err


def test_each_level_of_each_model_is_measured_and_is_json(bench, pace, capsys):
    assert bench("a", "b", "--users", "1,3", "--requests", "4", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    levels = [(one["model"], one["figures"]["level"], one["figures"]["ok"]) for one in found["levels"]]
    assert levels == [("a", "1 user", 4), ("a", "3 users", 4), ("b", "1 user", 4), ("b", "3 users", 4)]
    assert found["formulas"] == dict(figures.FORMULAS)
    assert found["first_answer_s"].keys() == {"a", "b"}
    assert found["conditions"].items() >= CONDITIONS.items()
    assert "samples" not in found["levels"][0]
    assert len(pace.bodies) == 2 * (BEFORE_LATER + 2 * 4)
    assert len({one["messages"][0]["content"] for one in pace.bodies}) == len(pace.bodies)


def test_an_open_loop_is_measured(bench, capsys):
    assert bench("honest", "--rate", "100", "--requests", "10", "--at-most", "2", "--json") == 0
    (level,) = json.loads(capsys.readouterr().out)["levels"]
    assert (level["figures"]["level"], level["figures"]["ok"]) == ("100/s, at most 2 at a time", 10)
    assert level["figures"]["asked_rate"] == 100


def test_requests_that_fail_are_counted_by_cause_and_are_exit_code_1(bench, capsys):
    assert bench("later-http-429", "--rate", "200", "--requests", "6") == 1
    out, err = capsys.readouterr()
    assert "\t0\t6\t" in out
    assert '6 of 6 requests are http-429; Retry-After: 3 s, for instance: {"error": {"message": "no"}}' in err


def test_an_answer_that_was_cut_is_no_success(bench, capsys):
    assert bench("later-cut", "--rate", "200", "--requests", "6") == 1
    assert (
        "6 of 6 requests are cut (the stream ended without [DONE]: the engine may have died)" in capsys.readouterr().err
    )


def test_a_model_that_gives_no_answer_at_all_is_exit_code_3(bench, capsys):
    assert bench("http-503") == 3
    err = capsys.readouterr().err
    assert 'http-503 gave no whole answer before the load, but http-503: {"error": {"message": "no"}}' in err
    assert "Check the address, the model's name, and CORRAL_API_KEY" in err


def test_what_was_measured_before_a_model_failed_is_printed_and_saved(bench, tmp_path, capsys):
    file = tmp_path / "x.gz"
    assert bench("honest", "cut", "--users", "1", "--requests", "3", "--save", str(file)) == 3
    out, err = capsys.readouterr()
    assert "honest\t1 user\t3\t0" in out
    assert "cut gave no whole answer before the load" in err
    assert saved.read(file).levels.keys() == {("honest", "1 user")}


def test_a_report_is_written_with_the_command_that_repeats_it(bench, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(bench_report, "FOLDER", tmp_path)
    words = ("honest", "--users", "1,2", "--requests", "5", "--prompt-tokens", "20", "--answer-tokens", "8")
    more = ("--timeout", "70", "--silence", "60")
    assert bench(*words, *more, "--report", "First!") == 0
    where = ("--endpoint", bench.address)
    (document,) = tmp_path.glob("*.md")
    assert document.name.endswith("-first.md")
    assert f"Written: {document}" in capsys.readouterr().err
    text = document.read_text()
    (shown,) = re.findall(r"^\$ corral (.+)$", text, re.MULTILINE)
    words = ("bench", *words[:3], "--seconds", "30", *words[3:], *more, "--report", "First!", *where)
    assert tuple(shlex.split(shown)) == words
    document.unlink()
    assert main(shlex.split(shown)) == 0
    assert len(list(tmp_path.glob("*.md"))) == 1
    assert "| lock | unknown: no catalog belongs to this endpoint |" in text
    assert "Not known: no catalog and no exporter belong to this endpoint." in text
    assert "| honest | 1 user | holds |" in text


def test_a_report_that_is_there_is_refused_before_anything_is_measured(bench, pace, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(bench_report, "FOLDER", tmp_path)
    assert bench("honest", "--users", "1", "--requests", "1", "--report", "x") == 0
    sent = len(pace.bodies)
    assert bench("honest", "--users", "1", "--requests", "1", "--report", "X") == 2
    assert "is there already" in capsys.readouterr().err
    assert len(pace.bodies) == sent


def test_loads_of_an_endpoint_elsewhere_are_refused(bench, pace, capsys):
    assert bench("honest", "--loads", "1") == 2
    assert "the page cache is that of the machine that serves" in capsys.readouterr().err
    assert pace.bodies == []


def test_budgets_of_an_endpoint_elsewhere_are_refused(bench, pace, capsys):
    assert bench("--budgets") == 2
    assert "has no catalog with budgets" in capsys.readouterr().err
    assert pace.bodies == []


@pytest.mark.parametrize("words", [("--users", "2"), ("--report", "x"), ("--loads", "1")])
def test_options_that_a_budget_itself_decides_are_refused(bench, words, capsys):
    assert bench("--budgets", *words) == 2
    assert f"Leave out {words[0]}" in capsys.readouterr().err


def test_lengths_and_users_that_were_not_reached_are_named(bench, capsys):
    bench("honest", "--users", "50", "--requests", "4", "--prompt-tokens", "256", "--answer-tokens", "64")
    err = capsys.readouterr().err
    assert "requests were under way at a time" in err
    assert "half of the prompts have 20 tokens or more, and 256 were asked for" in err
    assert "half of the answers have 8 tokens or more, and 64 were asked for" in err


def test_more_requests_than_a_run_can_have_are_refused(bench, capsys):
    assert bench("honest", "--rate", "10000", "--seconds", "1000000") == 2
    assert "more than 1,000,000" in capsys.readouterr().err


def test_a_run_in_which_the_client_was_late_is_exit_code_4(bench, monkeypatch, capsys):
    monkeypatch.setattr(figures, "MOST_LAG_S", -1.0)
    assert bench("honest", "--users", "1", "--requests", "2") == 4
    err = capsys.readouterr().err
    assert "The run is invalid: this process was late by" in err
    assert err.endswith("fewer users, a lower --rate, or from another machine\n")


@pytest.mark.parametrize("words", [("--rate", "0.001", "--seconds", "0.01"), ("--users", "1", "--seconds", "1e-9")])
def test_a_run_in_which_no_request_was_sent_is_to_be_longer_and_not_quieter(bench, words, capsys):
    assert bench("honest", *words) == 4
    err = capsys.readouterr().err
    assert "The run is invalid: no request was sent." in err
    assert err.endswith("  → Measure longer, so that a request is sent: --seconds\n")


def test_a_client_that_was_late_beside_neighbours_of_its_own_machine_gets_a_way_out_that_keeps_them(capsys):
    run = answered(0.01)
    run.lags = [0.5] * 100
    run.level = replace(run.level, neighbours=neighbours.parse("full", 64))
    args = Namespace(json=False, save=None, prompt_tokens=256, answer_tokens=64)
    assert bench_command._show(args, [Measured("m", 1.0, (run,))], {}) == 4
    last = capsys.readouterr().err.splitlines()[-1]
    assert "chrt --reset-on-fork --fifo 5 corral bench" in last, "its children must not have its priority"
    assert "another machine" not in last


@pytest.mark.parametrize("option", ["--neighbours=idle", "--loads=1"])
def test_what_needs_the_local_stack_names_the_command_that_starts_it(option, monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("CORRAL_STATE", str(tmp_path / "state"))
    monkeypatch.setattr("corral.cli.options.applied", lambda: None)
    assert main(["bench", "m", option]) == 3
    err = capsys.readouterr().err
    assert "No local stack is running" in err
    assert err.endswith("  → corral up --detach\n")


@pytest.mark.parametrize("command", [["bench", "m"], ["eval", "set", "m"]])
def test_an_empty_title_of_a_report_is_wrong_usage(command, capsys):
    with pytest.raises(SystemExit) as stop:
        main([*command, "--report", ""])
    assert stop.value.code == 2
    assert "--report: it is empty" in capsys.readouterr().err


def test_the_key_of_the_environment_is_sent(bench, pace, monkeypatch):
    monkeypatch.setenv("CORRAL_API_KEY", "k-1")
    assert bench("honest", "--users", "1", "--requests", "1") == 0
    assert all(b"Authorization: Bearer k-1\r\n" in head for head in pace.heads)


@pytest.mark.parametrize("key", ["a\nb", "schlüssel"])
def test_a_key_that_no_header_can_carry_is_refused(bench, pace, monkeypatch, key, capsys):
    monkeypatch.setenv("CORRAL_API_KEY", key)
    assert bench("honest") == 2
    assert "CORRAL_API_KEY holds a character" in capsys.readouterr().err
    assert pace.heads == []


def test_a_file_that_cannot_be_written_is_refused_before_anything_is_measured(bench, pace, tmp_path, capsys):
    assert bench("honest", "--save", str(tmp_path)) == 2
    assert bench("honest", "--save", "/proc/x.gz") == 2
    assert capsys.readouterr().err.count("cannot be written") == 2
    assert pace.heads == []


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ((), "No model was named."),
        (("m", "--at-most", "3"), "--at-most is a limit of --rate"),
        (("m", "--save", "/nowhere/x.gz"), "There is no folder /nowhere"),
        (("m", "--compare", "a", "b"), "--compare measures nothing"),
    ],
)
def test_options_that_do_not_fit_are_refused(bench, words, text, capsys):
    assert bench(*words) == 2
    assert text in capsys.readouterr().err


@pytest.mark.parametrize(
    "words", [("--users", "0"), ("--users", "1,x"), ("--rate", "nan"), ("--users", "1", "--rate", "1")]
)
def test_an_invalid_load_is_refused(bench, words, capsys):
    with pytest.raises(SystemExit) as stop:
        bench("m", *words)
    assert stop.value.code == 2


# -- saved runs ------------------------------------------------------------------------------------------------------


def answered(tpot, *, spread=0.1, n=220):
    """A run of answers whose time for a token is about *tpot*."""
    samples = []
    steps = random.Random(1).sample(range(n), n)
    for number in range(n):
        each = tpot * (1 + spread * (steps[number] % 11 - 5) / 5)
        first = number + 0.05
        last = first + 63 * each
        samples.append(Sample(number, number, "ok", first, last, last, 64, [each] * 63, 256, 0, 64))
    return Run(Level(users=10), samples, float(n))


def save(path, tpot, *, conditions=None, run=None):
    measured = [Measured("chat", 1.0, (run or answered(tpot),))]
    path.write_bytes(saved.pack(saved.document(CONDITIONS | (conditions or {}), measured, with_samples=True)))
    return str(path)


@pytest.fixture
def before(tmp_path):
    return save(tmp_path / "before.gz", 0.010)


def verdicts(text):
    return {line.split("\t")[2]: line.split("\t")[-1] for line in text.splitlines()[1:]}


def test_the_same_is_no_difference(before, capsys):
    assert main(["bench", "--compare", before, before]) == 0
    assert set(verdicts(capsys.readouterr().out).values()) == {"no difference"}


def test_slower_tokens_are_found_and_are_exit_code_1(before, tmp_path, capsys):
    after = save(tmp_path / "after.gz", 0.012)
    assert main(["bench", "--compare", before, after]) == 1
    found = verdicts(capsys.readouterr().out)
    assert (found["TPOT p50"], found["E2E p95"], found["TTFT p50"]) == ("slower", "slower", "no difference")


def test_faster_tokens_are_found_and_are_no_failure(before, tmp_path, capsys):
    after = save(tmp_path / "after.gz", 0.008)
    assert main(["bench", "--compare", before, after, "--json"]) == 0
    found = {one["figure"]: one for one in json.loads(capsys.readouterr().out)}
    assert found["TPOT p50"]["is_real"]
    assert found["TPOT p50"]["change"] == pytest.approx(-0.2, abs=0.02)


def test_a_figure_that_was_0_before_is_not_compared_for_that_reason_and_not_for_too_few_answers(tmp_path, capsys):
    before, after = save(tmp_path / "b.gz", 0.0), save(tmp_path / "a.gz", 0.012)
    main(["bench", "--compare", before, after])
    assert verdicts(capsys.readouterr().out)["TPOT p50"] == "it was 0 before"
    main(["bench", "--compare", before, after, "--json"])
    found = {one["figure"]: one for one in json.loads(capsys.readouterr().out)}
    assert found["TPOT p50"]["not_compared"] == "it was 0 before"
    assert found["TTFT p50"]["is_real"] is False


def test_more_failures_are_worse_however_fast_the_rest_is(before, tmp_path, capsys):
    run = answered(0.008)
    run.samples += [Sample(300.0, 300.0, "http-429", ended=300.0)] * 30
    after = save(tmp_path / "after.gz", 0.008, run=run)
    assert main(["bench", "--compare", before, after]) == 1
    assert "chat, 10 users: 12.0% of the requests failed, and 0.0% before" in capsys.readouterr().err


def test_runs_with_too_few_answers_are_no_success(before, tmp_path, capsys):
    after = save(tmp_path / "after.gz", 0.01, run=answered(0.01, n=5))
    assert main(["bench", "--compare", before, after]) == 3
    assert "Nothing could be compared" in capsys.readouterr().err


def test_a_level_that_one_run_alone_has_is_named(before, tmp_path, capsys):
    both = [Measured("chat", 1.0, (answered(0.01),)), Measured("vision", 1.0, (answered(0.01),))]
    after = tmp_path / "after.gz"
    after.write_bytes(saved.pack(saved.document(CONDITIONS, both, with_samples=True)))
    assert main(["bench", "--compare", before, str(after)]) == 0
    assert "vision, 10 users: only one of the runs has it" in capsys.readouterr().err


def test_an_invalid_run_is_not_compared_in_silence(before, tmp_path, capsys):
    run = answered(0.01)
    run.lags = [0.5] * 100
    after = save(tmp_path / "after.gz", 0.01, run=run)
    assert main(["bench", "--compare", before, after]) == 4
    assert "A run is invalid: this process was late by 500.0 ms" in capsys.readouterr().err


def test_runs_of_other_lengths_are_not_compared(before, tmp_path, capsys):
    after = save(tmp_path / "after.gz", 0.01, conditions={"answer_tokens": 128})
    assert main(["bench", "--compare", before, after]) == 2
    assert "answer_tokens is 64 in" in capsys.readouterr().err


def test_what_was_saved_is_what_was_measured(bench, tmp_path):
    file = tmp_path / "run.json.gz"
    assert bench("honest", "--users", "2", "--requests", "25", "--save", str(file)) == 0
    found = saved.read(file)
    series = found.levels["honest", "2 users"]
    assert {name: len(series[name]) for name in saved.SERIES} == dict.fromkeys(saved.SERIES, 25)
    raw = json.loads(gzip.decompress(file.read_bytes()))["levels"][0]["samples"]
    assert raw["outcome"] == ["ok"] * 25
    assert raw["output_tokens"] == [8] * 25
    assert all(len(gaps) == 7 for gaps in raw["gaps"])


packed = partial(gzip.compress, mtime=0)  # the time would be a part of the test's name, and differ between workers


LEVEL = (
    b'{"version": 1, "conditions": {}, "levels": [{"model": "chat", "figures": {"level": "10 users", "invalid": []}, '
    b'"samples": {"outcome": ["ok"], "ttft": %s, "tpot": [], "e2e": [1]}}]}'
)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"no gzip",
        packed(b"no json"),
        packed(b"[]"),
        packed(b'{"version": 2}'),
        packed(b'{"version": 1, "conditions": {}, "levels": [{}]}'),
        packed(b"[" * 100_000),
        packed(b"{}")[:-9],
        packed(b"x" * 1000)[:12] + b"\xff" * 8 + packed(b"x" * 1000)[20:],
        *(
            packed(LEVEL % series)
            for series in (b"[NaN]", b"[-1]", b"[1e999]", b'{"1": 2}', b'["1"]', b"[1" + b"0" * 400 + b"]")
        ),
    ],
)
def test_a_file_that_is_no_saved_run_is_refused(before, tmp_path, content, capsys):
    file = tmp_path / "x.gz"
    file.write_bytes(content)
    assert main(["bench", "--compare", before, str(file)]) == 2
    assert str(file) in capsys.readouterr().err


def test_a_file_that_is_missing_is_refused(before, tmp_path, capsys):
    assert main(["bench", "--compare", before, str(tmp_path / "none.gz")]) == 2
    assert "cannot be read: No such file" in capsys.readouterr().err
