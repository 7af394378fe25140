"""corral-terraform, the real Terraform from the wheel: the command line, signals and exit codes of the binary."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sysconfig
from pathlib import Path

import pytest

from corral import paths
from corral.errors import ProgramMissing
from corral.terraform import embedded, program
from tests.support.kernel import not_permitted

EMBEDDED = str(Path(sysconfig.get_path("scripts")) / program.EMBEDDED)
PINNED = "1.15.5"
STACK = """
variable "command" {
  default = "true"
}
resource "terraform_data" "first" {
  input = "one"
}
resource "terraform_data" "slow" {
  depends_on = [terraform_data.first]
  provisioner "local-exec" {
    command = var.command
  }
}
resource "terraform_data" "last" {
  depends_on = [terraform_data.slow]
}
output "first" {
  value = terraform_data.first.output
}
"""


@pytest.fixture(autouse=True)
def wheel(monkeypatch):
    try:
        assert program.find_terraform(names=()) == EMBEDDED
    except ProgramMissing:
        not_permitted("corral's own Terraform is not installed: tools/setup.sh terraform")
    monkeypatch.delenv("TF_CLI_CONFIG_FILE", raising=False)


@pytest.fixture
def stack(tmp_path):
    folder = tmp_path / "stack"
    folder.mkdir()
    (folder / "main.tf").write_text(STACK)
    assert terraform(folder, "init").returncode == 0
    return folder


def terraform(folder, *words, **options):
    options = {"capture_output": True, "text": True, "cwd": folder} | options
    return subprocess.run([EMBEDDED, *words], check=False, **options)


def resources(stack):
    """Name to status of everything in the state; the status of what is whole is None."""
    state = json.loads((stack / "terraform.tfstate").read_text())
    return {one["name"]: one["instances"][0].get("status") for one in state["resources"]}


@pytest.fixture
def running_apply(stack, tmp_path):
    """An apply that is in the middle of its second resource, which would take ten minutes."""
    started = tmp_path / "started"
    os.mkfifo(started)
    words = ["apply", "-auto-approve", "-no-color", f"-var=command=echo > {started}; exec sleep 600"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen([EMBEDDED, *words], cwd=stack, **pipes) as apply:
        assert started.read_text() == "\n"
        yield apply
        apply.kill()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_apply_leaves_a_consistent_state_without_a_lock(stack, running_apply, number):
    second = terraform(stack, "plan", "-no-color")
    assert "Error acquiring the state lock" in second.stderr

    running_apply.send_signal(number)
    out, errors = running_apply.communicate()

    assert running_apply.returncode == 1
    assert "Gracefully shutting down..." in out
    assert "Error: execution halted" in errors
    assert resources(stack) == {"first": None, "slow": "tainted"}
    assert terraform(stack, "apply", "-auto-approve").returncode == 0
    assert resources(stack) == {"first": None, "slow": None, "last": None}
    assert terraform(stack, "destroy", "-auto-approve").returncode == 0
    assert resources(stack) == {}


def test_what_a_provisioner_starts_ignores_no_signal_that_python_ignores(stack):
    """Python ignores two signals for itself, and what is ignored is inherited."""
    ignored = "grep SigIgn /proc/self/status"
    done = terraform(stack, "apply", "-auto-approve", "-no-color", f"-var=command={ignored}")

    mask = re.search(r"SigIgn:\s+([0-9a-f]+)", done.stdout)
    assert mask, done.stdout + done.stderr
    assert int(mask[1], 16) & (1 << (signal.SIGPIPE - 1) | 1 << (signal.SIGXFSZ - 1)) == 0


def test_a_closed_stdout_ends_it_by_the_signal(stack):
    reading, writing = os.pipe()
    os.close(reading)
    done = terraform(stack, "-help", capture_output=False, stdout=writing, stderr=subprocess.DEVNULL)
    os.close(writing)

    assert done.returncode == -signal.SIGPIPE


def test_exit_codes_are_terraforms(stack):
    assert terraform(stack, "plan", "-detailed-exitcode").returncode == 2
    assert terraform(stack, "apply", "-auto-approve").returncode == 0
    assert terraform(stack, "plan", "-detailed-exitcode").returncode == 0
    assert terraform(stack, "nonsense").returncode == 1
    assert (
        terraform(
            stack,
        ).returncode
        == 127
    )


def test_the_version_is_the_pinned_one_in_json_too(tmp_path):
    assert json.loads(terraform(tmp_path, "version", "-json").stdout)["terraform_version"] == PINNED


def test_it_reads_stdin_and_words_that_are_no_ascii(stack):
    done = terraform(stack, "apply", "-no-color", "-var=command=echo grün", input="yes\n")

    assert "terraform_data.slow (local-exec): grün\n" in done.stdout


def test_the_folder_and_further_words_are_heeded(stack, tmp_path):
    done = terraform(tmp_path, f"-chdir={stack}", "plan", env=os.environ | {"TF_CLI_ARGS_plan": "-nonsense"})

    assert done.returncode == 1
    assert "-nonsense" in done.stderr


def test_it_works_without_a_home_folder(stack):
    nothing = {"PATH": os.environ["PATH"]}

    assert terraform(stack, "apply", "-auto-approve", env=nothing).returncode == 0
    assert terraform(stack, "output", "-raw", "first", env=nothing).stdout == "one"


def test_several_processes_do_not_disturb_each_other(stack, tmp_path):
    folders = [Path(shutil.copytree(stack, tmp_path / str(number))) for number in range(4)]
    words = [EMBEDDED, "apply", "-auto-approve", "-no-color"]
    applies = [subprocess.Popen(words, cwd=folder, stdout=subprocess.DEVNULL) for folder in folders]

    assert [apply.wait() for apply in applies] == [0, 0, 0, 0]
    assert [resources(folder) for folder in folders] == [{"first": None, "slow": None, "last": None}] * 4


def test_it_formats_and_tests(stack):
    (stack / "one.tftest.hcl").write_text(
        'run "it" {\n  assert {\n    condition     = output.first == "one"\n    error_message = "no"\n  }\n}\n'
    )

    assert terraform(stack, "fmt", "-", input="a   = 1\n").stdout == "a = 1\n"
    events = [json.loads(line) for line in terraform(stack, "test", "-json").stdout.splitlines()]
    assert [one["test_summary"]["passed"] for one in events if one["type"] == "test_summary"] == [1]


def test_the_order_is_terraform_then_opentofu_then_the_wheel(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert program.find_terraform() == EMBEDDED
    for name in ("tofu", "terraform"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
        assert program.find_terraform() == str(tmp_path / name)
        assert program.as_typed(program.find_terraform()) == name
    assert program.as_typed(EMBEDDED) == EMBEDDED


def test_the_scripts_get_the_program_from_the_same_place(tmp_path):
    script = paths.REPOSITORY / "tools" / "dev" / "terraform_program.py"
    python = Path(sysconfig.get_path("scripts")) / "python"
    done = subprocess.run([python, script], env={"PATH": str(tmp_path)}, capture_output=True, text=True, check=True)

    assert done.stdout == f"{EMBEDDED}\n"


def test_without_its_wheel_it_names_the_command_that_installs_it_beside_another_terraform(monkeypatch, capsys):
    monkeypatch.setattr(embedded, "WHEEL", "no_such_wheel")

    with pytest.raises(SystemExit) as ended:
        embedded.main()

    assert ended.value.code == embedded.CANNOT_RUN
    assert capsys.readouterr().err == (
        "corral-terraform: the wheel no_such_wheel is not installed; run: tools/setup.sh terraform\n"
    )
