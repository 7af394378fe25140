"""The account of each card: promised, predicted, measured and held, holder by holder, in bytes.

One model of a group can run at any time, so a group is promised what its largest model needs.  What is unknown is None,
and never 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from .driver import Card
from .holders import CardReading, Holder, Kind, Reading

_MIB = 1 << 20
RowKind = Literal["model", "tenant", "reserve", "pod", "process", "hidden", "unattributed"]
FOREIGN: frozenset[RowKind] = frozenset({"pod", "process", "hidden"})
"""The kinds of holders without a promise."""
MOST_FOREIGN = 20
"""Of these, the largest of a card that have a series, and a place in a record, of their own."""
OTHER = "(other)"
"""The name for all that the lock does not have, where each would be one too many."""


@dataclass(frozen=True)
class ModelPromise:
    """What is known of a model before it is loaded; in bytes, None where there is no figure."""

    group: str
    seat: int
    predicted: int | None
    measured: int | None


@dataclass(frozen=True)
class CardPromise:
    """What a card has, and what of it is promised; in bytes, models by id and tenants by name."""

    vram: int
    reserve: int
    tenants: Mapping[str, int]
    models: Mapping[str, ModelPromise]


@dataclass(frozen=True)
class Row:
    """One line of the account; all figures in bytes, None where there is none or it is unknown.

    Attributes:
        kind: of the holder; for `corral card` on one machine no process can be assigned to a ``tenant``.
        name: the model's id, the tenant, or what the driver knows.
        group: of a model.
        promised: what the seating keeps for it: a model's seat, a tenant's budget.
        predicted: what the engine computed for a model's command line.
        measured: what a card showed of it once.
        held: what it has on the card now.
        pids: of its processes.
        short: of a model that is not loaded: what its card lacks to load it now, if its group made room; None: unknown.
        pods: ``NAMESPACE/NAME`` of each pod that its processes are in.
        over_since: when it was first observed beyond its promise, without a break since then, in seconds since 1970;
            None: it is not, or no observer runs.
        selected: of a tenant: the pods of the card's node that its ``namespace`` and ``selector`` find; None: unknown.
        breaks: of a tenant: what its pods are set to against the card's ``expects``, in words.
        waiting: of a tenant: those of its pods that do not run yet; None: unknown.
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
    pods: tuple[str, ...] = ()
    over_since: float | None = None
    selected: int | None = None
    breaks: tuple[str, ...] = ()
    waiting: int | None = None

    @property
    def over(self) -> int:
        """Bytes that it holds beyond its promise; 0 without a promise, or where one of the two is unknown."""
        return max(0, self.held - self.promised) if self.held is not None and self.promised is not None else 0

    @property
    def excess(self) -> int:
        """Bytes that it holds and that were not promised to it: ``over``, or all that a foreign holder has."""
        return (self.held or 0) if self.kind in FOREIGN else self.over


@dataclass(frozen=True)
class CardAccount:
    """One card of the lock, and the card of this machine that it is.

    Attributes:
        name: the card's in the catalog.
        vram: bytes that the catalog gives it.
        driver: the card by the driver; None: unknown.
        unknown: a code for why nothing held is known; empty otherwise.
        problem: the same in a sentence, or what else is in the way of certainty.
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
        """The models and tenants that hold more than their promise: the difference is missing for another holder."""
        return tuple(row for row in self.rows if row.over)

    @property
    def excesses(self) -> tuple[Row, ...]:
        """The holders with memory that was not promised to them, the largest excess first.

        The card's reserve is for foreign holders: one with less than that is none of these.  Where it is not known what
        a tenant holds, a foreign holder may be one: it is none of these with less than all that is kept for others.
        Nor is a sum of several, each of which is one only by itself.
        """
        reserve = sum(row.promised or 0 for row in self.rows if row.kind == "reserve")
        is_known = all(row.held is not None for row in self.rows if row.kind == "tenant")
        kept = reserve if is_known else self.others_promised
        rows = [row for row in self.rows if row.name != OTHER or row.pids]
        found = [row for row in rows if row.excess > (kept if row.kind in FOREIGN else 0)]
        return tuple(sorted(found, key=lambda row: (-row.excess, row.name)))

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
            "excesses": [row.name for row in self.excesses],
            "holders": [asdict(row) | {"over": row.over} for row in self.rows],
        }


def of(promises: Mapping[str, CardPromise], reading: Reading) -> tuple[CardAccount, ...]:
    """The account of every card of *promises*, by name."""
    only = reading.cards[0] if len(reading.cards) == len(promises) == 1 else None
    return tuple(_account(name, card, len(promises), reading, only) for name, card in promises.items())


def _account(name: str, card: CardPromise, cards: int, reading: Reading, found: CardReading | None) -> CardAccount:
    unknown, problem = reading.unknown, reading.problem
    if found is None and not unknown:
        present = ", ".join(f"{one.card.name} ({one.card.uuid})" for one in reading.cards)
        problem = f"The catalog has {cards} cards and this machine {present}: which of them is {name} is not known."
        unknown = "card_unmatched"
    if found and found.card.total not in (None, card.vram):
        both = f"{card.vram // _MIB:,} MiB in the catalog, {found.card.total // _MIB:,} by the driver"
        problem = f"{name} has {both}. {problem}".rstrip()
    rows = (
        *_model_rows(card, found, certain=Kind.MODEL in reading.certain),
        *_tenant_rows(card, found, certain=Kind.TENANT in reading.certain),
        *([Row("reserve", "reserve", promised=card.reserve)] if card.reserve else []),
        *(_other_rows(card, found) if found else ()),
    )
    return CardAccount(name, card.vram, found.card if found else None, unknown, problem, rows)


def _model_rows(card: CardPromise, found: CardReading | None, *, certain: bool) -> Iterator[Row]:
    holding: Mapping[str, Holder] = {one.name: one for one in found.holders if one.kind is Kind.MODEL} if found else {}
    free = found.card.free if found else None
    for model_id, model in card.models.items():
        holder = holding.get(model_id)
        group = [holding[one].held for one, its in card.models.items() if its.group == model.group and one in holding]
        known = [held for held in group if held is not None]
        certainly = certain and len(known) == len(group)
        short = max(0, model.seat - free - sum(known)) if certainly and free is not None else None
        yield Row(
            "model",
            model_id,
            group=model.group,
            promised=model.seat,
            predicted=model.predicted,
            measured=model.measured,
            held=holder.held if holder else (0 if found and certain else None),
            pids=holder.pids if holder else (),
            short=0 if holder else short,
            pods=holder.pods if holder else (),
        )


def _tenant_rows(card: CardPromise, found: CardReading | None, *, certain: bool) -> Iterator[Row]:
    holding = {one.name: one for one in found.holders if one.kind is Kind.TENANT} if found else {}
    for tenant, budget in card.tenants.items():
        holder = holding.get(tenant)
        held = holder.held if holder else (0 if found and certain else None)
        pids, pods = (holder.pids, holder.pods) if holder else ((), ())
        yield Row("tenant", tenant, promised=budget, held=held, pids=pids, pods=pods)


def _other_rows(card: CardPromise, found: CardReading) -> Iterator[Row]:
    for holder in found.holders:
        promised = {Kind.MODEL: card.models, Kind.TENANT: card.tenants}.get(holder.kind, {})
        if holder.name not in promised:  # a stack may be older than the lock
            yield Row(holder.kind.value, holder.name, held=holder.held, pids=holder.pids, pods=holder.pods)
    yield Row("unattributed", "not attributed", held=found.unattributed)
