"""`corral drill` with real Prometheus and Alertmanager: the alert comes with its culprit, at the usual intervals."""

from __future__ import annotations

import json

import pytest

from corral.cli.main import main
from corral.drill import incident

pytestmark = pytest.mark.timeout(420)


def test_the_alert_names_the_tenant(tmp_path, monkeypatch, capsys, say):
    monkeypatch.setenv("CORRAL_STATE", str(tmp_path / "state"))
    # The goal is for a machine that has time: five clusters run beside this.
    monkeypatch.setattr(incident, "ALERT_GOAL_S", 200.0)
    monkeypatch.setattr(incident, "_WHY_LIMIT_S", 120.0)
    assert main(["drill", "--json"]) == 0
    alert = json.loads(capsys.readouterr().out)["layers"][-1]
    assert (alert["layer"], alert["required"]) == ("alert", True)
    assert alert["text"].endswith("for the model qwen3-8b; largest excess: immich-ml.")
    say(f"drill: an alert with the culprit {alert['after_seconds']} s after the first load that failed")
