"""Whose the processes of the local stack are, by real processes in place of engines."""

from __future__ import annotations

import os
import subprocess
import sys
from types import SimpleNamespace

from corral.card import local
from corral.engine import stack

_PARENT = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "input()"], env={}, stdin=subprocess.PIPE)
print(child.pid, flush=True)
input()
"""


def test_the_child_of_an_engine_is_its_model_without_the_environment_too(tmp_path, monkeypatch):
    environment = {**os.environ, "CORRAL_SEAT": "chat:600"}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", _PARENT], env=environment, **pipes) as engine:
        child = int(engine.stdout.readline())
        running = SimpleNamespace(engines=lambda: [SimpleNamespace(pid=pid) for pid in (engine.pid, child)])
        monkeypatch.setattr(stack, "recorded", lambda _: running)
        found = local._models(tmp_path)
        engine.stdin.close()
    assert found == {engine.pid: "chat", child: "chat"}
