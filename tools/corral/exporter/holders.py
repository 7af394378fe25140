"""Who holds memory on the cards of this machine: the driver's processes, each attributed as far as that is certain."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from . import driver
from .driver import Card
from .errors import DriverUnknown

if TYPE_CHECKING:
    from .attribution import Attribution


_OTHER_PIDS = "The driver's pids are those of another pid namespace: the owners of processes are not known here."


class Kind(StrEnum):
    """What a holder is."""

    MODEL = "model"
    """An engine of ours."""
    TENANT = "tenant"
    """A pod, or a unit of systemd, of a tenant of the card."""
    POD = "pod"
    """A pod that is no tenant's, or of whom that is not certain."""
    PROCESS = "process"
    """A process of this machine that is in no pod, and is no tenant's."""
    HIDDEN = "hidden"
    """The driver lists it, and it is not visible from here: of another container, another user's, or just ended."""


class Owner(NamedTuple):
    """Whose a process is: ``Holder`` explains the names; ``pod`` is ``NAMESPACE/NAME``, empty where it has none.

    ``claims`` are the tenants that all match it, where that are several: it is counted for none of them.
    """

    kind: Kind
    name: str
    pod: str = ""
    claims: tuple[str, ...] = ()


@dataclass(frozen=True)
class Holder:
    """What holds memory on one card.

    Attributes:
        kind: what it is.
        name: the id of the model or the tenant, a pod's ``NAMESPACE/NAME`` or ``pod UID``, the program (without
            Kubernetes ``PROGRAM in UNIT``), or ``pid N``.
        pids: of its processes, outside of all containers.
        held: bytes; None: the driver does not report what one of its processes holds, or a process is another tenant's
            as well.
        pods: ``NAMESPACE/NAME`` of each pod that its processes are in, sorted.
    """

    kind: Kind
    name: str
    pids: tuple[int, ...]
    held: int | None
    pods: tuple[str, ...] = ()


@dataclass(frozen=True)
class CardReading:
    """One card now: the driver's figures, and its holders, the largest first."""

    card: Card
    holders: tuple[Holder, ...]

    @property
    def unattributed(self) -> int | None:
        """Bytes that are taken and that no listed process accounts for; None: unknown.

        The driver's own, those of processes that only draw, and those of a process whose figure is missing.
        """
        if self.card.used is None:
            return None
        return max(0, self.card.used - sum(holder.held or 0 for holder in self.holders))


@dataclass(frozen=True)
class Reading:
    """What the driver of this machine reports.

    Attributes:
        cards: in the driver's order; empty when ``unknown`` is not.
        unknown: a code for why nothing is known; empty otherwise: a ``DriverFault``, or ``no_cards``.
        problem: the same in a sentence, or what keeps the owners of processes from being known.
        certain: the kinds whose holders are all known: a model or tenant of such a kind that is not among the holders
            holds nothing.  Of the other kinds that is unknown.  Empty where the driver's pids are not those of this
            machine, because no process can then be attributed.
    """

    cards: tuple[CardReading, ...] = ()
    unknown: str = ""
    problem: str = ""
    certain: frozenset[Kind] = frozenset()


def read(attribution: Callable[[], Attribution], *, pid_namespace: int = driver.FIRST_PID_NAMESPACE) -> Reading:
    """The cards and their holders, whose owners *attribution* names.

    It asks nvidia-smi twice, with ``driver.LIMIT_S`` seconds each; no request reaches llama-swap.  *pid_namespace* is
    the one whose pids the driver reports.
    """
    try:
        cards = driver.cards()
        processes = driver.processes()
        driver.check(cards, processes)
    except DriverUnknown as error:
        return Reading(unknown=error.fault, problem=str(error))
    if not cards:
        return Reading(unknown="no_cards", problem=f"{driver.PROGRAM} lists no card.")
    found = attribution() if driver.sees_its_pids(pid_namespace) else None
    by_card: dict[str, list[Holder]] = {card.uuid: [] for card in cards}
    for process in processes:
        owner = found.owner(process) if found else Owner(Kind.HIDDEN, f"pid {process.pid}")
        pods = (owner.pod,) if owner.pod else ()
        holder = Holder(owner.kind, owner.name, (process.pid,), process.used, pods)
        by_card[process.card].append(holder)
        by_card[process.card] += [Holder(Kind.TENANT, name, (), None) for name in owner.claims]
    return Reading(
        tuple(CardReading(card, _merged(by_card[card.uuid])) for card in cards),
        problem=found.problem if found else _OTHER_PIDS,
        certain=found.certain() if found else frozenset(),
    )


def _merged(holders: list[Holder]) -> tuple[Holder, ...]:
    """One holder for each kind and name, the largest first; unknown is larger than any figure."""
    found: dict[tuple[Kind, str], Holder] = {}
    for one in holders:
        key = (one.kind, one.name)
        if before := found.get(key):
            held = None if before.held is None or one.held is None else before.held + one.held
            pods = tuple(sorted({*before.pods, *one.pods}))
            found[key] = Holder(one.kind, one.name, (*before.pids, *one.pids), held, pods)
        else:
            found[key] = one
    return tuple(sorted(found.values(), key=lambda one: (one.held is not None, -(one.held or 0), one.name)))
