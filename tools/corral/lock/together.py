"""Which models run at the same time, in words, by the sets of a seating chart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

_MOST = 4
"""More sets than these are too many to read."""


def words(sets: Sequence[Sequence[str]], shown: Mapping[str, str] | None = None) -> str:
    """The *sets* of a group: ``a``, ``one of a, b``, or ``a + b or a + c``; an id is *shown* as it has it."""
    names = [" + ".join((shown or {}).get(one, one) for one in ids) for ids in sets]
    if len(sets) > 1 and all(len(ids) == 1 for ids in sets):
        return f"one of {', '.join(names)}"
    more = f" or {len(names) - _MOST} more" if len(names) > _MOST else ""
    return f"{' or '.join(names[:_MOST])}{more}"


def several(sets: Sequence[Sequence[str]]) -> bool:
    """Whether any two models of *sets* run together."""
    return any(len(ids) > 1 for ids in sets)
