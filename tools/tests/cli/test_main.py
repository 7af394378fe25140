"""The frame of the command line: help, exit codes, errors as sentences."""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from corral.cli import main as cli
from corral.errors import CannotRun, ExitCode, Failed, Refused
from corral.paths import REPOSITORY


@pytest.fixture
def failing(monkeypatch):
    """A command `validate` that raises what it is given."""

    def install(error):
        def run(args):
            raise error

        monkeypatch.setattr("corral.cli.validate.run", run)

    return install


def test_help_names_every_command(capsys):
    with pytest.raises(SystemExit) as ended:
        cli.main(["--help"])

    shown = capsys.readouterr().out
    assert ended.value.code == 0
    assert [name for name in cli.COMMANDS if f"\n    {name}" not in shown] == []
    assert "exit codes" in shown


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_every_command_explains_itself(name, capsys):
    with pytest.raises(SystemExit) as ended:
        cli.main([name, "--help"])

    assert ended.value.code == 0
    assert len(capsys.readouterr().out.splitlines()) > 8


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_every_command_takes_a_catalog(name, capsys):
    with pytest.raises(SystemExit):
        cli.main([name, "--help"])

    assert "--catalog DIR" in capsys.readouterr().out


def test_help_imports_no_command_and_no_library():
    heavy = {"pydantic", "rich", "httpx2", "huggingface_hub", "yaml", "jinja2", "psutil", "numpy"}
    probe = f"import sys, corral.cli.main as m; m.build_parser(); print(sorted({heavy} & set(sys.modules)))"

    shown = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True).stdout

    assert shown == "[]\n"


def test_no_command_is_wrong_usage(capsys):
    assert cli.main([]) == ExitCode.REFUSED
    assert capsys.readouterr().err.startswith("usage: corral")


@pytest.mark.parametrize(
    ("words", "models"),
    [
        (("golden", "check", "--catalog", "c", "a", "b"), ["a", "b"]),
        (("golden", "check", "a", "--json", "b"), ["a", "b"]),
        (("contract", "vision", "--document", "f", "a"), ["a"]),
        (("bench", "--users", "1", "a", "--json", "b"), ["a", "b"]),
        (("eval", "--json", "set", "a", "--repeat", "2", "b"), ["a", "b"]),
        (("golden", "check"), []),
    ],
)
def test_models_may_stand_before_and_after_options(words, models, monkeypatch):
    found = []
    monkeypatch.setattr(f"corral.cli.{words[0]}.run", found.append)
    assert cli.main(words) == 0
    assert found[0].models == models


@pytest.mark.parametrize("words", [("gate", "m", "n"), ("golden", "check", "m", "--jsn"), ("bench", "--x", "m")])
def test_what_a_command_does_not_take_is_refused_with_its_own_usage(words, capsys):
    with pytest.raises(SystemExit) as stop:
        cli.main(words)
    err = capsys.readouterr().err
    assert stop.value.code == 2
    assert err.startswith(f"usage: corral {words[0]} ")
    assert f"corral {words[0]}: error: unrecognized arguments: " in err


def test_an_option_that_is_none_without_a_command_is_wrong_usage(capsys):
    with pytest.raises(SystemExit) as stop:
        cli.main(["--verbos"])
    assert stop.value.code == 2
    assert "corral: error: unrecognized arguments: --verbos" in capsys.readouterr().err


def test_an_unknown_command_is_wrong_usage():
    with pytest.raises(SystemExit) as ended:
        cli.main(["deploy"])

    assert ended.value.code == ExitCode.REFUSED


@pytest.mark.parametrize(
    ("error", "code"),
    [(Failed("It broke."), 1), (Refused("It is wrong."), 2), (CannotRun("It is away."), 3)],
    ids=["failed", "refused", "cannot-run"],
)
def test_an_error_becomes_a_sentence_and_its_exit_code(failing, capsys, error, code):
    error.next_step = "Run: corral lock"
    failing(error)

    assert cli.main(["validate"]) == code
    assert capsys.readouterr().err == f"corral validate: {error.message}\n  → Run: corral lock\n"


def test_debug_keeps_the_traceback_of_an_error(failing):
    failing(Refused("It is wrong."))

    with pytest.raises(Refused):
        cli.main(["--debug", "validate"])


def test_an_unexpected_error_keeps_its_traceback(failing):
    failing(ZeroDivisionError())

    with pytest.raises(ZeroDivisionError):
        cli.main(["validate"])


def test_the_console_script_is_installed():
    assert Path(sys.executable).with_name("corral").exists()


def test_a_closed_pipe_is_not_an_error():
    corral = Path(sys.executable).with_name("corral")

    ended = subprocess.run(
        ["bash", "-c", f"{corral} completion bash | head -1; exit ${{PIPESTATUS[0]}}"],
        capture_output=True,
        text=True,
        check=False,
    )

    assert (ended.returncode, ended.stderr) == (0, "")


