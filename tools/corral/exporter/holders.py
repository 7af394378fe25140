"""Who holds memory on the cards of this machine: the driver's processes, each attributed as far as that is certain."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import PurePosixPath

from . import containers, driver
from .containers import Container
from .driver import Card, Process
from .errors import DriverUnknown


class Kind(StrEnum):
    """What a holder is."""

    MODEL = "model"
    """An engine of ours."""
    POD = "pod"
    """A container of Kubernetes."""
    PROCESS = "process"
    """A process of this machine that is in no pod."""
    HIDDEN = "hidden"
    """The driver lists it, and it is not visible from here: of another container, another user's, or just ended."""


@dataclass(frozen=True)
class Holder:
    """What holds memory on one card.

    Attributes:
        kind: what it is.
        name: the model's id, ``pod UID``, the program, or ``pid N``.
        pids: of its processes, outside of all containers.
        held: bytes; None: the driver does not report what one of its processes holds.
    """

    kind: Kind
    name: str
    pids: tuple[int, ...]
    held: int | None


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
        problem: the same in a sentence.
        attributes: whether the driver's pids are those of this machine; else every holder is hidden.
    """

    cards: tuple[CardReading, ...] = ()
    unknown: str = ""
    problem: str = ""
    attributes: bool = True


def read(models: Callable[[], Mapping[int, str]], *, limit_s: float = driver.LIMIT_S) -> Reading:
    """The cards and their holders; *models* gives the models of our engines by their pids.

    It asks nvidia-smi twice, with *limit_s* seconds each, and reads /proc; no request reaches llama-swap.
    """
    try:
        cards = driver.cards(limit_s=limit_s)
        processes = driver.processes(limit_s=limit_s)
    except DriverUnknown as error:
        return Reading(unknown=error.fault, problem=str(error))
    if not cards:
        return Reading(unknown="no_cards", problem=f"{driver.PROGRAM} lists no card.")
    attributes = driver.sees_its_pids()
    engines = models() if attributes else {}
    by_card: dict[str, list[Holder]] = {card.uuid: [] for card in cards}
    for process in processes:
        holder = _holder(process, engines) if attributes else _hidden(process)
        by_card.setdefault(process.card, []).append(holder)
    return Reading(
        tuple(CardReading(card, _merged(by_card[card.uuid])) for card in cards),
        attributes=attributes,
    )


def _holder(process: Process, models: Mapping[int, str]) -> Holder:
    pids = (process.pid,)
    if model := models.get(process.pid):
        return Holder(Kind.MODEL, model, pids, process.used)
    cgroups = containers.read_cgroups(process.pid)
    if cgroups is None:
        return _hidden(process)
    if container := containers.container_of(cgroups):
        return Holder(Kind.POD, _pod_name(container), pids, process.used)
    program = PurePosixPath(process.program.partition(" ")[0]).name
    return Holder(Kind.PROCESS, program or f"pid {process.pid}", pids, process.used)


def _hidden(process: Process) -> Holder:
    return Holder(Kind.HIDDEN, f"pid {process.pid}", (process.pid,), process.used)


def _pod_name(container: Container) -> str:
    return f"pod {container.pod_uid}"


def _merged(holders: list[Holder]) -> tuple[Holder, ...]:
    """One holder for each kind and name, the largest first; unknown is larger than any figure."""
    found: dict[tuple[Kind, str], Holder] = {}
    for one in holders:
        key = (one.kind, one.name)
        if before := found.get(key):
            held = None if before.held is None or one.held is None else before.held + one.held
            found[key] = Holder(one.kind, one.name, (*before.pids, *one.pids), held)
        else:
            found[key] = one
    return tuple(sorted(found.values(), key=lambda one: (one.held is not None, -(one.held or 0), one.name)))
