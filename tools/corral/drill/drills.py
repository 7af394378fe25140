"""Every drill, and how one is played in a scene of its own."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from corral.drill.observation import Observation

DRILLS = {
    "tenant-grows": "2026-06-02: a tenant takes the card, and the next load has no room",
    "engine-hangs": "the engine of a loaded model stops, and llama-swap stays green",
    "weights-damaged": "the file of a model is damaged, and its next load fails",
    "exporter-dies": "the exporter ends, and with it the metrics of every other alert",
    "store-full": "the store's disk fills while a new version is fetched, and the one of before stays",
}
"""Each drill with its summary: the module of its name has ``play``, and ``SETTING`` where its scene has more."""


def play(name: str, folder: Path, report: Callable[[str], None], *, port: int | None) -> tuple[Observation, ...]:
    """Play the drill *name* in the empty *folder*; *report* gets what happens, line by line.

    The front door listens on *port*; None: on a free one.

    Raises:
        Failed: a step before the fault failed: nothing was shown.
        CannotRun: a program is missing.
    """
    from corral.drill.scene import Scene, Setting
    from corral.engine import ports

    drill = importlib.import_module(f"corral.drill.{name.replace('-', '_')}")
    with ExitStack() as scope:
        setting = getattr(drill, "SETTING", Setting())
        return tuple(drill.play(Scene(folder, report, scope, port or ports.other_door(), setting)))
