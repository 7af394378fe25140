"""The parts of a card that a picture shows: an order, a letter, a share of the card, and a number of cells for each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from string import ascii_lowercase
from typing import Literal

from corral.lock import together
from corral.seating.chart import CardChart, Chart, Group

Kind = Literal["group", "tenant", "reserve", "free"]
RESERVE, FREE = "#", "."
"""What stands for the reserve, and for what is free."""
_LETTERS = {"reserve": RESERVE, "free": FREE}


@dataclass(frozen=True)
class Part:
    """A stretch of a card's memory.

    Attributes:
        kind: what takes it.
        name: of the group or the tenant; else the kind.
        mib: how much it takes.
        percent: the same of the whole card.
        letter: what stands for it in a bar: ``#`` for the reserve, ``.`` for what is free.
        note: which of the group's models run together.
    """

    kind: Kind
    name: str
    mib: int
    percent: float
    letter: str
    note: str = ""

    @property
    def label(self) -> str:
        """What a legend calls it."""
        return f"group {self.name}" if self.kind == "group" else self.name


def parts(name: str, chart: Chart) -> list[Part]:
    """The parts of card *name*: groups and tenants, each by size, then the reserve, then what is free."""
    card = chart.cards[name]
    groups = {group: found.mib for group, found in card.groups.items()}
    taken: list[tuple[Kind, str, int]] = [
        *(("group", group, mib) for group, mib in _by_size(groups)),
        *(("tenant", tenant, mib) for tenant, mib in _by_size(card.tenants)),
        ("reserve", "reserve", card.reserve_mib),
        ("free", "free", card.free_mib),
    ]
    return [
        Part(
            kind,
            one,
            mib,
            percent=100 * mib / card.vram_mib,
            letter=_LETTERS.get(kind, ascii_lowercase[at % 26]),
            note=_note(card.groups[one], chart) if kind == "group" else "",
        )
        for at, (kind, one, mib) in enumerate(taken)
        if mib > 0
    ]


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


def _by_size(mib: Mapping[str, int]) -> list[tuple[str, int]]:
    return sorted(mib.items(), key=lambda one: (-one[1], one[0]))


def _note(group: Group, chart: Chart) -> str:
    """Which models of a group run together, with the basis of each seat that is not predicted."""
    bases = {model_id: chart.models[model_id].basis for model_id in group.models}
    shown = {model_id: f"{model_id} ({basis})" for model_id, basis in bases.items() if basis != "predicted"}
    return together.words(group.sets, shown)
