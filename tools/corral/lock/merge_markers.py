"""The conflict markers that `git merge` leaves in a text, and the two texts between which they choose."""

from __future__ import annotations

import re

_MARKER = re.compile(r"([<|=>])\1{6}(?: .*)?")
_OURS, _BASE, _THEIRS, _BOTH = "<", "|", "=", ">"
"""The first character of a marker, and what stands below it."""


def present(text: str) -> bool:
    """Whether a conflict begins anywhere in *text*."""
    return any((found := _MARKER.fullmatch(line)) and found[1] == _OURS for line in text.splitlines())


def sides(text: str) -> tuple[str, ...]:
    """*text* with all conflicts decided for ours, then for theirs; *text* alone where it has no conflict."""
    if not present(text):
        return (text,)
    ours, theirs = [], []
    within = _BOTH
    for line in text.splitlines(keepends=True):
        if found := _MARKER.fullmatch(line.rstrip("\r\n")):
            within = found[1]
            continue
        if within in (_OURS, _BOTH):
            ours.append(line)
        if within in (_THEIRS, _BOTH):
            theirs.append(line)
    return "".join(ours), "".join(theirs)
