"""The account of each card of a lock: promised, predicted, measured and held, holder by holder, in bytes.

One model of a group runs at a time, so a group is promised what its largest model needs; the sums are those of
``seating.chart``.  What is unknown is None, and never 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from corral.card.holders import CardReading, Holder, Kind, Reading
from corral.exporter.driver import Card
from corral.lock.lock import Lock
from corral.seating import chart as charts
from corral.seating.chart import CardChart

MIB = 1 << 20
RowKind = Literal["model", "tenant", "reserve", "pod", "process", "hidden", "unattributed"]


@dataclass(frozen=True)
class Row:
    """One line of the account; all figures in bytes, None where there is none or it is unknown.

    Attributes:
        kind: of the holder; a ``tenant`` and the ``reserve`` are promised memory that this machine's processes cannot
            be assigned to.
        name: the model's id, the tenant, or what the driver knows.
        group: of a model.
        promised: what the seating keeps for it: a model's seat, a tenant's budget.
        predicted: what the engine computed for a model's command line.
        measured: what a card showed of it once.
        held: what it has on the card now.
        pids: of its processes.
        short: of a model that is not loaded: what its card lacks to load it now, if its group made room; None: unknown.
    """

    kind: RowKind
    name: str
    group: str | None = None
    promised: int | None = None
    predicted: int | None = None
    measured: int | None = None
    held: int | None = None
    pids: tuple[int, ...] = ()
    short: int | None = None

    @property
    def over(self) -> int:
        """Bytes that it holds beyond its promise; 0 without a promise, or where one of the two is unknown."""
        return max(0, self.held - self.promised) if self.held is not None and self.promised is not None else 0


@dataclass(frozen=True)
class CardAccount:
    """One card of the lock, and the card of this machine that it is.

    Attributes:
        name: the card's in the catalog.
        vram: bytes that the catalog gives it.
        driver: the card by the driver; None: unknown.
        unknown: a code for why nothing held is known; empty otherwise.
        problem: the same in a sentence.
        rows: models by group, tenants, the reserve, then what else holds memory, the largest first.
    """

    name: str
    vram: int
    driver: Card | None
    unknown: str
    problem: str
    rows: tuple[Row, ...]

    @property
    def used(self) -> int | None:
        """Bytes that are taken now; None: unknown."""
        return self.driver.used if self.driver else None

    @property
    def over(self) -> tuple[Row, ...]:
        """The models that hold more than their promise: the difference is missing for another holder."""
        return tuple(row for row in self.rows if row.over)

    @property
    def others(self) -> int | None:
        """Bytes that are taken by all that is no model of the lock; None: unknown."""
        held = [row.held for row in self.rows if row.kind == "model"]
        known = [one for one in held if one is not None]
        return None if self.used is None or len(known) < len(held) else max(0, self.used - sum(known))

    @property
    def others_promised(self) -> int:
        """Bytes that are kept for all that is no model of the lock: the tenants' budgets, and the reserve."""
        return sum(row.promised or 0 for row in self.rows if row.kind in ("tenant", "reserve"))

    @property
    def others_over(self) -> int | None:
        """Bytes that tenants and other programs hold together beyond what is kept for them; None: unknown."""
        return None if self.others is None else max(0, self.others - self.others_promised)

    def as_json(self) -> dict[str, Any]:
        """It for programs: bytes, null where unknown."""
        return {
            "card": self.name,
            "vram_bytes": self.vram,
            "driver": asdict(self.driver) | {"used": self.used} if self.driver else None,
            "unknown": self.unknown or None,
            "problem": self.problem or None,
            "others": {"promised": self.others_promised, "held": self.others, "over": self.others_over},
            "holders": [asdict(row) | {"over": row.over} for row in self.rows],
        }


def of(lock: Lock, reading: Reading) -> tuple[CardAccount, ...]:
    """The account of every card of *lock*, by name."""
    chart = charts.of(lock)
    only = reading.cards[0] if len(reading.cards) == len(chart.cards) == 1 else None
    return tuple(_account(lock, name, card, reading, only) for name, card in chart.cards.items())


def _account(lock: Lock, name: str, card: CardChart, reading: Reading, found: CardReading | None) -> CardAccount:
    unknown, problem = reading.unknown, reading.problem
    if found is None and not unknown:
        unknown, problem = "card_unmatched", _unmatched(name, lock, reading)
    if found and found.card.total not in (None, card.vram_mib * MIB):
        problem = f"{name} has {card.vram_mib:,} MiB in the catalog, {found.card.total // MIB:,} by the driver."
    rows = (
        *_model_rows(lock, card, found, certain=reading.attributes),
        *(Row("tenant", tenant, promised=mib * MIB) for tenant, mib in card.tenants.items()),
        *([Row("reserve", "reserve", promised=card.reserve_mib * MIB)] if card.reserve_mib else []),
        *(_other_rows(card, found) if found else ()),
    )
    return CardAccount(name, card.vram_mib * MIB, found.card if found else None, unknown, problem, rows)


def _unmatched(name: str, lock: Lock, reading: Reading) -> str:
    cards = ", ".join(f"{one.card.name} ({one.card.uuid})" for one in reading.cards)
    return f"The catalog has {len(lock.cards)} cards and this machine {cards}: which of them is {name} is not known."


def _model_rows(lock: Lock, card: CardChart, found: CardReading | None, *, certain: bool) -> Iterator[Row]:
    holding: Mapping[str, Holder] = {one.name: one for one in found.holders if one.kind is Kind.MODEL} if found else {}
    free = found.card.free if found else None
    for group, seats in card.groups.items():
        holders = [holding[model_id] for model_id in seats.models if model_id in holding]
        in_group = sum(holder.held or 0 for holder in holders)
        for model_id, mib in seats.models.items():
            entry, holder = lock.models[model_id], holding.get(model_id)
            short = None if free is None or not certain else max(0, mib * MIB - free - in_group)
            yield Row(
                "model",
                model_id,
                group=group,
                promised=mib * MIB,
                predicted=entry.predicted.gpu_bytes,
                measured=entry.measured.gpu_bytes if entry.measured else None,
                held=holder.held if holder else (0 if found and certain else None),
                pids=holder.pids if holder else (),
                short=0 if holder else short,
            )


def _other_rows(card: CardChart, found: CardReading) -> Iterator[Row]:
    seated = {model_id for group in card.groups.values() for model_id in group.models}
    for holder in found.holders:
        if holder.kind is not Kind.MODEL or holder.name not in seated:  # a stack may be older than the lock
            yield Row(holder.kind.value, holder.name, held=holder.held, pids=holder.pids)
    yield Row("unattributed", "not attributed", held=found.unattributed)
