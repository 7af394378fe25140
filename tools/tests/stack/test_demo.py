"""`make demo`: from nothing to smoked answers, and nothing left behind."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest

from corral.engine import stack
from tests.support import clone
from tests.support.engine_process import free_port

pytestmark = pytest.mark.long


@pytest.fixture
def demo(tmp_path):
    """Runs `corral demo` as a process of its own, with its own state folder."""
    state = tmp_path / "state"

    def run(*words):
        return subprocess.run(
            [sys.executable, "-m", "corral.cli.main", "demo", "--port", str(free_port()), *words],
            env={**os.environ, "CORRAL_STATE": str(state)},
            capture_output=True,
            text=True,
            check=False,
        )

    run.state = state
    yield run
    stack.stop(state, drain_s=0)


def require_every_check_and_nothing_left(demo, *options):
    before = clone.state()

    done = demo(*options)

    assert done.returncode == 0, done.stderr
    for model in ("tiny-text", "tiny-think", "tiny-vision"):
        assert f"\n{model}\tanswer\tpassed\t" in done.stdout
    assert ('"content":"OK"' if shutil.which("curl") else "there is no curl on this machine") in done.stderr
    assert stack.running(demo.state) is None
    assert clone.state() == before
    assert (demo.state / "keys" / "keys.json").exists() == bool(options)
    assert "corral-" not in (done.stdout + done.stderr).replace("corral-llama-server", "")


def test_the_demo_passes_every_check_and_leaves_nothing_behind(demo):
    require_every_check_and_nothing_left(demo)


def test_a_kept_demo_is_the_local_stack_and_is_not_trampled_on_and_the_next_one_has_keys_too(demo):
    assert demo("--keys", "--keep").returncode == 0
    assert stack.running(demo.state) is not None

    again = demo()

    assert again.returncode == 2
    assert "corral down, then: make demo" in again.stderr
    assert stack.running(demo.state) is not None

    stack.stop(demo.state, drain_s=0)
    require_every_check_and_nothing_left(demo, "--keys")  # with the keys of the one before
