"""`make init`: its output can be redirected into a file, and it pins the provider."""

from __future__ import annotations

import os
import pty
import shutil
import subprocess
import sys

import pytest

from corral import paths
from tests.support.terraform_mirror import REQUIRED, write_mirror
from tests.support.tiny_stack import write_stack

REFUSAL = "  → Only where it is meant to be another one: rm "


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


def test_a_program_that_is_no_terraform_is_refused_and_the_backend_stays(script, tmp_path, monkeypatch):
    (tmp_path / "terraform" / "terraform").write_text("#!/bin/sh\necho Hello\n")
    (tmp_path / "terraform" / "terraform").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/terraform:{os.environ['PATH']}")
    override = tmp_path / "terraform" / "stacks" / "homelab" / "backend_override.tf"
    override.write_text("# as it was\n")

    done = subprocess.run([script], env={**os.environ, "BACKEND": "local"}, capture_output=True, text=True, check=False)

    assert (done.returncode, done.stdout, override.read_text()) == (3, "", "# as it was\n")
    assert done.stderr.startswith(f"terraform: {tmp_path}/terraform/terraform does not print its version: ")


def test_the_first_init_pins_the_provider_and_the_next_ones_refuse_another(script, tmp_path, monkeypatch):
    stack = tmp_path / "terraform" / "stacks" / "homelab"
    (stack / "versions.tf").write_text(REQUIRED)
    pins = stack / ".terraform.lock.hcl"
    monkeypatch.setenv("TF_CLI_CONFIG_FILE", str(write_mirror(tmp_path / "mirror", "first")))

    def init(*words):
        shutil.rmtree(stack / ".terraform", ignore_errors=True)
        return subprocess.run([script, *words], capture_output=True, text=True, check=False)

    assert [init().returncode, init().returncode] == [0, 0]
    pinned = pins.read_text()
    assert "h1:" in pinned

    write_mirror(tmp_path / "mirror", "second")
    refused = init()
    assert refused.returncode == 1
    assert "doesn't match any of the" in refused.stderr
    assert refused.stderr.endswith(f"{REFUSAL}terraform/stacks/homelab/.terraform.lock.hcl, then: make init\n")
    assert pins.read_text() == pinned

    pins.unlink()
    assert init().returncode == 0
    assert pins.read_text() != pinned
