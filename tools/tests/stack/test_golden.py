"""`corral golden` on a real stack: real llama-swap and engine behind the door; and at an endpoint of a stub."""

from __future__ import annotations

import json
import shutil

import pytest

from corral import paths
from corral.cli.main import main
from corral.engine import stack
from corral.golden import record
from tests.support import golden
from tests.support.demo_stack import demo_stack
from tests.support.locks import write_sealed
from tests.support.stub_endpoint import serve

pytestmark = pytest.mark.timeout(240)


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    """A stack, and the record of two of its models."""
    # On a busy machine the threads of an engine wait for each other, and use the processor meanwhile.
    alone = dict.fromkeys(("tiny-text", "tiny-vision"), "args: {threads: 1}\n")
    with demo_stack(tmp_path_factory.mktemp("golden"), more=alone) as (catalog, state):
        assert main(["golden", "record", "tiny-text", "tiny-vision"]) == 0
        yield catalog, state


@pytest.fixture
def golden_command(running, monkeypatch, capsys):
    """Runs `corral golden` on that stack: the exit code, stdout and stderr.  It leaves the record as it was."""
    monkeypatch.setenv("CORRAL_STATE", str(running[1]))
    before = record.read(running[0])
    capsys.readouterr()

    def run(*words):
        code = main(["golden", *words])
        return code, *capsys.readouterr()

    yield run
    record.write(running[0], before)


def recorded_otherwise(catalog, model, **changes):
    """Have the record of *model* differ: it is as if the model had changed since."""
    kept = record.read(catalog)
    changed = kept.models[model].model_copy(update=changes)
    record.write(catalog, kept.model_copy(update={"models": {**kept.models, model: changed}}))


def test_a_record_names_what_ran_and_a_check_of_it_passes(running, golden_command):
    code, out, _ = golden_command("check", "tiny-text", "tiny-vision", "--json")
    assert code == 0
    assert [(one["model"], one["state"], one["distance"], one["moved"]) for one in json.loads(out)] == [
        ("tiny-text", "passed", 0, []),
        ("tiny-vision", "passed", 0, []),
    ]
    kept = record.read(running[0]).models["tiny-vision"]
    assert kept.answers["images"].fields == {"colours": "red, blue, blue"}
    assert kept.answers["images-swapped"].fields == {"colours": "blue, blue, red"}
    assert kept.serving.engine == stack.running(running[1]).engine.build
    assert set(kept.serving.files) == {"tiny-vision-F16.gguf", "mmproj-tiny-vision-F32.gguf"}


def test_a_second_record_differs_in_date_and_speed_alone(running, golden_command):
    before = record.read(running[0]).models["tiny-text"]
    assert golden_command("record", "tiny-text")[0] == 0
    after = record.read(running[0])
    assert after.models.keys() == {"tiny-text", "tiny-vision"}
    same = {"date": before.date, "tokens_per_second": before.tokens_per_second}
    assert after.models["tiny-text"].model_copy(update=same) == before


def test_another_answer_fails_with_the_question_the_field_and_both_answers(running, golden_command):
    answers = dict(record.read(running[0]).models["tiny-vision"].answers)
    answers["images"] = answers["images"].model_copy(
        update={"fields": {"colours": "blue, red"}, "text": '{"colours":"blue, red"}'}
    )
    serving = golden.HERE.model_copy(update={"files": {"tiny-vision-Q8_0.gguf": "c" * 64}})
    recorded_otherwise(running[0], "tiny-vision", answers=answers, serving=serving)
    code, out, err = golden_command("check", "tiny-vision")
    assert code == 1
    assert "tiny-vision\timages\tfailed\t0.000\tfield colours: 'blue, red' → 'red, blue, blue'" in out
    assert "tiny-vision\timages-swapped\tpassed\t0.000" in out
    assert "tiny-vision: engine: b1 → " in err
    assert "tiny-vision: file tiny-vision-Q8_0.gguf: cccccccccccc → none" in err
    assert 'images: recorded \'{"colours":"blue, red"}\'' in err
    assert "tiny-vision, images: now      " in err
    assert "corral golden record tiny-vision" in err


