"""The seat of a model: the bytes that its card must hold for it.  ``terraform/modules/seating`` has the same rule."""

from __future__ import annotations

from typing import Literal

from corral.lock.lock import LockEntry
from corral.vram.prediction import mib

Basis = Literal["predicted", "declared", "measured"]


def seat_bytes(entry: LockEntry) -> int:
    """Bytes on the card: the largest of what is predicted, declared and measured."""
    return max(_claims(entry).values())


def seat_mib(entry: LockEntry) -> int:
    """The same in whole MiB, rounded up."""
    return mib(seat_bytes(entry))


def basis(entry: LockEntry) -> Basis:
    """Which of the three decides; of equal ones the prediction, then the declaration."""
    claims = _claims(entry)
    return max(claims, key=claims.__getitem__)  # the first of equal ones


def _claims(entry: LockEntry) -> dict[Basis, int]:
    return {
        "predicted": entry.predicted.gpu_bytes or 0,
        "declared": entry.intent.vram.bytes if entry.intent.vram else 0,
        "measured": entry.measured.gpu_bytes if entry.measured else 0,
    }
