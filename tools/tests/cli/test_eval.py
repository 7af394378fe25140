"""`corral eval` without a stack: its usage, and what it leaves when an endpoint goes away."""

from __future__ import annotations

import re
import shlex

import pytest

from corral.cli import bench_report
from corral.cli.main import main
from tests.support import eval_sets
from tests.support.engine_process import free_port
from tests.support.eval_sets import NUMBER, schema
from tests.support.stub_endpoint import answers, in_turn, serve

RIGHT = answers('{"age": 34}')


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("CORRAL_STATE", str(tmp_path / "state"))
    return eval_sets.write(tmp_path / "set", {"c1": {"expect": {"age": 34}}}, schema=schema(age=NUMBER))


def test_the_results_of_a_model_are_printed_when_the_next_one_cannot_be_asked(folder, capsys):
    """The stub closes its port before the last answer to the first model is complete."""
    with serve("a", "b") as stub:

        def last(exchange):
            exchange.server.shutdown()
            exchange.server.socket.close()
            RIGHT(exchange)

        stub.acts["a", "*"] = in_turn(RIGHT, last)
        code = main(["eval", str(folder), "a", "b", "--endpoint", stub.root])
    printed = capsys.readouterr()
    assert code == 3
    assert "a\tverdict\tpassed" in printed.out
    assert "the connection broke" in printed.err


def test_a_report_names_the_command_that_repeats_it(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(bench_report, "FOLDER", tmp_path)
    with serve("a") as stub:
        stub.acts["a", "*"] = RIGHT
        words = ["a", "--repeat", "2", "--timeout", "7", "--report", "First one", "--endpoint", stub.root]
        assert main(["eval", str(folder), *words]) == 0
        (document,) = tmp_path.glob("*.md")
        (shown,) = re.findall(r"^\$ corral (.+)$", document.read_text(), re.MULTILINE)
        assert shlex.split(shown) == ["eval", str(folder), *words]
        document.unlink()
        assert main(shlex.split(shown)) == 0
        assert len(stub.asked) == 2 * (1 + 2)


def test_an_endpoint_that_is_not_there_is_exit_code_3(folder, capsys):
    assert main(["eval", str(folder), "a", "--endpoint", f"http://127.0.0.1:{free_port()}"]) == 3
    assert capsys.readouterr().out == ""


def test_a_set_that_breaks_a_rule_is_refused_before_anything_is_asked(folder, capsys):
    (folder / "set.yaml").write_text("answers: 3\n")
    with serve("a") as stub:
        assert main(["eval", str(folder), "a", "--endpoint", stub.root]) == 2
        assert stub.paths == []
    assert "set.yaml:1: answers: unknown key answers" in capsys.readouterr().err


def test_without_a_model_it_is_wrong_usage(folder, capsys):
    with pytest.raises(SystemExit) as error:
        main(["eval", str(folder)])
    assert error.value.code == 2
    assert "MODEL" in capsys.readouterr().err


def test_a_model_that_is_named_twice_is_asked_once(folder, capsys):
    with serve("a") as stub:
        stub.acts["a", "*"] = RIGHT
        assert main(["eval", str(folder), "a", "a", "--endpoint", stub.root]) == 0
        assert len(stub.asked) == 2
    assert "measure\ta" not in capsys.readouterr().out
