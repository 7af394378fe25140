"""The verdict on a model's answers: each rule of a set, and what is better of several models."""

from __future__ import annotations

import itertools
import json

import pytest

from corral.bench.report import Files, Surroundings
from corral.evaluation import cases, judging, ranking, report, table
from tests.support import eval_sets
from tests.support.eval_sets import NUMBER, asked, schema

SCORED = schema(age=NUMBER, score=NUMBER)


@pytest.fixture
def make(tmp_path):
    """Makes a set of *count* cases, c1 and so on, each with age 34 expected."""

    numbers = itertools.count()

    def made(count=4, case=None, **common):
        found = {f"c{at}": case or {"expect": {"age": 34}} for at in range(1, count + 1)}
        return cases.load(eval_sets.write(tmp_path / f"set{next(numbers)}", found, **({"schema": SCORED} | common)))

    return made


def answers(*scores, age=34):
    return {f"c{at}": {"age": age, "score": score} for at, score in enumerate(scores, 1)}


def states(found):
    return {rule.name: rule.state for rule in found.rules}


def test_a_model_with_every_answer_right_passes_every_rule_of_its_set(make):
    of = make(20, score={"field": "score", "best": ["c1", "c2"]}, verdict={"p50_seconds": 1, "right": 1})
    found = judging.judge(of, asked(of, answers(100, 90, *[50] * 18)))
    assert states(found) == dict.fromkeys(("parsed", "fields right", "decisive top", "expected top", "p50"), "passed")
    assert (found.state, found.parsed, found.right, found.expected) == ("passed", 20, 20, 20)
    assert ranking.headline(found) == "m passes"


def test_an_answer_that_is_not_there_counts_in_every_share_and_is_never_right(make):
    of = make(4, verdict={"parsed": 0.75, "right": 0.75})
    found = judging.judge(of, asked(of, answers(1, 2, 3) | {"c4": "HTTP 500"}))
    assert (found.state, found.parsed, found.answers, found.right, found.expected) == ("passed", 3, 4, 3, 4)
    assert found.problems == (("c4", 1, "HTTP 500"),)
    worse = judging.judge(of, asked(of, answers(1, 2) | {"c3": "no", "c4": "no"}))
    assert states(worse) == {"parsed": "failed", "fields right": "failed"}


def test_without_rules_in_the_set_all_answers_must_be_parsed_and_all_fields_right(make):
    of = make(3)
    assert judging.judge(of, asked(of, answers(1, 2, 3))).state == "passed"
    wrong = judging.judge(of, asked(of, answers(1, 2) | {"c3": {"age": 35, "score": 1}}))
    assert states(wrong) == {"parsed": "passed", "fields right": "failed"}
    assert [vars(one) for one in wrong.wrong] == [
        {"case": "c3", "round": 1, "field": "age", "expected": "34", "got": "35"}
    ]
    assert ranking.headline(wrong) == "m fails by fields right (2 of 3, 66.6 %)"


def test_a_share_is_met_exactly_and_never_rounded_up(make):
    of = make(10, verdict={"right": 0.7})
    seven = answers(*range(7)) | {f"c{at}": {"age": 0, "score": 0} for at in (8, 9, 10)}
    assert judging.judge(of, asked(of, seven)).state == "passed"
    six = seven | {"c7": {"age": 0, "score": 0}}
    assert judging.judge(of, asked(of, six)).state == "failed"
    assert judging.share(2999, 3000) == "2999 of 3000, 99.9 %"


@pytest.mark.parametrize(
    ("expected", "got", "is_right"),
    [
        (34, 34, True),
        (34, 34.0, True),
        (1, True, False),
        (True, 1, False),
        (True, True, True),
        (0, False, False),
        (None, None, True),
        (None, 0, False),
        ("Rome", "Rome", True),
        ("Rome", "rome", False),
        ("Café", "Cafe\u0301", True),
        ("34", 34, False),
        (34, 10**400, False),
    ],
)
def test_a_value_is_right_as_json_has_it_and_not_as_python_does(make, expected, got, is_right):
    of = make(1, {"expect": {"x": expected}}, schema=schema(x={}))
    assert judging.judge(of, asked(of, {"c1": {"x": got}})).right == is_right


@pytest.mark.parametrize(
    ("got", "is_right"),
    [
        *((6, True), (8, True), (7.5, True), (5.999, False), (9, False), (True, False), ("7", False), (None, False)),
        *((10**400, False), (float("inf"), False), (float("nan"), False)),
    ],
)
def test_a_number_is_right_within_its_range_with_both_ends(make, got, is_right):
    of = make(1, {"between": {"x": [6, 8]}}, schema=schema(x={}))
    found = judging.judge(of, asked(of, {"c1": {"x": got}}))
    assert found.right == is_right
    assert not is_right or not found.wrong


