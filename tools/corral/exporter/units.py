"""Which units of systemd a process belongs to, by its control groups (https://systemd.io/CGROUP_DELEGATION/)."""

from __future__ import annotations

import re
from collections.abc import Sequence

_SLICE, _UNITS = ".slice", (".service", ".scope")
# Version 2, or systemd's own hierarchy of version 1: the one that systemd does not use has every process at its root.
_LINE = re.compile(r"^(?:0:|[0-9]+:name=systemd):/(.+)$", re.MULTILINE)
_CONTAINER_ID = re.compile(r"([0-9a-f]{12})[0-9a-f]{52}")


def units_of(cgroups: str) -> tuple[str, ...]:
    """The units that the text of ``/proc/PID/cgroup`` names: slices, the outermost first, then a service or a scope.

    Only those of the machine's own systemd: below a service or a scope, or where another program made a group, a user
    or a container may make groups of any name.
    """
    path = _path(cgroups)
    ends = next((at for at, part in enumerate(path) if not part.endswith(_SLICE)), len(path))
    return tuple(path[: ends + 1 if path[ends : ends + 1] and path[ends].endswith(_UNITS) else ends])


def place(cgroups: str) -> str:
    """Where that is, for people: the service, the scope, a user's own unit, or a container; empty: in no group."""
    parts = [part for part in _path(cgroups) if not part.endswith(_SLICE)]
    is_unit = bool(parts) and parts[0].endswith(_UNITS) and not parts[0].startswith("user@")
    return _CONTAINER_ID.sub(r"\1", "/".join(parts[: 1 if is_unit else 2]))


def _path(cgroups: str) -> Sequence[str]:
    found = _LINE.search(cgroups)
    return [part for part in found[1].split("/") if part] if found else []
