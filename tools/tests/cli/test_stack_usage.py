"""The commands of the local stack where nothing runs, and where they are used wrongly."""

from __future__ import annotations

import json

import pytest

from corral import paths
from corral.cli.main import main
from corral.engine import stack
from corral.engine.stack_folder import StackFolder
from corral.errors import CannotRun


def test_status_of_nothing_fails_with_the_next_command(capsys):
    assert main(["status"]) == 1
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "corral up --detach" in shown.err


def test_status_of_nothing_as_json_fails_too(capsys):
    assert main(["status", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["running"] is False


def test_down_of_nothing_is_fine(capsys):
    assert main(["down"]) == 0
    assert "Nothing is running" in capsys.readouterr().err


@pytest.mark.parametrize("words", [[], ["--previous"]])
def test_logs_of_nothing_cannot_be_shown(capsys, words):
    assert main(["logs", *words]) == 3
    assert "corral up" in capsys.readouterr().err


def test_the_log_of_a_model_needs_a_running_stack(capsys):
    assert main(["logs", "qwen3-8b"]) == 3
    assert "qwen3-8b" in capsys.readouterr().err


def test_the_previous_log_of_a_model_does_not_exist(capsys):
    assert main(["logs", "qwen3-8b", "--previous"]) == 2


def test_the_last_lines_of_a_log_are_shown(capsys):
    log = StackFolder(paths.state_dir()).log
    log.parent.mkdir(parents=True)
    log.write_text("one\ntwo\nthree\n")
    assert main(["logs", "-n", "2"]) == 0
    assert capsys.readouterr().out == "two\nthree\n"


@pytest.mark.parametrize(
    "words",
    [
        ["up", "--port", "0"],
        ["up", "--port", "65536"],
        ["up", "--port", "web"],
        ["logs", "--lines", "0"],
        ["logs", "--follow", "--previous"],
    ],
    ids=" ".join,
)
def test_wrong_usage_is_refused(words, capsys):
    with pytest.raises(SystemExit) as error:
        main(words)
    assert error.value.code == 2


def test_up_without_a_lock_names_the_command(tmp_path, capsys):
    (tmp_path / "models").mkdir()
    (tmp_path / "cards").mkdir()
    (tmp_path / "cards" / "laptop.yaml").write_text("vram_mib: 4096\n")
    intent = {"source": {"path": "/m.gguf"}, "card": "laptop", "context": 512, "modalities": ["text"]}
    (tmp_path / "models" / "m.yaml").write_text(json.dumps(intent))
    assert main(["up", "--detach", "--catalog", str(tmp_path)]) == 2
    assert f"corral lock --catalog {tmp_path}" in capsys.readouterr().err


def test_up_with_a_wrong_engine_names_it(monkeypatch, capsys, tmp_path):
    monkeypatch.setenv("LLAMA_SERVER", str(tmp_path / "nothing"))
    assert main(["engine"]) == 2
    assert str(tmp_path / "nothing") in capsys.readouterr().err


def test_the_engine_command_names_each_program(capsys):
    assert main(["engine", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert set(shown) == {"llama-server", "llama-swap", "caddy"}
    assert all(set(one) == {"path", "origin", "build"} for one in shown.values())


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"process": 1}'])
def test_a_damaged_record_is_never_taken_for_nothing(content, tmp_path):
    record = StackFolder(tmp_path).record
    record.parent.mkdir(parents=True)
    record.write_text(content)
    for ask in (stack.running, stack.stop, stack.clear_leftovers):
        with pytest.raises(CannotRun, match="is damaged, and a stack may be running") as error:
            ask(tmp_path)
        assert error.value.message.endswith(": it is not what `corral up` writes.")
        assert str(record) in error.value.next_step
    assert record.exists()


def test_a_state_folder_that_cannot_be_written_is_named(tmp_path, monkeypatch, capsys):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("CORRAL_STATE", str(tmp_path / "file"))
    assert main(["down"]) == 3
    assert "CORRAL_STATE" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["load", "unload"])
def test_a_model_is_loaded_only_where_something_runs(command, capsys):
    assert main([command, "qwen3-8b"]) == 3
    assert "No local stack is running, and nothing was applied" in (shown := capsys.readouterr().err)
    assert "corral up --detach here" in shown
    assert main([command, "qwen3-8b", "--catalog", "mine"]) == 3
    assert "corral up --detach --catalog mine here" in capsys.readouterr().err