def test_a_field_that_is_missing_is_wrong_and_what_is_wrong_is_bounded(make):
    of = make(1, {"expect": {"a": 1, "b": "x" * 500}}, schema=schema(a={}, b={}))
    missing, long = judging.judge(of, asked(of, {"c1": {"b": False}})).wrong
    assert (missing.field, missing.expected, missing.got) == ("a", "1", "none")
    assert (len(long.expected), long.got) == (80, "false")


@pytest.mark.parametrize(
    ("scores", "state", "found"),
    [
        ((90, 80, 70, 60), "passed", "rank 2: 80, rank 3: 70"),
        ((90, 70, 70, 60), "failed", "rank 2: 70, rank 3: 70"),
        ((90, 90, 70, 70), "passed", "rank 2: 90, rank 3: 70"),
        ((0, 0, 0, 0), "failed", "rank 2: 0, rank 3: 0"),
        ((90, 80, 70, None), "failed", "1 of 4 cases have no score"),
        ((90, 80, 70, "60"), "failed", "1 of 4 cases have no score"),
        ((90, 80, 70, True), "failed", "1 of 4 cases have no score"),
    ],
)
def test_the_top_is_decisive_when_its_last_score_is_above_the_next_one(make, scores, state, found):
    of = make(4, schema=schema(age=NUMBER, score={}), score={"field": "score", "top": 2})
    (rule,) = [one for one in judging.judge(of, asked(of, answers(*scores))).rules if one.name == "decisive top"]
    assert (rule.state, rule.found, rule.asked) == (state, found, "rank 2 above rank 3")


def test_a_case_without_an_answer_leaves_no_top_decisive(make):
    of = make(4, score={"field": "score", "top": 2}, verdict={"parsed": 0, "right": 0})
    found = judging.judge(of, asked(of, answers(90, 80, 70) | {"c4": "HTTP 500"}))
    assert states(found)["decisive top"] == "failed"


@pytest.mark.parametrize(
    ("scores", "state", "found"),
    [
        ((10, 90, 80, 20), "passed", "all 2 are"),
        ((80, 90, 80, 20), "failed", "not above c1 with 80: c3"),
        ((99, 90, 80, 20), "failed", "not above c1 with 99: c2, c3"),
        ((None, 90, 80, 20), "failed", "1 of 4 cases have no score"),
    ],
)
def test_the_expected_cases_must_be_above_all_others(make, scores, state, found):
    of = make(4, schema=schema(age=NUMBER, score={}), score={"field": "score", "best": ["c2", "c3"]})
    (rule,) = [one for one in judging.judge(of, asked(of, answers(*scores))).rules if one.name == "expected top"]
    assert (rule.state, rule.found) == (state, found)


def test_a_decisive_top_of_the_wrong_cases_is_decisive_and_not_expected(make):
    of = make(4, score={"field": "score", "best": ["c3", "c4"]})
    found = judging.judge(of, asked(of, answers(90, 80, 20, 10)))
    assert (states(found)["decisive top"], states(found)["expected top"]) == ("passed", "failed")


def test_one_round_that_is_not_decisive_is_enough_to_fail(make):
    of = make(4, score={"field": "score", "best": ["c1", "c2"]})
    found = judging.judge(of, asked(of, answers(90, 80, 70, 60), answers(90, 70, 70, 60), answers(90, 80, 70, 60)))
    assert states(found) | {"decisive top": "failed", "expected top": "failed"} == states(found)


@pytest.mark.parametrize(
    ("count", "rounds", "seconds", "state"),
    [
        (10, 2, 2.0, "passed"),
        (10, 2, 2.001, "failed"),
        (10, 1, 0.1, "unknown"),
        (19, 1, 99.0, "unknown"),
    ],
)
def test_a_median_needs_twenty_whole_answers_or_is_unknown_which_is_no_pass(make, count, rounds, seconds, state):
    of = make(count, verdict={"p50_seconds": 2})
    found = judging.judge(of, asked(of, *[answers(*range(count))] * rounds, seconds=seconds))
    assert (states(found)["p50"], found.state) == (state, state)


def test_a_p95_needs_two_hundred_answers_and_the_way_there_is_named(make):
    of = make(10, verdict={"p95_seconds": 2})
    few, enough = (judging.judge(of, asked(of, *[answers(*range(10))] * rounds)) for rounds in (19, 20))
    assert (few.state, enough.state) == ("unknown", "passed")
    assert few.rules[-1].found == "n too small: 190 of 200 whole answers; --repeat 20 asks for 200"


def test_answers_that_never_came_have_no_time(make):
    of = make(20, verdict={"parsed": 0, "right": 0, "p50_seconds": 2})
    found = judging.judge(of, asked(of, dict.fromkeys(answers(*range(20)), "HTTP 500"), seconds=None))
    assert (found.state, states(found)["p50"], found.spread.n) == ("unknown", "unknown", 0)
    assert found.rules[-1].found == "n too small: 0 of 20 whole answers"  # which no --repeat would change


