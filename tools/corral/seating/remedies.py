"""What alone would make a short card fit: of each kind of change the one that costs least, as the operator's edit."""

from __future__ import annotations

import itertools
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal

from corral.lock.lock import Lock
from corral.seating.chart import CardChart, Chart
from corral.seating.contexts import Largest

MOST_SETS = 64
"""More sets than these are too many to read."""


@dataclass(frozen=True)
class Remedy:
    """One change that is enough by itself.

    Attributes:
        code: which key is changed: a model's ``context`` or ``group``, or a tenant's ``budget_mib``.
        subject: the id of the model, or the name of the tenant.
        value: the new value.
        now: the present one.
        proved: False for a context that the engine has not predicted.
    """

    code: Literal["context", "group", "tenant_budget"]
    subject: str
    value: int | str
    now: int | str
    proved: bool = True

    def as_json(self) -> dict[str, Any]:
        """Its fields as `corral seat --json` has them."""
        whose = "tenant" if self.code == "tenant_budget" else "model"
        more = {} if self.proved else {"proved": False}
        return {"action": self.code, whose: self.subject, "value": self.value, "now": self.now, **more}


@dataclass(frozen=True)
class Together:
    """One set of each group, which can run side by side: their ids, their MiB, and whether the card has room."""

    models: tuple[str, ...]
    mib: int
    fits: bool


def of(lock: Lock, chart: Chart, contexts: Mapping[str, Largest], card: str) -> list[Remedy]:
    """The remedies of *card*, none for one that is not short; *contexts* has at least those of its models."""
    found = chart.cards[card]
    if found.fits:
        return []
    best = (_lower_context(lock, chart, contexts, card), _move(chart, card), _lower_budget(found))
    return [remedy for remedy in best if remedy]


def together(chart: Chart, card: str) -> list[Together] | None:
    """All that may run on *card* at the same time, and to which no further model can be added; None: more than 64."""
    found = chart.cards[card]
    groups = [sorted(map(tuple, group.sets)) for group in found.groups.values()]
    promised = found.reserve_mib + sum(found.tenants.values())
    products = itertools.islice(itertools.product(*groups), MOST_SETS + 1)
    sets = [tuple(itertools.chain.from_iterable(one)) for one in products]
    if len(sets) > MOST_SETS:
        return None
    sums = [sum(chart.models[model_id].mib for model_id in ids) for ids in sets]
    return [Together(ids, mib, promised + mib <= found.vram_mib) for ids, mib in zip(sets, sums, strict=True)]


def edit(card: str, remedy: Remedy) -> str:
    """*remedy* on *card* in one line: what is changed, the file, the key, the value, and what is there now."""
    subject, value, now = remedy.subject, remedy.value, remedy.now
    match remedy.code:
        case "context":
            maybe = "" if remedy.proved else "; from the lock, not checked with the engine"
            return f"lower the context of {subject}: in models/{subject}.yaml, context: {value} (now {now}{maybe})"
        case "group":
            return f"move {subject} to group {value}: in models/{subject}.yaml, group: {value} (now {now})"
        case "tenant_budget":
            key = f"{subject}: {{budget_mib: {value}}}"
            return f"lower the budget of {subject}: in cards/{card}.yaml, {key} (now {now})"


def without_remedy(card: CardChart) -> str:
    """A sentence about a short *card* that no single change makes fit."""
    takers = {**card.tenants, **{f"group {name}": group.mib for name, group in card.groups.items()}}
    largest = sorted(takers, key=lambda name: (-takers[name], name))[:3]
    named = ", ".join(f"{name} {takers[name]:,} MiB" for name in largest)
    return f"No single change of a context, a group or a budget would do. The largest are: {named}."


def afterwards(catalog: Path) -> str:
    """What to run after an edit."""
    again = shlex.quote(str(catalog))
    return f"Make one of these edits, then run: corral lock --catalog {again} && corral seat --catalog {again}"


def _lower_context(lock: Lock, chart: Chart, contexts: Mapping[str, Largest], card: str) -> Remedy | None:
    """The one that keeps the greatest share of itself; of equal ones the largest context."""
    cost: dict[Remedy, tuple[Fraction, int, str]] = {}
    for model_id, model in chart.models.items():
        if model.card == card and (tokens := contexts[model_id].tokens):
            now = lock.models[model_id].intent.context
            remedy = Remedy("context", model_id, tokens, now, contexts[model_id].proved)
            cost[remedy] = (-Fraction(tokens, now), -tokens, model_id)
    return min(cost, key=cost.__getitem__, default=None)


def _move(chart: Chart, card: str) -> Remedy | None:
    """The move to another group of the card that leaves most room; of equal ones that of the smallest model."""
    found = chart.cards[card]
    cost: dict[Remedy, tuple[int, int, str, str]] = {}
    for old, group in found.groups.items():
        for model_id, mib in group.models.items():
            saved = group.mib - chart.others_mib(model_id)
            for new, other in found.groups.items():
                used = found.used_mib - saved - other.mib + max(other.mib, mib)
                if new != old and used <= found.vram_mib:
                    cost[Remedy("group", model_id, new, old)] = (used, mib, model_id, new)
    return min(cost, key=cost.__getitem__, default=None)


def _lower_budget(card: CardChart) -> Remedy | None:
    """The largest budget, lowered by what is missing; no tenant gives up everything."""
    able = {tenant: budget for tenant, budget in card.tenants.items() if budget > card.short_mib}
    largest = min(able, key=lambda tenant: (-able[tenant], tenant), default=None)
    return Remedy("tenant_budget", largest, able[largest] - card.short_mib, able[largest]) if largest else None
