"""Who is to blame for a card that is too full, by the preflight's line.

A name is no proof: of an engine the preflight knows the seat, which is what it was promised, and inside a container the
driver names nobody else.  So the names count only when they add up to most of what is held.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_LINE = re.compile(r"it needs (?P<need>\d+) MiB, (?P<free>\d+) MiB of (?P<total>\d+) MiB are free; (?P<held>.*)")
_HOLDER = re.compile(
    r"(?:^|[,;] )(?:held by |seated: |and )*"
    r"(?P<told>(?P<name>.+?) \(pid (?P<pid>\d+), (?:seat of )?(?P<mib>[^),]*) MiB(?P<nothing>, nothing on the card)?\))"
)


@dataclass(frozen=True)
class Holder:
    """Somebody who holds memory.

    Attributes:
        name: a model's id, or a program.
        pid: its process.
        mib: what it holds, or its seat; None where the driver does not say.
        told: the preflight's words for it.
    """

    name: str
    pid: int
    mib: int | None
    told: str


@dataclass(frozen=True)
class Shortage:
    """A card without room: what was needed, what it had, and who was seen on it, in MiB."""

    need: int
    free: int
    total: int
    holders: tuple[Holder, ...]

    @property
    def unseen(self) -> int:
        """What nobody who was named holds; 0 when somebody's part is not known."""
        if any(one.mib is None for one in self.holders):
            return 0
        return max(0, self.total - self.free - sum(one.mib or 0 for one in self.holders))

    @property
    def blamed(self) -> tuple[Holder, ...]:
        """Those who hold most of it, the largest first; nobody when they are not the ones."""
        if self.need > self.total or self.unseen * 2 > self.total - self.free:
            return ()
        return tuple(sorted((one for one in self.holders if one.mib != 0), key=lambda one: -(one.mib or 0)))

    @property
    def culprit(self) -> str:
        """Who is behind it, in words."""
        if self.need > self.total:
            return f"its seat of {self.need} MiB, on a card of {self.total} MiB"
        if self.blamed:
            return ", ".join(one.told for one in self.blamed)
        return f"nobody who can be seen from here ({self.unseen} MiB)"


def read(line: str) -> Shortage | None:
    """The shortage that the preflight's *line* tells of; None when it is no such line."""
    if (found := _LINE.search(line)) is None:
        return None
    holders = tuple(
        Holder(one["name"], int(one["pid"]), _mib(one), one["told"]) for one in _HOLDER.finditer(found["held"])
    )
    return Shortage(int(found["need"]), int(found["free"]), int(found["total"]), holders)


def _mib(one: re.Match[str]) -> int | None:
    if one["nothing"]:
        return 0
    return int(one["mib"]) if one["mib"].isdecimal() else None
