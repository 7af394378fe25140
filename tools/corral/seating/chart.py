"""The seating chart of a lock: what each card holds, summed in whole MiB.

The rule stands in HCL too, where it decides (``terraform/modules/seating``); a test takes random catalogs through both.
One model of a group runs at a time and models of two groups run side by side, so a group takes what its largest model
takes; a card holds its reserve, its tenants' budgets and its groups.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from corral.catalog.intent import Card
from corral.lock.lock import Basis, Lock


@dataclass(frozen=True)
class Group:
    """Models of which one runs at a time: MiB of the largest, and the seat of each in MiB, by id."""

    mib: int
    models: Mapping[str, int]


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
    groups = {name: Group(max(members.values()), members) for name, members in sorted(seats.items())}
    tenants = {name: tenant.budget_mib for name, tenant in sorted(card.tenants.items())}
    used = card.reserve_mib + sum(tenants.values()) + sum(group.mib for group in groups.values())
    free = card.vram_mib - used
    return CardChart(card.vram_mib, card.reserve_mib, tenants, groups, used, free, max(0, -free))
