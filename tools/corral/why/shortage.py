"""Who is to blame for a card that is too full, by the preflight's records.

A name is no proof: of an engine the preflight knows the seat, which is what it was promised, and inside a container the
driver names no process.  So the names count only when they add up to most of what is held.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from corral.engine.preflight_line import Record, described


@dataclass(frozen=True)
class Holder:
    """A process that holds memory.

    Attributes:
        name: a model's id, or a program.
        pid: its process.
        mib: what it holds, or its seat; None where the driver does not give it.
        described: the same in words.
    """

    name: str
    pid: int
    mib: int | None
    described: str


@dataclass(frozen=True)
class Shortage:
    """A card without room.

    Attributes:
        need: what was needed, in MiB.
        free: what was free, in MiB.
        total: what the card has, in MiB.
        holders: the processes that were found on it.
        searched: whether there was a search for them; a preflight without ``holders.sh`` has none.
    """

    need: int
    free: int
    total: int
    holders: tuple[Holder, ...]
    searched: bool = True

    @property
    def unseen(self) -> int:
        """What is held by processes that were not named; 0 when the part of one is not known."""
        if any(one.mib is None for one in self.holders):
            return 0
        return max(0, self.total - self.free - sum(one.mib or 0 for one in self.holders))

    @property
    def blamed(self) -> tuple[Holder, ...]:
        """Those that hold most of it, the largest first; none when they hold less than half."""
        if self.need > self.total or self.unseen * 2 > self.total - self.free:
            return ()
        return tuple(sorted((one for one in self.holders if one.mib != 0), key=lambda one: -(one.mib or 0)))

    @property
    def culprit(self) -> str:
        """Who is behind it, in words."""
        if self.need > self.total:
            return f"its seat of {self.need} MiB, on a card of {self.total} MiB"
        if self.blamed:
            return ", ".join(one.described for one in self.blamed)
        if not self.searched:
            return f"processes on the card ({self.unseen} MiB), for which no search was made"
        return f"processes that are not visible from here ({self.unseen} MiB)"


def read(refusal: Sequence[Record]) -> Shortage:
    """The shortage that a *refusal* for want of room reports.

    Raises:
        ValueError: it is a refusal of another kind.
    """
    decision, *others = refusal
    if decision.need_mib is None or decision.free_mib is None or decision.total_mib is None:
        raise ValueError(f"{decision.code} is no shortage")
    holders = tuple(holder for one in others if (holder := _holder(one)))
    return Shortage(decision.need_mib, decision.free_mib, decision.total_mib, holders, searched=bool(others))


def _holder(one: Record) -> Holder | None:
    if one.pid is None:
        return None
    if one.code == "seat":
        return Holder(one.model, one.pid, one.seat_mib if one.on_card else 0, described(one))
    return Holder(one.name, one.pid, one.held_mib, described(one))
