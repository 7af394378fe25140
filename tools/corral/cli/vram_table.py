"""What every locked model takes on its card, for people (MiB, rounded up) and for programs (bytes)."""

from __future__ import annotations

from typing import Any

from corral import output
from corral.catalog.ledger import Ledger, Measurement
from corral.lock.lock import Lock, LockEntry
from corral.lock.predicted import MIB, Vram, mib

_PARTS = ("weights", "context", "compute", "projector")


def show(lock: Lock, seen: Ledger) -> None:
    """Print one line for each measured model to stdout; predicted beside seen where something was seen on a card.

    The total is what a seat has, rounded up; its parts are rounded to the nearest MiB.
    """
    entries = {model_id: entry.vram for model_id, entry in lock.models.items() if entry.vram}
    cards = {model_id: seen.on_card(model_id, rows.argv_sha256) for model_id, rows in entries.items()}
    columns = ["model", *_PARTS, "rules", "total"]
    lines = [[model_id, *_cells(rows)] for model_id, rows in entries.items()]
    if any(cards.values()):
        columns.append("seen on a card")
        lines = [[*line, _seen(rows, cards[line[0]])] for line, rows in zip(lines, entries.values(), strict=True)]
    if lines:
        output.table(columns, lines, title="VRAM in MiB")


def as_json(entry: LockEntry, model_id: str, seen: Ledger) -> dict[str, Any] | None:
    """The same in bytes; None for a model without rows."""
    rows = entry.vram
    if rows is None:
        return None
    card = seen.on_card(model_id, rows.argv_sha256)
    return {
        "gpu": rows.gpu.model_dump() if rows.gpu else None,
        "rules": {rule.name: rule.bytes for rule in rows.rules},
        "gpu_total": rows.gpu_total,
        "declared": rows.is_declared,
        "unmeasured": rows.unmeasured,
        "seen_on_card": card.gpu_bytes if card else None,
    }


def _cells(rows: Vram) -> list[str]:
    parts = ["-"] * (len(_PARTS) + 1)
    if rows.gpu is not None:
        amounts = [*(getattr(rows.gpu, part) for part in _PARTS), sum(rule.bytes for rule in rows.rules)]
        parts = [f"{round(amount / MIB):,}" for amount in amounts]
    return [*parts, f"{mib(rows.gpu_total):,}{' declared' if rows.is_declared else ''}"]


def _seen(rows: Vram, card: Measurement | None) -> str:
    if card is None:
        return "-"
    return f"{mib(card.gpu_bytes):,} ({(card.gpu_bytes - rows.gpu_total) / rows.gpu_total:+.1%})"
