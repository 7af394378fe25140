"""The parts of a card that a picture shows: an order, a share of the card, and a number of cells for each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from string import ascii_lowercase
from typing import Literal

from corral.seating.chart import CardChart, Chart

Kind = Literal["group", "tenant", "reserve", "free"]
_LETTERS = {"reserve": "#", "free": "."}


@dataclass(frozen=True)
class Part:
    """A stretch of a card's memory.

    Attributes:
        kind: what takes it.
        name: of the group or the tenant; else the kind.
        mib: how much it takes.
        percent: the same of the whole card.
        note: which model decides it, and which others are in the group.
    """

    kind: Kind
    name: str
    mib: int
    percent: float
    note: str = ""

    @property
    def label(self) -> str:
        """What a legend calls it."""
        return f"group {self.name}" if self.kind == "group" else self.name


def parts(name: str, chart: Chart) -> list[Part]:
    """The parts of card *name*: groups and tenants, each by size, then the reserve, then what is free."""
    card = chart.cards[name]
    groups = [_part(card, "group", one, found.mib, _note(found.models, chart)) for one, found in card.groups.items()]
    tenants = [_part(card, "tenant", tenant, budget) for tenant, budget in card.tenants.items()]
    rest = [_part(card, "reserve", "reserve", card.reserve_mib)] if card.reserve_mib else []
    if card.free_mib > 0:
        rest.append(_part(card, "free", "free", card.free_mib))
    return [*_by_size(groups), *_by_size(tenants), *rest]


def letters(found: Sequence[Part]) -> list[str]:
    """The letter of each part; ``#`` is the reserve, ``.`` is free."""
    return [_LETTERS.get(part.kind, ascii_lowercase[at % 26]) for at, part in enumerate(found)]


def verdict(card: CardChart) -> str:
    """What is left on *card*, or what is missing."""
    return f"{card.free_mib:,} MiB free" if card.fits else f"{card.short_mib:,} MiB short"


def span_mib(card: CardChart) -> int:
    """MiB that a picture of *card* spans: its memory, or what is used of it where that is more."""
    return max(card.vram_mib, card.used_mib)


def cells(stretches: Sequence[Part], whole: int, width: int) -> list[int]:
    """How many of *width* cells each of *stretches* gets: its share of *whole* MiB, one at least, *width* in all."""
    exact = [part.mib * width / whole for part in stretches]
    given = [max(1, int(share)) for share in exact]
    while sum(given) < width:
        given[max(range(len(given)), key=lambda at: exact[at] - given[at])] += 1
    while sum(given) > max(width, len(given)):
        given[max((at for at in range(len(given)) if given[at] > 1), key=lambda at: given[at] - exact[at])] -= 1
    return given


def _part(card: CardChart, kind: Kind, name: str, mib: int, note: str = "") -> Part:
    return Part(kind, name, mib, 100 * mib / card.vram_mib, note)


def _by_size(found: list[Part]) -> list[Part]:
    return sorted(found, key=lambda part: (-part.mib, part.name))


def _note(seats: Mapping[str, int], chart: Chart) -> str:
    """The models of a group, the largest first, with the basis of each seat that is not predicted."""
    ids = sorted(seats, key=lambda model_id: (-seats[model_id], model_id))
    bases = [chart.models[model_id].basis for model_id in ids]
    shown = [
        model_id if basis == "predicted" else f"{model_id} ({basis})"
        for model_id, basis in zip(ids, bases, strict=True)
    ]
    return shown[0] if len(shown) == 1 else f"one of {', '.join(shown)}"
