"""2026-06-02 again: a tenant grows from 2 GB to 10.7 GB while the model is not loaded, and its next load has no room.

post-mortems/2026-06-02-tenant-arena-starves-llama-swap.md has the figures; ten minutes of growth are ten seconds here.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from corral.drill.observation import Observation
from corral.drill.scene import MODEL, TENANT, TENANT_BUDGET_MIB, TENANT_MIB, Scene
from corral.vram.prediction import MIB
from corral.why.verdict import Reason

ALERT_GOAL_S = 60.0
"""Seconds from the first load that fails to an alert with the culprit; on 2026-06-02 it took hours, without one."""
_GROWTH_MIB = (2900, 3800, 4700, 5600, 6500, 7400, 8300, 9200, 10726)
_STEP_S = 1.0
_WHY_LIMIT_S = 20.0


def play(scene: Scene) -> Iterator[Observation]:
    """Grow the tenant, and ask each layer."""
    scene.report(f"\n{MODEL} answers; {TENANT} holds {TENANT_MIB} MiB of its {TENANT_BUDGET_MIB}.")
    scene.load()
    scene.unload()
    scene.report(f"It is unloaded, as after its time to live.  {TENANT} grows:")
    for mib in _GROWTH_MIB:
        scene.hold_tenant(mib)
        scene.report(f"  {TENANT} {mib:6,} MiB, free {scene.card.free_mib:6,} MiB")
        time.sleep(_STEP_S)

    scene.begin()
    answer = scene.request()
    scene.report(f"\nThe first request that needs a load: status {answer.status}, {answer.code or 'no code'}.")
    yield scene.observed("preflight", answer.sentence, knows=(answer.status, answer.code) == (503, "no-room"))
    over = [row for one in scene.accounts() for row in one.over]
    text = ", ".join(f"{row.name}: {row.over // MIB:,} MiB over its promise" for row in over)
    yield scene.observed("exporter", text or "no holder is over", knows=[row.name for row in over] == [TENANT])
    # A machine that is too busy for the preflight's search, or for the evidence, gets another request.
    verdict, knows = scene.why(
        lambda found: found.reason is Reason.OUT_OF_MEMORY and TENANT in found.culprit, limit_s=_WHY_LIMIT_S
    )
    yield scene.observed("corral why", verdict.culprit or verdict.reason, knows=knows)
    yield scene.alert("CorralNoRoomForModel", limit_s=ALERT_GOAL_S, culprit=TENANT)