def test_the_distribution_has_its_ends_its_quartiles_and_a_bar_for_each_tenth(make):
    of = make(5, score={"field": "score"})
    found = judging.judge(of, asked(of, answers(0, 50, 50, 99, 100)))
    assert found.scores.line() == "min 0, quartiles 50 / 50 / 99, max 100, 4 different; 0 ▄····█···█ 100"
    assert "decisive top" not in states(found)
    free = make(2, schema=schema(age=NUMBER, score={"type": "number"}), score={"field": "score"})
    assert judging.judge(free, asked(free, answers(-2, 2))).scores.line().endswith("2 different; -2 █········█ 2")
    assert judging.judge(free, asked(free, answers(3, 3))).scores.line().endswith("1 different; 3 █········· 3")


def both(of, first, second):
    return [
        judging.judge(of, asked(of, first[0], seconds=first[1], model="a")),
        judging.judge(of, asked(of, second[0], seconds=second[1], model="b")),
    ]


def better(models):
    return {one.measure: one.better for one in ranking.compare(models)}


def test_models_are_compared_by_each_measure(make):
    of = make(20, score={"field": "score", "best": ["c1"]}, verdict={"p50_seconds": 2})
    good, bad = answers(9, *[1] * 19), answers(*[9] * 20, age=3) | {"c2": "HTTP 500"}
    models = both(of, (good, 1.9), (bad, 1.0))
    assert better(models) == {
        "verdict": "a",
        "parsed": "a",
        "fields right": "a",
        "decisive top": "a",
        "expected top": "a",
        "p50": "b",
        "p95": "n too small",
    }
    assert better(both(of, (good, 1.0), (good, 1.04))) == dict.fromkeys(better(models), "alike") | {
        "p95": "n too small"
    }


def test_a_faster_model_is_one_that_is_faster_for_the_cases_and_not_by_chance(make):
    of = make(20, verdict={"p50_seconds": 2})
    models = both(of, (answers(*range(20)), 1.0), (answers(*range(20)), 1.5))
    assert better(models)["p50"] == "a"
    seconds = tuple((case, number, 0.9 if at < 8 else 1.5) for at, (case, number, _) in enumerate(models[1].seconds))
    mixed = judging.Judged(**(vars(models[1]) | {"seconds": seconds}))
    assert better([models[0], mixed])["p50"] == "alike"


def test_a_model_that_loses_by_latency_alone_is_named_as_such(make):
    of = make(20, verdict={"p50_seconds": 2})
    slow, wrong = both(of, (answers(*range(20)), 3.0), (answers(*range(20), age=3), 3.0))
    assert ranking.headline(slow) == "a fails by latency alone: p50 (3.000 s)"
    assert ranking.headline(wrong) == "b fails by fields right (0 of 20, 0 %), p50 (3.000 s)"
    unknown = judging.judge(of, asked(of, answers(*range(20)), seconds=None))
    assert ranking.headline(unknown).startswith("m is unknown by p50 (n too small")


def test_lines_of_wrong_answers_are_bounded_and_the_rest_is_counted(make):
    of = make(30)
    found = judging.judge(of, asked(of, answers(*range(30), age=3)))
    lines = list(table.lines(found, rounds=1))
    assert len(lines) == table.MOST_LINES + 1
    assert lines[0] == "m, c1: field age: expected 34, got 3"
    assert lines[-1] == "m: … and 10 more; --json has all"


def test_json_has_everything_and_is_json(make):
    of = make(2, score={"field": "score", "top": 1})
    found = judging.judge(of, asked(of, answers(1, 2), answers(1, 2) | {"c1": "HTTP 500"}))
    (one,) = json.loads(json.dumps(table.as_json([found]), allow_nan=False))
    assert (one["state"], one["parsed"], one["answers"]) == ("failed", 3, 4)
    assert one["problems"] == [{"case": "c1", "round": 2, "problem": "HTTP 500"}]
    assert one["by_field"] == {"age": {"right": 3, "expected": 4}}
    assert one["spread"]["n"] == 4


def test_a_document_has_the_verdicts_and_nothing_of_an_answer_is_markup(make, tmp_path):
    of = make(2, {"expect": {"age": "34"}}, schema=schema(age={}, score=NUMBER), score={"field": "score", "top": 1})
    first, second = (
        asked(of, {"c1": {"age": "34", "score": 1}, "c2": {"age": "<b>|x", "score": 2}}, model=model) for model in "ab"
    )
    files = Files(tmp_path / "docs", "2026-11-25-x")
    judged = [judging.judge(of, one) for one in (first, second)]
    around = Surroundings("corral eval set a b", facts=[("corral", "1")], unknown="Not known.")
    report.write(files, "X", "2026-11-25", of, [first, second], judged, around)
    text = files.document.read_text()
    assert "**a fails by fields right (1 of 2, 50 %).**" in text
    assert "| a | decisive top | rank 1: 2, rank 2: 1 | rank 1 above rank 2 | passed |" in text
    assert "| verdict | failed | failed | alike |" in text
    assert "got '\\<b\\>\\|x'" in text
    assert files.beside("-scores.svg").read_text().startswith("<svg")
    assert {one.suffix for one in files.folder.iterdir()} == {".md", ".svg", ".gz"}
