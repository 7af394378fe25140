"""The disk of the model store fills while a new version is fetched: the old one stays, and the fetch is resumed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from corral.agent.store_metrics import LOCAL
from corral.drill.observation import Observation
from corral.drill.scene import MODEL, Scene, Setting
from corral.drill.small_disk import fill
from corral.vram.prediction import MIB

ALERT_GOAL_S = 90.0
"""Seconds to the alert, which waits for ``_WAIT_S`` here: for 15 minutes by its rule, as a fetch may end before."""
_WAIT_S = 15
SETTING = Setting(store_bytes=32 * MIB, waits={"CorralStoreFilling": _WAIT_S})
_N_FF = 4500  # 8.5 MB
_ARRIVED = 2 * MIB  # of the new version, when the disk is full
_BEGIN_LIMIT_S = 60.0


def play(scene: Scene) -> Iterator[Observation]:
    """Fill the disk in the middle of a fetch, and ask each layer; then make room."""
    scene.load()
    scene.publish(n_ff=_N_FF)
    scene.step("lock", "--upgrade", MODEL)
    scene.report(f"\n{MODEL} answers, and has a new version.  While it is fetched, another program fills the disk.")
    with ThreadPoolExecutor() as pool:
        with scene.hub.paused(_ARRIVED) as arrived:
            fetching = pool.submit(scene.corral, "fetch", "--store", str(scene.store))
            arrived.wait(_BEGIN_LIMIT_S)
            filler = fill(scene.store.parent)
            scene.begin()
        done = fetching.result()
    line = next((one for one in done.stderr.splitlines() if one.startswith("corral fetch: ")), "no error")
    knows = done.returncode == 3 and "There is no room left on the file system" in line
    yield scene.observed("corral fetch", f"exit code {done.returncode}; {line}", knows=knows)
    scene.unload()
    answer = scene.request()
    text = f"status {answer.status}: the version of before is in its place, and was loaded again"
    yield scene.observed("request", text, knows=answer.status == 200)
    free = scene.series("corral_store_free_bytes", store=LOCAL)
    size = scene.series("corral_store_model_bytes", store=LOCAL, model=MODEL)
    is_old = scene.series("corral_store_model_state", store=LOCAL, model=MODEL, state="outdated")
    knows = is_old == 1 and free is not None and size is not None and free < size
    text = f"corral_store_free_bytes {free}, of {size} for {MODEL}, which is {'outdated' if is_old else 'not outdated'}"
    yield scene.observed("exporter", text, knows=knows)
    scene.report(f"The alert waits for {_WAIT_S} s here, and for 15 minutes by its rule.")
    yield scene.alert("CorralStoreFilling", limit_s=ALERT_GOAL_S, store=LOCAL)
    filler.unlink()
    yield _resumed(scene)


def _resumed(scene: Scene) -> Observation:
    done = scene.corral("fetch", "--json", "--store", str(scene.store))
    events = [json.loads(line) for line in done.stdout.splitlines()]
    moved, total = next(
        ((one["bytes_moved"], one["bytes_total"]) for one in events if one["event"] == "finished"), (0, 0)
    )
    scene.unload()
    answer = scene.request()
    is_new = scene.series("corral_store_model_state", store=LOCAL, model=MODEL, state="ready")
    text = f"exit code {done.returncode}; {moved:,} of {total:,} bytes had to come; the next request: {answer.status}"
    knows = (done.returncode, answer.status, is_new) == (0, 200, 1) and 0 < moved < total
    return scene.observed("corral fetch, with room", text, knows=knows)
