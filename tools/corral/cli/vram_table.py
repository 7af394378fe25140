"""What every locked model takes on its card, for people (MiB, rounded up) and for programs (bytes)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from corral import output
from corral.lock.lock import Lock, LockEntry
from corral.vram.prediction import MIB, mib

_PARTS = ("weights", "context", "compute", "projector")
_EXTRAS = ("adapters", "draft")


def show(lock: Lock) -> None:
    """Print one line for each model to stdout; predicted beside measured where something was measured on a card.

    The seat is rounded up; the parts of its prediction are rounded to the nearest MiB.
    """
    is_measured = any(entry.measured for entry in lock.models.values())
    parts = [*_PARTS, *(part for part in _EXTRAS if any(_amount(entry, part) for entry in lock.models.values()))]
    columns = ["model", *parts, "rules", "seat", *(["measured on a card"] if is_measured else [])]
    rows = [[model_id, *_cells(entry, parts)] for model_id, entry in lock.models.items()]
    output.table(columns, [row[: len(columns)] for row in rows], title="VRAM in MiB")


def as_json(entry: LockEntry) -> dict[str, Any]:
    """The same in bytes."""
    predicted = entry.predicted
    return {
        "gpu": predicted.gpu.model_dump() if predicted.gpu else None,
        "rules": {rule.name: rule.bytes for rule in predicted.rules},
        "predicted": predicted.gpu_bytes,
        "declared": entry.intent.vram.bytes if entry.intent.vram else None,
        "measured": entry.measured.gpu_bytes if entry.measured else None,
        "seat": entry.seat.bytes,
        "basis": entry.seat.basis,
        "unmeasured": predicted.unmeasured,
    }


def _amount(entry: LockEntry, part: str) -> int:
    """Bytes of *part* on the card; 0 where the engine could not predict them."""
    return getattr(entry.predicted.gpu, part, 0)


def _cells(entry: LockEntry, names: Sequence[str]) -> list[str]:
    parts, predicted, seat = ["-"] * (len(names) + 1), entry.predicted, entry.seat
    if predicted.gpu is not None:
        amounts = [*(_amount(entry, part) for part in names), sum(rule.bytes for rule in predicted.rules)]
        parts = [f"{round(amount / MIB):,}" for amount in amounts]
    taken = f"{seat.mib:,}{'' if seat.basis == 'predicted' else f' {seat.basis}'}"
    measured = entry.measured.gpu_bytes if entry.measured else None
    if measured is None:
        return [*parts, taken, "-"]
    expected = predicted.gpu_bytes
    return [*parts, taken, f"{mib(measured):,}" + (f" ({(measured - expected) / expected:+.1%})" if expected else "")]
