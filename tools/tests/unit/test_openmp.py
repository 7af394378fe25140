"""libgomp.so.1 for the embedded engine, on a machine that has none.

The kernel cannot be made to forget the system's library, so each test loads the carried one first, in its own process.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

from corral.engine import openmp
from corral.errors import ProgramMissing

LOADED = "print({line.split()[5] for line in open('/proc/self/maps') if 'gomp' in line})"
"""The files of every libgomp in the process."""


def run(*lines):
    code = "\n".join(("import ctypes", "from corral.engine import embedded, openmp", *lines))
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="other systems' wheels carry theirs")


def test_the_engine_takes_the_carried_library_for_its_own():
    done = run("openmp.load_carried()", "embedded.load()", LOADED)

    assert done.stdout == "{'/memfd:libgomp.so.1'}\n", done.stderr


def test_the_systems_library_is_loaded_first(tmp_path):
    done = run(
        "loaded = []", "ctypes.CDLL = lambda name, mode: loaded.append(name)", "openmp.provide()", "print(loaded)"
    )

    assert done.stdout == "['libgomp.so.1']\n", done.stderr


def test_without_either_the_package_to_install_is_named(monkeypatch):
    monkeypatch.setattr(openmp, "CARRIER", "no-such-wheel")

    with pytest.raises(ProgramMissing, match=r"needs libgomp\.so\.1: this system has none") as caught:
        openmp.load_carried()
    assert caught.value.next_step.startswith("apt-get install libgomp1")
