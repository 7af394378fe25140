"""The frame of the command line: help, exit codes, errors as sentences."""

from __future__ import annotations

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


@pytest.mark.parametrize("words", ["completion bash", "lock --check --catalog terraform/catalog-demo", "--help"])
@pytest.mark.parametrize(("stdout", "reason"), [(">&-", "Bad file descriptor"), ("> full", "No space left on device")])
def test_a_stdout_that_takes_nothing_is_one_sentence(words, stdout, reason, tmp_path):
    (tmp_path / "full").symlink_to("/dev/full")
    corral = Path(sys.executable).with_name("corral")

    ended = subprocess.run(
        ["bash", "-c", f"{corral} {words} {stdout.replace('full', f'{tmp_path}/full')}"],
        cwd=REPOSITORY,
        env={name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert ended.returncode == ExitCode.CANNOT_RUN
    name = "corral" if words.startswith("-") else f"corral {words.split()[0]}"
    assert ended.stderr == (
        f"{name}: Results cannot be written to stdout: {reason}.\n  → Redirect stdout to another place\n"
    )


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
