"""The seating chart of a lock: what each card holds, summed in whole MiB.

The rule stands in HCL too, where it decides (``terraform/modules/seating``); a test takes random catalogs through both.
One model of each group can run at any time, so a group takes what its largest model takes; a card holds its reserve,
its tenants' budgets and its groups.  What the card has left lets more models of a group run together.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from corral.catalog.card import Card
from corral.lock.lock import Basis, Lock

MOST_MODELS = 12
"""On a card with more, one model of each group runs at a time: `_most_models` of the module."""


@dataclass(frozen=True)
class Group:
    """Models of which one can run at any time.

    Attributes:
        mib: what the largest takes, which is kept for the group.
        models: the seat of each in MiB, by id.
        sets: the ids of those that run together, the largest set first; each beside any set of another group.
    """

    mib: int
    models: Mapping[str, int]
    sets: Sequence[Sequence[str]]


@dataclass(frozen=True)
class CardChart:
    """One card; all figures in MiB.

    Attributes:
        vram_mib: memory of the card.
        reserve_mib: memory that no model or tenant may use.
        tenants: the budget of each tenant, by name.
        groups: the groups of its models, by name.
        used_mib: the reserve, all budgets and all groups.
        free_mib: what is left; negative when the card is short.
        short_mib: what is missing; 0 when everything fits.
    """

    vram_mib: int
    reserve_mib: int
    tenants: Mapping[str, int]
    groups: Mapping[str, Group]
    used_mib: int
    free_mib: int
    short_mib: int

    @property
    def fits(self) -> bool:
        """Whether the card holds its set."""
        return self.short_mib == 0


@dataclass(frozen=True)
class ModelChart:
    """The seat of one model: its card, its group, its MiB and which figure decides them."""

    card: str
    group: str
    mib: int
    basis: Basis


@dataclass(frozen=True)
class Chart:
    """All cards and all models, by name and id; ``dataclasses.asdict`` gives Terraform's output ``chart``."""

    cards: Mapping[str, CardChart]
    models: Mapping[str, ModelChart]

    def room_mib(self, model_id: str) -> int:
        """MiB that the group of *model_id* may take when nothing else changes."""
        model = self.models[model_id]
        card = self.cards[model.card]
        return card.free_mib + card.groups[model.group].mib

    def others_mib(self, model_id: str) -> int:
        """MiB that the group of *model_id* takes for its other models."""
        model = self.models[model_id]
        seats = self.cards[model.card].groups[model.group].models
        return max((mib for other, mib in seats.items() if other != model_id), default=0)


def of(lock: Lock) -> Chart:
    """The chart of *lock*."""
    models = {
        model_id: ModelChart(entry.intent.card, entry.intent.group, entry.seat.mib, entry.seat.basis)
        for model_id, entry in sorted(lock.models.items())
    }
    cards = {
        name: _card(card, {model_id: model for model_id, model in models.items() if model.card == name})
        for name, card in sorted(lock.cards.items())
    }
    return Chart(cards, models)


def _card(card: Card, models: Mapping[str, ModelChart]) -> CardChart:
    seats: dict[str, dict[str, int]] = {}
    for model_id, model in models.items():
        seats.setdefault(model.group, {})[model_id] = model.mib
    tenants = {name: tenant.budget_mib for name, tenant in sorted(card.tenants.items())}
    used = card.reserve_mib + sum(tenants.values()) + sum(max(members.values()) for members in seats.values())
    free = card.vram_mib - used
    groups = dict(_groups(dict(sorted(seats.items())), free, is_crowded=len(models) > MOST_MODELS))
    return CardChart(card.vram_mib, card.reserve_mib, tenants, groups, used, free, max(0, -free))


def _groups(seats: Mapping[str, Mapping[str, int]], free: int, *, is_crowded: bool) -> Iterator[tuple[str, Group]]:
    """The groups of a card by name: *free* MiB go to those that lack least to keep all their models, in that order."""
    lacks = {name: sum(members.values()) - max(members.values()) for name, members in seats.items()}
    left = {
        name: free - sum(mib for other, mib in lacks.items() if (mib, other) < (lacks[name], name)) for name in seats
    }
    for name, members in seats.items():
        most = max(members.values())
        limit = most + max(0, min(lacks[name], left[name]))
        sets: list[tuple[str, ...]] = [(one,) for one in members] if is_crowded else [*_maximal(members, limit)]
        sets.sort(key=lambda ids: (-sum(members[one] for one in ids), ids))
        yield name, Group(most, members, [list(ids) for ids in sets])


def _maximal(seats: Mapping[str, int], limit: int) -> Iterator[tuple[str, ...]]:
    """The sets of models that take *limit* MiB at most, and to which no further one can be added."""
    for size in range(1, len(seats) + 1):
        for ids in itertools.combinations(seats, size):
            mib = sum(seats[one] for one in ids)
            if mib <= limit and all(mib + seat > limit for one, seat in seats.items() if one not in ids):
                yield ids
