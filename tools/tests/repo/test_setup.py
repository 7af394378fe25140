"""What a fresh machine is told when Python or Terraform is missing or too old.

Stand-ins that only print a version: the real programs cannot be old on demand.
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
    for name in ("setup.sh", "requirements.lock", "pyproject.toml"):
        shutil.copy(paths.REPOSITORY / "tools" / name, clone / "tools")
    for name in TOOLS:
        (programs / name).symlink_to(shutil.which(name))

    def put(name, says):
        file = programs / name
        file.write_text(f"#!{shutil.which('bash')}\necho '{says}'\n")
        file.chmod(0o755)

    def setup(**variables):
        environment = {"PATH": str(programs), **variables}
        return subprocess.run(
            [clone / "tools" / "setup.sh"], env=environment, capture_output=True, text=True, check=False
        )

    setup.put = put
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

    assert "Terraform is missing" in machine().stderr


def test_a_python_can_be_named(machine):
    machine.put("python3", "3.12.1")
    machine.put("old", "3.10.2")

    assert "Python is 3.10.2" in machine(PYTHON="old").stderr


def test_a_python_that_was_named_and_does_not_start_is_told_so(machine):
    machine.put("python3", "3.12.1")

    assert "PYTHON names /nowhere/python3, which does not start" in machine(PYTHON="/nowhere/python3").stderr


def test_a_broken_terraform_is_told_so(machine):
    machine.put("python3", "3.11.7")
    machine.put("terraform", "'; exit 1; '")

    assert "Terraform is of an unknown version; corral needs 1.9.0 or newer" in machine().stderr


def test_a_missing_terraform_is_named_with_the_version_and_the_way_to_get_it(machine):
    machine.put("python3", "3.11.7")
    done = machine()

    assert done.returncode == 3
    assert done.stderr == (
        "setup: Terraform is missing; corral needs 1.9.0 or newer: https://developer.hashicorp.com/terraform/install\n"
    )


def test_an_old_terraform_is_named_with_its_version(machine):
    machine.put("python3", "3.11.7")
    machine.put("terraform", "Terraform v1.5.7")

    assert "Terraform is 1.5.7; corral needs 1.9.0 or newer" in machine().stderr
