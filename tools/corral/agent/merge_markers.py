"""The conflict markers that `git merge` leaves in a text, and the two texts between which they choose."""

from __future__ import annotations

import re
from collections.abc import Iterator

_MARKER = re.compile(r"([<|=>])\1{6}(?: .*)?")
_OURS, _THEIRS, _BOTH = "<", "=", ">"
"""The first character of a marker, and the text below it."""


def present(text: str) -> bool:
    """Whether a conflict begins anywhere in *text*."""
    return any((found := _MARKER.fullmatch(line)) and found[1] == _OURS for line in text.splitlines())


def sides(text: str) -> tuple[str, ...]:
    """*text* with all conflicts decided for ours, then for theirs; *text* alone where it has no conflict."""
    return tuple("".join(_side(text, side)) for side in (_OURS, _THEIRS)) if present(text) else (text,)


def _side(text: str, side: str) -> Iterator[str]:
    within = _BOTH
    for line in text.splitlines(keepends=True):
        if found := _MARKER.fullmatch(line.rstrip("\r\n")):
            within = found[1]
        elif within in (side, _BOTH):
            yield line
