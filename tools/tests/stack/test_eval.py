"""`corral eval` on a real stack: models with known answers, the demo's sets, and what is refused."""

from __future__ import annotations

import json
import shutil

import pytest

from corral import paths
from corral.cli import bench_report
from corral.cli.main import main
from corral.engine import stack
from tests.support import eval_sets
from tests.support.demo_stack import demo_stack
from tests.support.eval_sets import NUMBER, schema
from tests.support.locks import write_sealed

pytestmark = pytest.mark.timeout(240)
DEMO = paths.REPOSITORY / "terraform" / "catalog-demo" / "evals"
WORD = schema(word={"type": "string", "maxLength": 20})


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    # On a busy machine the threads of an engine wait for each other, and use the processor meanwhile.
    alone = dict.fromkeys(("tiny-text", "tiny-vision"), "args: {threads: 1}\n")
    with demo_stack(tmp_path_factory.mktemp("eval"), more=alone) as (catalog, state):
        yield catalog, state


@pytest.fixture
def evaluate(running, monkeypatch, capsys):
    """Runs `corral eval` on that stack: the exit code, stdout and stderr."""
    monkeypatch.setenv("CORRAL_STATE", str(running[1]))
    capsys.readouterr()

    def run(*words):
        code = main(["eval", *map(str, words)])
        return code, *capsys.readouterr()

    return run


@pytest.fixture
def patient(tmp_path):
    """Copies a set of the demo, for a machine that does other work: its latencies have an hour."""

    def copied(name):
        folder = tmp_path / name
        shutil.copytree(DEMO / name, folder)
        text = (folder / "set.yaml").read_text()
        assert "p50_seconds: 3.55" in text
        (folder / "set.yaml").write_text(text.replace("p50_seconds: 3.55", "p50_seconds: 3600"))
        return folder

    return copied


def found(out):
    (one,) = json.loads(out)["models"]
    return one


def test_the_tiny_vision_model_has_every_image_of_the_demos_set_right(evaluate, patient):
    code, out, err = evaluate(patient("colours"), "tiny-vision", "--repeat", "4", "--json")
    one = found(out)
    assert code == 0
    assert (one["state"], one["answers"], one["parsed"], one["right"], one["expected"]) == ("passed", 24, 24, 24, 24)
    assert [(rule["name"], rule["state"]) for rule in one["rules"]] == [
        ("parsed", "passed"),
        ("fields right", "passed"),
        ("p50", "passed"),
    ]
    assert one["wrong"] == one["problems"] == []
    assert "tiny-vision passes." in err


def test_fewer_answers_than_a_median_needs_are_no_pass(evaluate, patient):
    code, out, _ = evaluate(patient("colours"), "tiny-vision")
    assert code == 1
    assert (
        "tiny-vision\tp50\tn too small: 6 of 20 whole answers; --repeat 4 asks for 24\tat most 3600 s\tunknown" in out
    )
    assert "tiny-vision\tverdict\tunknown\t-\tunknown" in out


def test_a_model_that_gives_all_candidates_the_same_score_has_no_decisive_top(evaluate, patient):
    """The tiny model says 0, true and the last city, whatever it is asked."""
    code, out, err = evaluate(patient("digests"), "tiny-text")
    assert code == 1
    rows = {row.split("\t")[1]: row.split("\t")[2:] for row in out.splitlines()}
    assert rows["parsed"] == ["30 of 30, 100 %", "at least 100 %", "passed"]
    assert rows["fields right"] == ["60 of 150, 40 %", "at least 90 %", "failed"]
    assert rows["field years"][0] == "0 of 30, 0 %"
    assert rows["decisive top"] == ["rank 5: 0, rank 6: 0", "rank 5 above rank 6", "failed"]
    assert rows["expected top"][2] == "failed"
    assert rows["score"][0] == "min 0, quartiles 0 / 0 / 0, max 0, 1 different; 0 █········· 100"
    assert rows["p50"][2] == "passed"
    assert "tiny-text: … and " in err


def test_a_wrong_expectation_fails_with_the_case_what_is_expected_and_what_came(evaluate, patient):
    folder = patient("colours")
    case = folder / "cases" / "red-blue.yaml"
    case.write_text(case.read_text().replace('"red, blue"', '"blue, red"'))
    code, out, err = evaluate(folder, "tiny-vision", "--repeat", "4", "--json")
    assert code == 1
    assert (found(out)["right"], found(out)["expected"]) == (20, 24)
    assert "tiny-vision, red-blue, round 4: field colours: expected 'blue, red', got 'red, blue'" in err
    assert "tiny-vision fails by fields right (20 of 24, 83.3 %)." in err


def test_two_models_are_compared_and_one_that_thinks_answers_without_thoughts(evaluate, tmp_path):
    one = {f"c{at}": {"expect": {"word": "OK"}} for at in (1, 2)}
    folder = eval_sets.write(tmp_path / "words", one, schema=WORD, answer_tokens=36)  # with thoughts it takes 38
    code, out, err = evaluate(folder, "tiny-text", "tiny-think")
    assert code == 0
    assert "measure\ttiny-text\ttiny-think\tbetter" in out
    assert "verdict\tpassed\tpassed\talike" in out
    assert "fields right\t2 of 2, 100 %\t2 of 2, 100 %\talike" in out
    assert "tiny-think passes." in err


