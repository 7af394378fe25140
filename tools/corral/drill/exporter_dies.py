"""The exporter ends: its series vanish, and with them every condition of an alert; models are served as before."""

from __future__ import annotations

from collections.abc import Iterator

from corral.drill.observation import Observation
from corral.drill.scene import CARD, MODEL, TENANT, Scene

ALERT_GOAL_S = 120.0
"""Seconds to the alert, which waits for one minute."""
_OVER_MIB = 2500


def play(scene: Scene) -> Iterator[Observation]:
    """Let a tenant exceed its budget, end the exporter, and ask each layer."""
    scene.load()
    scene.hold_tenant(_OVER_MIB)
    scene.report(f"\n{TENANT} holds {_OVER_MIB} MiB, more than its budget, and that is an alert.")
    scene.begin()
    yield scene.alert("CorralTenantOverBudget", limit_s=ALERT_GOAL_S, holder=TENANT)
    scene.report("The exporter ends.")
    scene.begin()
    scene.end_exporter()
    answer = scene.request()
    yield scene.observed("request", f"status {answer.status}: {MODEL} is served as before", knows=answer.status == 200)
    before = len(scene.notifications())
    yield scene.alert("CorralExporterMissing", limit_s=ALERT_GOAL_S, card=CARD)
    ended = [one for one in scene.notifications()[before:] if one.status == "resolved"]
    names = ", ".join(sorted({one.name for one in ended})) or "none"
    yield scene.observed("alerts that ended with it", names, knows=not ended)
