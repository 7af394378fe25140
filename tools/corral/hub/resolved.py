"""The files of a model as the hub, or the disk, has them."""

from __future__ import annotations

from dataclasses import dataclass

from corral.agent.lock_file import LockedFile


@dataclass(frozen=True)
class Resolved:
    """Where the files of one model are from, and what they are.

    ``revision`` is a commit; it, ``repo`` and ``licence`` are None for a model that is already on disk.
    """

    repo: str | None
    revision: str | None
    licence: str | None
    files: tuple[LockedFile, ...]
