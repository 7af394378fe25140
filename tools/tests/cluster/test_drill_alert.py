"""`corral drill` with real Prometheus and Alertmanager: each alert comes, with its culprit, at the usual intervals."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from corral.drill.drills import DRILLS
from corral.engine import ports
from tests.support.engine_process import free_port

ALERTS = {
    "tenant-grows": ["for the model qwen3-8b; largest excess: immich-ml."],
    "engine-hangs": ["The engine of the model qwen3-8b is loaded and does not answer."],
    "weights-damaged": ["Loads of the model qwen3-8b fail: process-ended."],
    "store-full": ["B left: less than its largest model takes."],
    "exporter-dies": ["more of the card t4 than its budget.", "No exporter reports the card t4."],
}
# The goals are for a machine that has time: other clusters run beside this.
PLAY = """
import importlib, sys
from corral.cli.main import main
drill = importlib.import_module(f"corral.drill.{sys.argv[1].replace('-', '_')}")
drill.ALERT_GOAL_S, drill._WHY_LIMIT_S = 300.0, 120.0
sys.exit(main(["drill", sys.argv[1], "--json", "--port", sys.argv[2]]))
"""
pytestmark = pytest.mark.timeout(540)


def doors():
    """A port for each drill's front door; its engines' ports follow from it, so that no two drills have the same."""
    found: dict[int, int] = {}
    while len(found) < len(DRILLS):
        port = free_port()
        found.setdefault(port % ports.PLACES, port)
    return dict(zip(DRILLS, found.values(), strict=True))


def play(name, port, folder):
    """The process of a drill that has begun; its messages go into a file of *folder*."""
    environment = {**os.environ, "CORRAL_STATE": str(folder / name)}
    with (folder / f"{name}.err").open("w") as messages:
        command = [sys.executable, "-c", PLAY, name, str(port)]
        return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=messages, text=True)


def test_the_alert_of_each_drill_comes(tmp_path, say):
    assert ALERTS.keys() == DRILLS.keys()
    started = {name: play(name, port, tmp_path) for name, port in doors().items()}
    outputs = {name: process.communicate()[0] for name, process in started.items()}
    for name, process in started.items():
        assert process.returncode == 0, f"{outputs[name]}{(tmp_path / f'{name}.err').read_text()}"
        found = [one for one in json.loads(outputs[name])["layers"] if one["layer"].startswith("alert ")]
        assert [one["required"] for one in found] == [True] * len(ALERTS[name])
        for one, text in zip(found, ALERTS[name], strict=True):
            assert one["text"].endswith(text)
            say(f"drill {name}: {one['layer']} {one['after_seconds']} s after the first failure")
