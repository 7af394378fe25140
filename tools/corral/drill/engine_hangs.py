"""The engine of a loaded model stops in the middle of its work: llama-swap and every probe of a pod stay green."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

from corral.drill.observation import Observation
from corral.drill.scene import MODEL, Scene
from corral.why.verdict import Reason

ALERT_GOAL_S = 180.0
"""Seconds to the alert, which waits for two minutes: a busy engine may be late."""
_WHY_LIMIT_S = 30.0


def play(scene: Scene) -> Iterator[Observation]:
    """Stop the engine, and ask each layer."""
    engine = scene.load()
    scene.report(f"\n{MODEL} answers.  Its engine (pid {engine}) is stopped; llama-swap still reports it as ready.")
    os.kill(engine, signal.SIGSTOP)
    try:
        scene.begin()
        health = scene.get("/health")
        yield scene.observed("/health", f"status {health}: green, as on a day without a fault", knows=health == 200)
        verdict, knows = scene.why(lambda found: found.reason is Reason.HUNG, limit_s=_WHY_LIMIT_S)
        yield scene.observed("corral why", verdict.evidence[0] if verdict.evidence else verdict.reason, knows=knows)
        done = scene.corral("status")
        line = next((line for line in done.stdout.splitlines() if line.startswith(MODEL)), "")
        yield scene.observed("corral status", " ".join(line.split()), knows=done.returncode == 1)
        up = scene.series("corral_engine_up", model=MODEL)
        yield scene.observed("exporter", f"corral_engine_up {up}", knows=up == 0)
        yield scene.alert("CorralEngineHung", limit_s=ALERT_GOAL_S, model=MODEL)
    finally:
        os.kill(engine, signal.SIGCONT)