def test_what_the_engine_does_not_bind_is_checked_here(evaluate, tmp_path):
    """llama.cpp takes this pattern, and ignores it: the answer is OK."""
    bound = schema(word={"type": "string", "pattern": "^(?!OK)"})
    folder = eval_sets.write(tmp_path / "s", {"c1": {}}, schema=bound)
    code, out, err = evaluate(folder, "tiny-text", "--json")
    assert (code, found(out)["parsed"]) == (1, 0)
    assert "tiny-text, c1: not parsed: not by the schema at word: 'OK' does not match" in err


def test_an_answer_that_its_tokens_do_not_hold_is_not_parsed(evaluate, tmp_path):
    folder = eval_sets.write(tmp_path / "s", {"c1": {"expect": {"word": "OK"}}}, schema=WORD, answer_tokens=3)
    code, _, err = evaluate(folder, "tiny-text")
    assert code == 1
    assert "it was cut off: an answer has at most 3 tokens (answer_tokens in set.yaml)" in err


def test_a_schema_that_the_real_engine_refuses_is_an_error_with_its_reason(evaluate, tmp_path):
    long = schema(word={"type": "string", "minLength": 5000})
    folder = eval_sets.write(tmp_path / "s", {"c1": {}, "c2": {"schema": long}}, schema=WORD)
    code, out, err = evaluate(folder, "tiny-text")
    assert (code, out) == (2, "")
    assert "The engine of tiny-text refuses the schema of case c2: HTTP 400" in err
    assert "failed to parse grammar" in err


def test_a_prompt_beyond_the_context_is_one_answer_that_is_not_there(evaluate, tmp_path):
    cases = {"c1": {"expect": {"word": "OK"}}, "c2": {"prompt": "a" * 5000}, "c3": {"expect": {"word": "OK"}}}
    folder = eval_sets.write(tmp_path / "s", cases, schema=WORD)
    code, out, err = evaluate(folder, "tiny-text", "--json")
    assert (code, found(out)["parsed"], found(out)["right"]) == (1, 2, 2)
    assert "tiny-text, c2: no answer: HTTP 400" in err
    assert "context" in err


def test_images_are_for_models_that_take_them(running, evaluate):
    code, _, err = evaluate(DEMO / "colours", "tiny-vision", "tiny-text")
    assert code == 2
    assert "tiny-text takes no images, and case blue-red-red-red of colours has some." in err
    address = stack.running(running[1]).endpoint
    code, out, err = evaluate(DEMO / "colours", "tiny-text", "--endpoint", address, "--json")
    assert (code, found(out)["parsed"], found(out)["right"]) == (1, 0, 0)
    assert "image input is not supported" in err


def test_a_model_that_is_not_there_is_refused_or_has_no_answers(running, evaluate):
    code, _, err = evaluate(DEMO / "colours", "none")
    assert code == 2
    assert "The lock has no model none." in err
    address = stack.running(running[1]).endpoint
    code, out, err = evaluate(DEMO / "colours", "none", "--endpoint", address, "--json")
    assert (code, found(out)["parsed"]) == (1, 0)
    assert "the endpoint does not know none" in err


def test_what_does_not_run_as_locked_is_not_evaluated(running, evaluate, tmp_path):
    other = tmp_path / "catalog"
    shutil.copytree(running[0], other)
    lock = json.loads((other / "lock.json").read_text())
    for change, message in ((change_file, "other files"), (change_argv, "another command line")):
        changed = json.loads(json.dumps(lock))
        change(changed["models"]["tiny-vision"])
        write_sealed(other / "lock.json", changed)
        code, out, err = evaluate(DEMO / "colours", "tiny-vision", "--catalog", other)
        assert (code, out) == (2, "")
        assert message in err


def change_file(entry):
    entry["files"][0]["sha256"] = "0" * 64


def change_argv(entry):
    entry["argv"][entry["argv"].index("-c") + 1] = "1024"


def test_a_report_is_a_document_with_its_conditions_and_a_command_that_remakes_it(
    running, evaluate, tmp_path, monkeypatch
):
    monkeypatch.setattr(bench_report, "FOLDER", tmp_path / "docs")
    folder = eval_sets.write(
        tmp_path / "words",
        {f"c{at}": {"expect": {"word": "OK"}} for at in (1, 2)},
        schema=schema(word={"type": "string", "maxLength": 20}, score=NUMBER),
        score={"field": "score", "top": 1},
    )
    code, _, err = evaluate(folder, "tiny-text", "--report", "Known answers")
    assert code == 1
    (document,) = (tmp_path / "docs").glob("*-known-answers.md")
    assert f"Written: {document}" in err
    text = document.read_text()
    assert f"$ corral eval {folder} tiny-text --report 'Known answers'" in text
    assert "**tiny-text fails by decisive top (rank 1: 0, rank 2: 0).**" in text
    lock = json.loads((running[0] / "lock.json").read_text())
    assert f"| lock | {lock['seal'][:12]} |" in text
    assert f"| engine | build {stack.running(running[1]).engine.build}" in text
    code, out, err = evaluate(folder, "tiny-text", "--report", "Known answers")
    assert (code, out) == (2, "")
    assert "is there already" in err
