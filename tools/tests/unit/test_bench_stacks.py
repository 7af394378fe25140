"""The break-even of two serving stacks: by known throughputs, with an interval, and what the gate makes of it."""

from __future__ import annotations

import json
import re
import shlex

import pytest

from corral.bench import stacks
from corral.bench.exchange import Outcome, Sample
from corral.bench.load import Level, Run
from corral.bench.measuring import Measured
from corral.bench.stacks import LLAMA_CPP, VLLM, Stack
from corral.cli import bench_report
from corral.cli.main import build_parser, main
from corral.errors import Refused
from corral.gate import stack as gate_stack
from corral.gate.stack import Inputs
from tests.support.paced_endpoint import Pace, serving


def run_of(users, tokens_per_s, *, failed=0, seconds=20.0, lags=(0.001,)):
    """A level at which answers end evenly, of so many tokens a second together."""
    answers, per_answer = 200, tokens_per_s * seconds / 200
    samples = [
        Sample(at, at, Outcome.OK, at, at + seconds / answers, at + seconds / answers, 2, [0.1], 8, 0, per_answer)
        for at in (number * seconds / answers for number in range(answers))
    ]
    samples += [Sample(0.0, 0.0, "http-429", ended=0.1) for _ in range(failed)]
    return Run(Level(users=users), samples, seconds, list(lags))


def measured(rates, **how):
    return Measured("m", 1.0, tuple(run_of(users, rate, **how) for users, rate in rates.items()))


def test_the_break_even_is_where_the_throughputs_cross_for_good():
    found = stacks.break_even(measured({1: 30, 10: 60, 100: 60}), measured({1: 20, 10: 40, 100: 80}))
    assert found.users == pytest.approx(10**1.5, rel=0.01)
    assert found.low <= found.users <= found.high
    assert found.high / found.low < 1.2  # even answers leave little to chance


def test_it_is_the_smallest_level_where_vllm_is_always_ahead():
    found = stacks.break_even(measured({1: 30, 10: 60}), measured({1: 40, 10: 90}))
    assert (found.users, found.low, found.high) == (1, 1, 1)


def test_a_lead_that_is_lost_again_is_none():
    found = stacks.break_even(measured({1: 30, 10: 60, 100: 90}), measured({1: 40, 10: 90, 100: 80}))
    assert (found.users, found.low, found.high, found.most) == (None, None, None, 100)
    assert str(found).startswith("above 100 users")


def test_levels_with_failures_or_a_late_client_do_not_count():
    other = measured({1: 20, 10: 90})
    assert stacks.break_even(measured({1: 30, 10: 60}, failed=20), other) is None
    assert stacks.break_even(measured({1: 30, 10: 60}, lags=[0.5] * 100), other) is None


def test_all_tokens_of_a_level_are_in_its_slices():
    run = run_of(10, 123.0)
    assert sum(stacks._slices(run)) / stacks.SLICES == pytest.approx(123.0, rel=0.01)


def test_a_stack_that_was_not_measured_has_a_row_with_the_reason_and_no_figure():
    rows = list(stacks.rows([Stack(LLAMA_CPP, measured({1: 30})), Stack("tgi", None, "not measured: no answer")]))
    assert rows[0][:3] == (LLAMA_CPP, "1", "200")
    by_name = {row[0]: row for row in rows}
    assert by_name["tgi"][-1] == "not measured: no answer"
    assert by_name[VLLM][-1] == "not measured: no --endpoint vllm=URL was given"
    assert set(by_name["sglang"][1:-1]) == {"-"}


@pytest.mark.parametrize(
    ("at_once", "even", "decided"),
    [
        (11, {"users": 15.0, "low": 12.5, "high": 18.0, "most": 100}, gate_stack.LLAMA_CPP),
        (14, {"users": 15.0, "low": 12.5, "high": 18.0, "most": 100}, None),
        (18, {"users": 15.0, "low": 12.5, "high": 18.0, "most": 100}, gate_stack.VLLM),
        (20, {"users": 15.0, "low": 12.5, "high": None, "most": 100}, None),
        (20, {"users": None, "low": None, "high": None, "most": 25}, gate_stack.LLAMA_CPP),
        (28, {"users": None, "low": None, "high": None, "most": 25}, None),
    ],
)
def test_the_gate_decides_by_the_interval_and_not_within_it(tmp_path, at_once, even, decided):
    file = tmp_path / "even.json"
    file.write_text(json.dumps({"version": 1, "conditions": {"model": "m"}, "break_even": even}))
    given = Inputs(at_once, "test", has_card=True, **gate_stack.given_break_even(str(file), "m"))
    assert gate_stack.decide(given) == decided


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{}", "neither a number"),
        ('{"version": 1, "conditions": {"model": "other"}, "break_even": null}', "for other, not for m"),
        ('{"version": 1, "conditions": {"model": "m"}, "break_even": null}', "has no break-even"),
        (
            '{"version": 1, "conditions": {"model": "m"}, "break_even": {"users": -1, "low": 1, "high": 2, "most": 3}}',
            "neither a number",
        ),
    ],
)
def test_a_file_that_is_no_comparison_of_the_model_is_refused(tmp_path, content, words):
    (tmp_path / "even.json").write_text(content)
    with pytest.raises(Refused, match=words):
        gate_stack.given_break_even(str(tmp_path / "even.json"), "m")


def test_the_command_measures_each_endpoint_and_saves_what_the_gate_reads(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("CORRAL_STATE", str(tmp_path / "state"))
    monkeypatch.setattr(bench_report, "FOLDER", tmp_path / "benchmarks")
    file = tmp_path / "even.json"
    with serving(Pace(first_s=0.001, token_s=0.001, tokens=8)) as slow, serving(Pace(0.001, 0.0, 8)) as fast:
        words = ["--endpoint", f"llama.cpp={slow}#chat", "--endpoint", f"vllm={fast}#chat"]
        words += ["--endpoint", "tgi=http://127.0.0.1:1", "--users", "1,2", "--seconds", "0.5", "--answer-tokens", "8"]
        code = main(["compare-stacks", "m", *words, "--save", str(file), "--report", "even"])
    printed = capsys.readouterr()
    found = json.loads(file.read_text())
    assert found["conditions"]["model"] == "m"
    assert {name: "levels" in one for name, one in found["stacks"].items()} == {
        "llama.cpp": True,
        "vllm": True,
        "tgi": False,
    }
    assert "not measured" in printed.out
    assert "Break-even of llama.cpp and vLLM" in printed.err
    assert code == (0 if found["break_even"] else 1)
    (document,) = (tmp_path / "benchmarks").glob("*-even.md")
    (command,) = re.findall(r"^\$ (corral compare-stacks m .*)$", document.read_text(), re.MULTILINE)
    again = build_parser(only="*").parse_args(shlex.split(command)[1:])
    assert [str(one) for one in again.endpoint] == [word for word in words if "=" in word]
    assert (again.users, again.answer_tokens, again.report) == ((1, 2), 8, "even")


@pytest.mark.parametrize("words", [["vllm"], ["vllm=ftp://x"], ["=http://x"]])
def test_an_endpoint_that_is_none_is_wrong_usage(words, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["compare-stacks", "m", "--endpoint", *words])
    assert ended.value.code == 2
    assert "NAME=URL" in capsys.readouterr().err
