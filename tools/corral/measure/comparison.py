"""Whether what was predicted is what was measured."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from corral.catalog.ledger import CPU, Ledger, Measurement, argv_sha256
from corral.errors import LockStale
from corral.lock import headers
from corral.lock.lock import Lock, LockEntry, relock_command
from corral.measure.live import Reading
from corral.vram import oracle
from corral.vram.prediction import Prediction, mib

LIMIT = 0.03
"""By how much of the prediction a measurement may differ from it."""

_RESERVED_AT_LOAD = frozenset({"f16-scratch-for-quantised-kv", "cuda-row-padding", "moe-graph-dependencies"})
"""Rules (``corral.vram.rules``) whose bytes are in the buffers that an engine names; others come later."""


@dataclass(frozen=True)
class Compared:
    """A measurement that belongs to the lock's command line, beside what the lock predicts now.

    Attributes:
        measurement: the ledger's record.
        predicted: bytes; None when nothing predicts what was measured.
        declared: bytes that the operator states for the card; None when they state nothing.
    """

    measurement: Measurement
    predicted: int | None
    declared: int | None

    @property
    def deviation(self) -> float | None:
        """How much more (below 0: less) was measured, as a part of the prediction; None without one."""
        return (self.measurement.measured - self.predicted) / self.predicted if self.predicted else None

    @property
    def problem(self) -> str:
        """Why they do not agree, as a sentence; empty when they do."""
        one, deviation = self.measurement, self.deviation
        where = f"measured {mib(one.measured):,} MiB on {one.device} ({one.source}, {one.date[:10]})"
        if self.declared is not None and one.on_card:
            declared = f"{one.model}: declared {mib(self.declared):,} MiB, {where}: a declared figure must cover it."
            return declared if one.measured > self.declared else ""
        if deviation is None or abs(deviation) <= LIMIT:
            return ""
        more = f"{abs(deviation):.1%} {'more' if deviation > 0 else 'less'}"
        return f"{one.model}: predicted {mib(self.predicted or 0):,} MiB, {where}: {more}, and {LIMIT:.0%} is allowed."


def compare(lock: Lock, ledger: Ledger) -> tuple[list[Compared], list[Measurement]]:
    """Every measurement beside its prediction, and those left over: of models or command lines that are not locked."""
    compared: list[Compared] = []
    for model_id, entry in sorted(lock.models.items()):
        for one in ledger.of(model_id, argv_sha256(entry.argv)):
            # Without a card the engine would have to predict anew, so its prediction of then stands in the record.
            predicted = _predicted_on_card(entry.predicted, one.source) if one.on_card else one.predicted
            declared = entry.intent.vram.bytes if entry.intent.vram else None
            compared.append(Compared(one, predicted, declared))
    taken = [item.measurement for item in compared]
    return compared, [one for one in ledger.measurements if one not in taken]


def record(model_id: str, entry: LockEntry, reading: Reading, *, catalog: Path, engine: str, date: str) -> Measurement:
    """*reading* as the ledger keeps it, beside what the lock predicts of it.

    Args:
        model_id: of the model.
        entry: its facts in the lock.
        reading: what was measured.
        catalog: the catalog folder, with the headers that the engine predicts from.
        engine: the build that ran.
        date: UTC, ISO 8601 with a Z.

    Raises:
        LockStale: the headers of its files are not beside the lock.
        EngineCannotPredict: as ``oracle.ask``.
    """
    prediction, gpu, host = entry.predicted, None, None
    if prediction.host is not None and reading.device == CPU:
        gpu, host = 0, _predicted_without_card(entry, catalog)
    elif prediction.host is not None:
        gpu, host = _predicted_on_card(prediction, reading.source), prediction.host.total
    return Measurement(
        model=model_id,
        argv_sha256=argv_sha256(entry.argv),
        engine=engine,
        device=reading.device,
        source=reading.source,
        date=date,
        gpu_bytes=reading.gpu_bytes,
        host_bytes=reading.host_bytes,
        predicted_gpu_bytes=gpu,
        predicted_host_bytes=host,
    )


def _predicted_on_card(prediction: Prediction, source: str) -> int | None:
    """The bytes on the card by *source*: the driver counts all, the engine only its own buffers."""
    if prediction.gpu is None or source == "nvidia-smi":
        return prediction.gpu_bytes
    return prediction.gpu.total + sum(rule.bytes for rule in prediction.rules if rule.name in _RESERVED_AT_LOAD)


def _predicted_without_card(entry: LockEntry, catalog: Path) -> int:
    """The bytes of host memory when there is no card, as the engine predicts them."""
    found = [header for digest in entry.predicted.headers if (header := headers.read(catalog, digest)) is not None]
    if len(found) != len(entry.predicted.headers):
        raise LockStale(
            f"{headers.folder(catalog)} does not hold the headers that the lock names.",
            next_step=relock_command(catalog),
        )
    (breakdown,) = oracle.ask(found, [entry.argv], gpu=False)
    return breakdown.host.total
