"""Recordings for tests: a real recorder, whose driver, llama-swap and clock are the test's."""

from __future__ import annotations

from dataclasses import replace

from corral.exporter import recorder
from corral.exporter.account import CardPromise, ModelPromise
from corral.exporter.driver import Card
from corral.exporter.errors import AlertsUnknown, LlamaSwapUnknown
from corral.exporter.holders import CardReading, Holder, Kind, Reading
from corral.exporter.llama_swap import Request, Resident
from corral.exporter.recorder import Recorder

MIB = 1 << 20
BEGAN = 1_780_000_020.0
"""The time of the first sample: 2026-05-28, 20:27:00 UTC."""
PROMISES = {
    "t4": CardPromise(
        15360 * MIB,
        512 * MIB,
        {"immich-ml": 2100 * MIB, "frigate": 2000 * MIB},
        {"chat": ModelPromise("main", 6996 * MIB, 6900 * MIB, None)},
    )
}
SILENT = Reading(unknown="hanging", problem="nvidia-smi did not respond within 1 s.")


def reading(*, free=None, **held):
    """A card on which tenants, models (``chat``) and other programs hold so many MiB; *free*: what is left."""
    kinds = {"immich_ml": Kind.TENANT, "frigate": Kind.TENANT, "chat": Kind.MODEL}
    holders = tuple(
        Holder(kinds.get(name, Kind.PROCESS), name.replace("_", "-"), (100 + at,), None if mib is None else mib * MIB)
        for at, (name, mib) in enumerate(held.items())
        if mib != 0
    )
    free = 15360 - 300 - sum(mib or 0 for mib in held.values()) if free is None else free
    card = Card("GPU-1", "Tesla T4", 15360 * MIB, free * MIB)
    return Reading((CardReading(card, holders),), certain=frozenset({Kind.MODEL, Kind.TENANT}))


def request(status=200, *, model="chat", load_failure=""):
    """A request in the list of llama-swap; it gets its number there."""
    return Request(0, model, status, 1.0, None, 0, 0, load_failure, "a test")


class LlamaSwap:
    """The llama-swap of *scene*; one whose models are None does not answer."""

    def __init__(self, scene):
        self.scene = scene

    def residents(self):
        if self.scene.models is None:
            raise LlamaSwapUnknown("a test")
        return tuple(Resident(model, state, "") for model, state in self.scene.models.items())

    def requests(self):
        return self.scene.requests

    def changes(self):
        if self.scene.changes is None:
            raise LlamaSwapUnknown("a test")
        return self.scene.changes


class Alertmanager:
    """The Alertmanager of *scene*; one whose alerts are None does not answer."""

    def __init__(self, scene):
        self.scene = scene

    def firing(self):
        if self.scene.alerts is None:
            raise AlertsUnknown("a test")
        return self.scene.alerts


UNCHANGED = object()


class Scene:
    """What a recorder reads: change it between two samples."""

    def __init__(self, folder, **options):
        self.folder, self.now = folder, BEGAN
        self.reading, self.models, self.requests, self.changes = reading(), {}, (), None
        self.alerts = ()
        self.options = {"seal": "0" * 64, "promises": PROMISES} | options
        self.recorder = self.new()

    def new(self):
        """The recorder of an exporter that has just started."""
        options = {"find_llama_swap": lambda: LlamaSwap(self), "alertmanager": Alertmanager(self)} | self.options
        return Recorder(self.folder, read=lambda: self.reading, clock=lambda: self.now, **options)

    def restart(self):
        """Another exporter takes over, as after the end of the first one."""
        self.recorder.close()
        self.recorder = self.new()

    def sample(self, found=UNCHANGED, *, models=UNCHANGED, times=1, requests=()):
        """Record *found* and *models* so many *times*, ``EVERY_S`` apart, with new *requests* each time."""
        self.reading = self.reading if found is UNCHANGED else found
        self.models = self.models if models is UNCHANGED else models
        for _ in range(times):
            self.requests += tuple(
                replace(one, number=len(self.requests) + at) for at, one in enumerate(requests, start=1)
            )
            self.recorder.record()
            self.now += recorder.EVERY_S

    def close(self):
        self.recorder.close()

    def lines(self):
        """All that was recorded."""
        return [line for path in recorder.segments(self.folder) for line in path.read_bytes().splitlines()]