def test_first_tokens_that_are_too_far_fail_though_every_field_is_right(running, golden_command):
    answers = {
        name: one.model_copy(update={"tokens": tuple(far(place) for place in one.tokens)})
        for name, one in record.read(running[0]).models["tiny-text"].answers.items()
    }
    recorded_otherwise(running[0], "tiny-text", answers=answers)
    code, out, _ = golden_command("check", "tiny-text")
    assert code == 1
    assert "tiny-text\tfirst tokens\tfailed\t" in out
    assert "limit 0.05, the same engine and machine" in out


def far(place):
    return place.model_copy(update={"top": {token: value - 0.3 for token, value in place.top.items()}})


def test_a_model_without_a_record_is_unknown_and_not_green(golden_command):
    code, out, _ = golden_command("check", "tiny-think")
    assert code == 1
    assert "tiny-think\tfirst tokens\tunknown\t-\tno answers of it are recorded" in out


def test_without_any_record_a_check_is_refused(running, golden_command):
    record.path_of(running[0]).unlink()
    code, _, err = golden_command("check")
    assert code == 2
    assert "Nothing is recorded" in err


def test_a_question_of_the_operators_own_is_unknown_until_it_is_recorded(running, golden_command):
    own = running[0] / "golden.yaml"
    own.write_text("questions: {mine: {messages: [{role: user, content: Are you there.}]}}\n")
    try:
        code, out, _ = golden_command("check", "tiny-text")
        assert code == 1
        assert "tiny-text\tmine\tunknown" in out
        assert golden_command("record", "tiny-text")[0] == 0
        assert golden_command("check", "tiny-text")[0] == 0
    finally:
        own.unlink()


def test_what_does_not_run_as_locked_is_refused_and_not_compared(running, golden_command, tmp_path):
    """The quant, or a flag, was changed and locked, and the stack was not started again."""
    other = tmp_path / "catalog"
    shutil.copytree(running[0], other)
    lock = json.loads((other / "lock.json").read_text())
    kept = record.read(other)
    for change, message in ((change_file, "other files"), (change_argv, "another command line")):
        changed = json.loads(json.dumps(lock))
        change(changed["models"]["tiny-text"])
        write_sealed(other / "lock.json", changed)
        code, _, err = golden_command("check", "tiny-text", "--catalog", str(other))
        assert (code, record.read(other)) == (2, kept)
        assert message in err


def change_file(entry):
    entry["files"][0]["sha256"] = "0" * 64


def change_argv(entry):
    entry["argv"][entry["argv"].index("-c") + 1] = "1024"


def test_an_endpoint_elsewhere_is_compared_with_what_moved_unknown(running, golden_command):
    address = stack.running(paths.state_dir()).endpoint
    code, out, err = golden_command("check", "tiny-text", "--endpoint", address, "--catalog", str(running[0]))
    assert code == 0
    assert "limit 0.2, across engines or machines" in out
    assert "tiny-text: files: unknown" in err


def test_an_endpoint_without_log_probabilities_is_neither_recorded_nor_green(running, golden_command):
    """The stub's answers have none; the real engine always has them."""
    with serve("tiny-text") as stub:
        where = ("tiny-text", "--endpoint", stub.root, "--catalog", str(running[0]))
        code, out, err = golden_command("check", *where)
        assert code == 1
        assert "tiny-text\tprose\tunknown\t-\tthe answer has no log-probabilities" in out
        assert f"corral golden record tiny-text --endpoint {stub.root} --catalog {running[0]}, and review" in err
        before = record.read(running[0])
        code, _, err = golden_command("record", *where)
        assert (code, record.read(running[0])) == (1, before)
        assert "is not recorded" in err
