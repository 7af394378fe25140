"""The Makefile: every target is phony, every target has a help text."""

from __future__ import annotations

import re
import subprocess

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
