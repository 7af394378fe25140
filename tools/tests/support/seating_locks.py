"""Locks for the seating chart, as data: what a card holds and what a model needs, and nothing else of them."""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from corral.agent.lock_file import LockedFile
from corral.catalog.card import Card
from corral.catalog.catalog import Catalog
from corral.catalog.intent import Model
from corral.catalog.ledger import OnCard
from corral.engine.embedded import ENGINE
from corral.lock.lock import Lock, LockEntry
from corral.vram.prediction import Bytes, Prediction, Rule, Rung
from corral.vram.rules import RULES_VERSION

MIB = 1 << 20
_RULES = 117 * MIB


def prediction(gpu_bytes: int | None, ladder: Mapping[int, int] | None = None, **more: Any) -> Prediction:
    """A prediction whose rows and rules add up to *gpu_bytes*; None for what the engine could not predict.

    Args:
        gpu_bytes: on the card.
        ladder: bytes on the card by context.
        more: further fields.
    """
    known = {"engine": ENGINE, "rules_version": RULES_VERSION, "headers": (), "context_trained": 40960}
    if gpu_bytes is None:
        return Prediction.model_validate(known | {"unmeasured": "a test", **more})
    rules = min(_RULES, gpu_bytes // 2)
    return Prediction.model_validate(
        known
        | {
            "gpu": Bytes(weights=gpu_bytes - rules, context=0, compute=0, projector=0),
            "host": Bytes(weights=0, context=0, compute=0, projector=0),
            "rules": (Rule(name="cuda-context-and-pools", bytes=rules, source="a test"),),
            "gpu_bytes": gpu_bytes,
            "ladder": tuple(
                Rung(context=at, gpu_bytes=total, host_bytes=0) for at, total in sorted((ladder or {}).items())
            ),
            **more,
        }
    )


def intent(**keys: Any) -> Model:
    """An intent with *keys*; what is left out is plain."""
    plain = {"source": {"repo": "org/name", "quant": "F16"}, "card": "t4", "context": 4096, "modalities": ["text"]}
    return Model.model_validate(plain | keys)


def entry(
    gpu_bytes: int | None,
    *,
    ladder: Mapping[int, int] | None = None,
    measured: int | None = None,
    argv: tuple[str, ...] = ("llama-server", "-fa", "on"),
    predicted: Mapping[str, Any] | None = None,
    **keys: Any,
) -> LockEntry:
    """The lock entry of a model.

    Args:
        gpu_bytes: bytes that are predicted; None where the engine could not.
        ladder: the same by context.
        measured: bytes that it took on a card.
        argv: its command line.
        predicted: further fields of the prediction.
        keys: of its intent.
    """
    model = intent(**keys)
    on_card = {"device": "Tesla T4", "source": "nvidia-smi", "engine": "b11549", "date": "2026-11-22T00:00:00Z"}
    projector = [LockedFile("mmproj.gguf", "projector", 1, "1" * 64)] if model.vision else []
    return LockEntry(
        intent=model.normalised(),
        repo="org/name",
        revision="0" * 40,
        licence=None,
        files=(LockedFile("model.gguf", "model", 1, "0" * 64), *projector),
        argv=argv,
        predicted=prediction(gpu_bytes, ladder, **(predicted or {})),
        measured=None if measured is None else OnCard.model_validate({**on_card, "gpu_bytes": measured}),
    )


def card(vram_mib: int, *, reserve_mib: int = 0, capability: str | None = None, **budgets: int) -> Card:
    """A card with a tenant for each of *budgets* (MiB); ``_`` in a name is a dash."""
    tenants = {name.replace("_", "-"): {"budget_mib": budget} for name, budget in budgets.items()}
    return Card.model_validate(
        {"vram_mib": vram_mib, "reserve_mib": reserve_mib, "compute_capability": capability, "tenants": tenants}
    )


def lock(cards: Mapping[str, Card], **models: LockEntry) -> Lock:
    """A lock of *cards* and *models*; ``_`` in an id is a dash."""
    entries = {model_id.replace("_", "-"): entry for model_id, entry in models.items()}
    return Lock(sources={}, images={}, cards=dict(cards), models=entries)


def catalog_of(one: Lock, folder: Path = Path("catalog")) -> Catalog:
    """The catalog that *one* would be the lock of, every default written out; nothing is on disk."""
    return Catalog(folder, {model_id: entry.intent for model_id, entry in one.models.items()}, one.cards)


def random_lock(dice: random.Random) -> Lock:
    """Up to three cards near the edge of fitting, with tenants, ties, all bases and bytes at the borders of a MiB."""
    names = ["t4", "a2", "laptop"][: dice.choice((1, 1, 2, 3))]
    models: dict[str, LockEntry] = {}
    for number in range(dice.randint(0, 8)):
        declared = dice.random() < 0.3
        predicted = None if declared and dice.random() < 0.4 else _bytes(dice)
        keys: dict[str, Any] = {"card": dice.choice(names), "group": dice.choice(("main", "eyes", "side"))}
        if declared:
            least = -(-(predicted or MIB) // MIB)
            keys["vram"] = {"declared_mib": least + dice.choice((0, 0, 1, 700)), "why": "a test"}
        claimed = max(predicted or 0, keys["vram"]["declared_mib"] * MIB if declared else 0)
        near = claimed + dice.choice((0, 0, 1, -1, MIB, -MIB, 300 * MIB, -300 * MIB))
        measured = max(0, near) if dice.random() < 0.4 else None
        models[f"model-{number}"] = entry(predicted, measured=measured, **keys)
    cards = {}
    for name in names:
        budgets = {
            f"tenant-{number}": dice.choice((1, 600, dice.randint(1, 4000))) for number in range(dice.randint(0, 4))
        }
        cards[name] = card(
            dice.choice((513, 8192, dice.randint(513, 24576))), reserve_mib=dice.choice((0, 512)), **budgets
        )
    return lock(cards, **models)


def _bytes(dice: random.Random) -> int:
    whole = dice.choice((1, 900, 900, dice.randint(1, 9000))) * MIB
    return whole + dice.choice((0, 0, 1, -1, dice.randint(0, MIB)))
