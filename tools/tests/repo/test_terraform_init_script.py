"""`make init`: its output can be redirected into a file."""

from __future__ import annotations

import os
import pty
import shutil
import subprocess
import sys

import pytest

from corral import paths
from tests.support.tiny_stack import write_stack


@pytest.fixture
def script(tmp_path):
    """The script in a clone whose stack needs no provider."""
    write_stack(tmp_path / "terraform" / "stacks" / "homelab", catalog="../catalog")
    folder = tmp_path / "tools" / "dev"
    folder.mkdir(parents=True)
    (folder / "terraform_provider.sh").write_text("#!/bin/sh\n")
    (folder / "terraform_provider.sh").chmod(0o755)
    (tmp_path / ".venv").symlink_to(sys.prefix)
    shutil.copy(paths.REPOSITORY / "tools" / "dev" / "terraform_program.py", folder)
    return shutil.copy(paths.REPOSITORY / "tools" / "dev" / "terraform_init.sh", folder)


def test_colours_go_to_a_terminal_and_not_into_a_pipe(script):
    ours, terminal = pty.openpty()
    shown = subprocess.run([script], stdout=terminal, stderr=subprocess.STDOUT, check=False)
    os.close(terminal)
    piped = subprocess.run([script], capture_output=True, text=True, check=False)

    assert (shown.returncode, piped.returncode) == (0, 0), piped.stderr
    assert "successfully initialized" in piped.stdout
    assert "\x1b" not in piped.stdout + piped.stderr
    assert b"\x1b[" in os.read(ours, 1 << 16)
    os.close(ours)
