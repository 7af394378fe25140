"""Places the models that may run on several cards: on one of them, the same one as long as they fit there.

The rule, in its order: models with ``card`` have their seats.  A model that the lock has on one of its cards stays, if
it still fits there beside those.  Every other one goes to the first of its cards that has room, the largest model
first, of equal ones the first by its id.  So an unrelated change moves no model that still fits, and the same catalog
without a lock always gives the same places.

A group takes what its largest model takes, as in ``terraform/modules/seating``.
"""

from __future__ import annotations

from collections.abc import Mapping

from corral.catalog.card import Card
from corral.errors import Refused
from corral.lock.lock import Lock, LockEntry, Placed


def place(entries: Mapping[str, LockEntry], cards: Mapping[str, Card], old: Lock | None) -> dict[str, LockEntry]:
    """*entries*, each on a card of *cards*; *old* is the present lock.

    Raises:
        Refused: a model fits on none of its cards; each card is named with what it is short of.
    """
    found = {model_id: entry for model_id, entry in entries.items() if not entry.intent.cards}
    left = sorted(entries.keys() - found.keys(), key=lambda one: (-entries[one].seat.mib, one))
    for model_id in left:
        entry, was = entries[model_id], old.models.get(model_id) if old else None
        if was and was.intent.card in entry.intent.cards and not _short(cards, found, entry, was.intent.card):
            found[model_id] = _on(entry, was.intent.card, was.placed or Placed(short_mib={}))
    for model_id in left:
        if model_id not in found:
            found[model_id] = _placed(model_id, entries[model_id], cards, found)
    return {model_id: found[model_id] for model_id in entries}


def reason(entry: LockEntry) -> str:
    """Why *entry* is on its card, in words; empty for a model whose intent names the card."""
    if entry.placed is None:
        return ""
    passed = entry.intent.cards[: entry.intent.cards.index(entry.intent.card)]
    if entry.placed.short_mib.keys() != set(passed):  # the operator's list was another one when it was placed
        return f"stays on {entry.intent.card}: it was there before, and fits"
    short = [f"{card} was short of {mib:,} MiB" for card, mib in entry.placed.short_mib.items()]
    first = "it was the first of its cards with room"
    return f"placed on {entry.intent.card}: {', '.join(short) or first} when it was placed"


def _placed(model_id: str, entry: LockEntry, cards: Mapping[str, Card], found: Mapping[str, LockEntry]) -> LockEntry:
    short: dict[str, int] = {}
    for card in entry.intent.cards:
        if not (mib := _short(cards, found, entry, card)):
            return _on(entry, card, Placed(short_mib=short))
        short[card] = mib
    lines = ", ".join(f"{card} is short of {mib:,} MiB" for card, mib in short.items())
    raise Refused(
        f"{model_id} needs {entry.seat.mib:,} MiB and fits on none of its cards: {lines}.",
        next_step=f"Lower context in models/{model_id}.yaml, or name another card there; what is on each: corral seat",
    )


def _on(entry: LockEntry, card: str, why: Placed) -> LockEntry:
    return entry.model_copy(update={"intent": entry.intent.model_copy(update={"card": card}), "placed": why})


def _short(cards: Mapping[str, Card], found: Mapping[str, LockEntry], entry: LockEntry, name: str) -> int:
    """MiB that the card *name* would be short of with *entry* beside those of *found* that are on it."""
    card, groups = cards[name], dict[str, int]()
    for one in (entry, *(other for other in found.values() if other.intent.card == name)):
        groups[one.intent.group] = max(groups.get(one.intent.group, 0), one.seat.mib)
    used = card.reserve_mib + sum(one.budget_mib for one in card.tenants.values()) + sum(groups.values())
    return max(0, used - card.vram_mib)