def _commands(parser):
    """Each command below *parser* as the fewest words that it takes."""
    words, below = [], []
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            below = [[name, *more] for name, one in action.choices.items() for more in _commands(one)]
        elif action.required:
            value = "http://x" if action.metavar == "URL" else "x"
            words += [*action.option_strings[:1], str(next(iter(action.choices or [value])))]
    return [[*words, *more] for more in below or [[]]]


COMMANDS = [" ".join(words) for words in _commands(cli.build_parser("*"))]
DEMO = f"--catalog {REPOSITORY}/terraform/catalog-demo"
RESULTS = [
    f"validate {DEMO}",
    f"lock --check {DEMO}",
    f"verify {DEMO}",
    f"seat {DEMO}",
    "status --json",
    f"why {DEMO}",
    f"keys list {DEMO}",
    f"render --print models {DEMO}",
    "engine",
    "completion bash",
]
"""Commands that print a result where nothing was fetched, started or applied."""


@pytest.mark.parametrize("line", [*RESULTS, *(f"{command} --help" for command in ["", *COMMANDS])])
@pytest.mark.parametrize(
    ("file", "mode", "reason"),
    [("/dev/null", os.O_RDONLY, "Bad file descriptor"), ("/dev/full", os.O_WRONLY, "No space left on device")],
    ids=["closed", "full"],
)
def test_a_stdout_that_takes_nothing_is_one_sentence(line, file, mode, reason, capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("CORRAL_STATE", str(tmp_path))
    name = " ".join(["corral", *line.split()[:1]]).removesuffix(" --help")

    with os.fdopen(os.open(file, mode), "w") as stdout, contextlib.redirect_stdout(stdout):
        assert cli.main(line.split()) == ExitCode.CANNOT_RUN

    *_, error, next_step = capsys.readouterr().err.splitlines()
    assert error == f"{name}: Results cannot be written to stdout: {reason}."
    assert next_step == "  → Redirect stdout to another place"


@pytest.mark.parametrize("line", ["--help", "--version", "keys --help"])
def test_an_unbuffered_stdout_that_takes_nothing_is_one_sentence_too(line, capsys):
    with (
        open("/dev/full", "wb", buffering=0) as full,
        io.TextIOWrapper(full, write_through=True) as stdout,
        contextlib.redirect_stdout(stdout),
    ):
        assert cli.main(line.split()) == ExitCode.CANNOT_RUN

    assert "Results cannot be written to stdout: No space left on device." in capsys.readouterr().err


@pytest.mark.parametrize("name", ["evil com", "LLM.lan", "llm.lan:8080", "*.lan", "[::1]", "-llm", "llm.", ""])
def test_an_invalid_name_of_the_door_is_refused_by_its_option(name, capsys):
    with pytest.raises(SystemExit, match=str(ExitCode.REFUSED.value)):
        cli.main(["up", f"--name={name}"])

    assert f"argument --name: {name!r} is not a name in lower case or an address" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["llm", "llm.lan", "192.168.1.20", "fd00::20"])
def test_a_name_or_an_address_of_the_door_is_taken(name):
    assert cli.build_parser(only="up").parse_args(["up", "--name", name]).names == [name]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_working_directory_that_was_removed_is_one_sentence(command, capsys, monkeypatch, tmp_path):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    (tmp_path / "here").rmdir()

    assert cli.main(command.split()) == ExitCode.CANNOT_RUN
    assert capsys.readouterr().err == (
        f"corral {command.split()[0]}: The working directory cannot be used: No such file or directory.\n"
        "  → cd into a folder that exists\n"
    )


@pytest.mark.parametrize(
    "line",
    ["corral completion bash >&-", "corral completion bash > /dev/full", "rmdir $PWD && corral completion bash"],
)
def test_a_shell_gets_no_traceback_either(line, tmp_path):
    corral = Path(sys.executable).with_name("corral")

    ended = subprocess.run(
        ["bash", "-c", line.replace("corral", str(corral))], cwd=tmp_path, capture_output=True, text=True, check=False
    )

    assert ended.returncode == ExitCode.CANNOT_RUN
    assert [text.partition(" ")[0] for text in ended.stderr.splitlines()] == ["corral", ""]


def test_a_closed_stderr_changes_no_result():
    corral = Path(sys.executable).with_name("corral")

    ended = subprocess.run(["bash", "-c", f"{corral} seat nothing 2>&-"], capture_output=True, text=True, check=False)

    assert (ended.returncode, ended.stdout) == (ExitCode.REFUSED, "")


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_completion_knows_commands_and_options(shell, capsys):
    assert cli.main(["completion", shell]) == 0

    shown = capsys.readouterr().out
    assert "--resident-only" in shown
    assert "validate" in shown
