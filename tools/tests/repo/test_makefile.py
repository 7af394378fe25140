"""The Makefile: every target is phony, every target has a help text."""

from __future__ import annotations

import os
import re
import shutil
import subprocess

import pytest

from corral import paths

TARGET = re.compile(r"^([a-z-]+):.*$", re.MULTILINE)
MAKEFILE = (paths.REPOSITORY / "Makefile").read_text()


def make(*words):
    return subprocess.run(
        ["make", "-C", paths.REPOSITORY, *words], capture_output=True, text=True, check=True, stdin=subprocess.DEVNULL
    ).stdout


def test_every_target_is_in_the_help():
    targets = TARGET.findall(MAKEFILE)

    assert {"demo", "test", "check", "fix", "init", "plan", "apply", "smoke", "hosts", "bench"} <= set(targets)
    assert [name for name in targets if f"\n  {name} " not in make("help")] == []


def test_every_target_is_phony():
    database = make("--print-data-base", "--dry-run", "help")
    phony = re.search(r"^\.PHONY: (.*)$", database, re.MULTILINE)

    assert sorted(phony[1].split()) == sorted(TARGET.findall(MAKEFILE))


def test_nothing_but_dispatch_stands_in_a_recipe():
    recipes = re.findall(r"(?:^\t.*\n)+", MAKEFILE, re.MULTILINE)

    assert max(recipe.count("\n") for recipe in recipes) <= 3


OF_MAKE = {"MAKEFLAGS", "MFLAGS", "MAKEOVERRIDES", "MAKELEVEL", "ARGS"}
"""By these, the variables of the make that runs the tests would reach another one."""


@pytest.mark.parametrize(
    ("target", "program"),
    [
        ("init", "tools/dev/terraform_init.sh"),
        ("plan", ".venv/bin/corral"),
        ("apply", ".venv/bin/corral"),
        ("smoke", ".venv/bin/corral"),
        ("hosts", "tools/dev/hosts.sh"),
        ("test-cluster", "tools/dev/test_cluster.sh"),
    ],
)
@pytest.mark.parametrize("from_shell", [False, True])
def test_a_blank_in_a_variable_is_no_end_of_a_word(target, program, from_shell, tmp_path):
    shutil.copy(paths.REPOSITORY / "Makefile", tmp_path)
    for name in {"tools/setup.sh", program}:
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        output = 'printf "%s\\n" "$BACKEND" "$INVENTORY" "$PLAYBOOK" "$CLUSTER" "$@"' if name == program else ""
        file.write_text(f"#!/bin/sh\n{output}\n")
        file.chmod(0o755)
    values = {name: f"my {name}" for name in ("BACKEND", "INVENTORY", "PLAYBOOK", "CLUSTER", "CATALOG")}
    words = [] if from_shell else [f"{name}={value}" for name, value in values.items()]

    done = subprocess.run(
        ["make", "--no-print-directory", "-C", tmp_path, target, *words],
        env={name: value for name, value in os.environ.items() if name not in OF_MAKE} | (values if from_shell else {}),
        capture_output=True,
        text=True,
        check=False,
    )

    given = [target, "--catalog", "my CATALOG"] if program == ".venv/bin/corral" else []
    assert done.stdout.splitlines() == [*list(values.values())[:4], *given], done.stderr
