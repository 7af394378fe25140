"""`corral drill` plays the incident; here without Prometheus, with which tests/cluster/test_drill_alert.py plays it."""

from __future__ import annotations

import json

import psutil
import pytest

from corral.cli.main import main
from corral.drill import incident
from corral.drill.stand_in import StandInCard
from tests.support.demo_stack import demo_stack

pytestmark = pytest.mark.timeout(240)


@pytest.fixture(autouse=True)
def without_alerts(monkeypatch):
    monkeypatch.setattr(incident, "installed", lambda: None)
    monkeypatch.setattr(incident, "_STEP_S", 0.0)


def processes_of(state):
    """The processes of this machine that have *state* in their command line or environment."""
    found = []
    for one in psutil.process_iter():
        try:
            if any(str(state) in word for word in (*one.cmdline(), *one.environ().values())):
                found.append(one)
        except psutil.Error:
            continue
    return found


def test_every_layer_knows_the_tenant_and_nothing_is_left(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("CORRAL_STATE", str(tmp_path / "state"))

    assert main(["drill", "--json"]) == 0

    out, err = capsys.readouterr()
    found = json.loads(out)
    layers = {one["layer"]: one for one in found["layers"]}
    assert found["passed"]
    assert list(layers) == ["preflight", "exporter", "corral why", "alert"]
    assert "6996 MiB" in layers["preflight"]["text"]
    assert layers["corral why"]["text"].startswith("immich-ml (pid ")
    assert layers["exporter"]["text"] == "immich-ml: 8,626 MiB over its promise"
    assert (layers["alert"]["after_seconds"], layers["alert"]["required"]) == (None, False)
    assert "status 503, no-room" in err
    assert processes_of(tmp_path / "state" / "drill") == []
    assert list((tmp_path / "state" / "drill").iterdir()) == [tmp_path / "state" / "drill" / "lock"]


def test_a_layer_that_does_not_know_is_an_exit_code_of_1(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("CORRAL_STATE", str(tmp_path / "state"))
    monkeypatch.setattr(incident, "_WHY_LIMIT_S", 0.0)
    monkeypatch.setattr(StandInCard, "free_mib", property(lambda _: 9000))  # so the model has room after all

    assert main(["drill"]) == 1

    table = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert {row[0] for row in table[1:] if row[1] == "-"} == {"preflight", "corral why", "alert"}


def test_a_drill_that_was_killed_is_ended_by_the_next(tmp_path, monkeypatch):
    state = tmp_path / "state"
    monkeypatch.setattr(incident, "play", lambda *_: ())
    scene = state / "drill" / "scene"
    with demo_stack(scene):
        monkeypatch.setenv("CORRAL_STATE", str(state))
        assert processes_of(scene)
        assert main(["drill"]) == 0
        assert processes_of(scene) == []
