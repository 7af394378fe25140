"""The file of a model is damaged on the disk while it is not loaded: its next load fails, and a command repairs it."""

from __future__ import annotations

from collections.abc import Iterator

from corral.drill.observation import Observation
from corral.drill.scene import MODEL, Scene
from corral.why.verdict import Reason

ALERT_GOAL_S = 150.0
"""Seconds to the alert, which waits for one minute: a lack of room explains failed loads better."""
_WHY_LIMIT_S = 30.0
_DAMAGE = b"damaged!"


def play(scene: Scene) -> Iterator[Observation]:
    """Overwrite the beginning of the file, and ask each layer; then repair it."""
    scene.load()
    scene.unload()
    path = (scene.store / MODEL / "model.gguf").resolve()
    scene.report(f"\n{MODEL} is unloaded, and the first bytes of its file are overwritten.")
    path.chmod(0o644)
    with path.open("r+b") as file:
        file.write(_DAMAGE)
    scene.begin()
    answer = scene.request()
    yield scene.observed("request", f"status {answer.status}: {answer.sentence}", knows=answer.status == 503)
    verdict, knows = scene.why(lambda found: found.reason is Reason.FILE_DAMAGED, limit_s=_WHY_LIMIT_S)
    yield scene.observed("corral why", verdict.evidence[0] if verdict.evidence else verdict.reason, knows=knows)
    failed = scene.series("corral_failed_loads_total", model=MODEL, reason="process-ended")
    yield scene.observed("exporter", f"corral_failed_loads_total {failed}", knows=bool(failed))
    yield scene.alert("CorralLoadsFail", limit_s=ALERT_GOAL_S, model=MODEL)
    done = scene.corral("verify", "--repair", "--store", str(scene.store))
    answer = scene.request()
    text = f"exit code {done.returncode}; the next request: status {answer.status}"
    yield scene.observed("corral verify --repair", text, knows=(done.returncode, answer.status) == (0, 200))
