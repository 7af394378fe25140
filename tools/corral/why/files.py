"""The files that a model is served from: whether they are there, and what the lock says.

Nothing is hashed: five gigabytes take longer than an answer may.  Size, and the store's record of what was verified
when, tell a file that is missing, cut short, or written to afterwards; the rest is for ``corral verify``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from corral.agent.lock_file import LockedFile, LockedModel
from corral.agent.progress import human
from corral.agent.store import Store, fingerprint


@dataclass(frozen=True)
class FileFact:
    """One file.

    Attributes:
        path: as the engine opens it.
        state: ``verified`` and untouched since; ``unverified``: of the right size, and nobody knows more.
        detail: a sentence.
        changed_at: when it, or a link to it, was last put there or written to, in seconds since 1970; 0 when unknown.
    """

    path: Path
    state: Literal["verified", "unverified", "missing", "damaged"]
    detail: str
    changed_at: float = 0.0

    @property
    def is_bad(self) -> bool:
        """Whether a server cannot work with it."""
        return self.state in ("missing", "damaged")


def check(paths: Sequence[Path], model: LockedModel | None, store: Store) -> tuple[FileFact, ...]:
    """What is true of *paths*; compared with *model* of the lock where it is known."""
    locked = model.links if model else {}
    expected = [(path, locked.get(path.name)) for path in paths]
    # The shards of a split model are found by the engine itself, beside the first.
    expected += [
        (paths[0].with_name(name), file)
        for name, file in locked.items()
        if paths and name not in {path.name for path in paths} and name.startswith("model-")
    ]
    return tuple(replace(_check(path, file, model, store), changed_at=_changed_at(path)) for path, file in expected)


def _changed_at(path: Path) -> float:
    """By the time that nobody can set: it changes with the content, the name, and every other property."""
    times = []
    for look in (path.stat, path.lstat, path.parent.lstat):  # the file; the link to it; the model's link to its set
        with contextlib.suppress(OSError):
            times.append(look().st_ctime)
    return max(times, default=0.0)


def _check(path: Path, file: LockedFile | None, model: LockedModel | None, store: Store) -> FileFact:
    try:
        size = path.stat().st_size
    except FileNotFoundError:
        return FileFact(path, "missing", f"{path} does not exist.")
    except OSError as error:
        return FileFact(path, "missing", f"{path} cannot be read: {error.strerror}.")
    if file is None or model is None:
        return FileFact(path, "unverified", f"{path} is there ({human(size)}); the lock does not say what it must be.")
    if size != file.size:
        return FileFact(path, "damaged", f"{path} has {size} bytes; the lock says {file.size}.")
    return _against_record(path, store, store.location(model, file), file)


def _against_record(path: Path, store: Store, place: Path, file: LockedFile) -> FileFact:
    try:
        if not path.samefile(place):
            return FileFact(
                path, "unverified", f"{path} has the size of the lock, but is not the store's file {place}."
            )
        found = fingerprint(place)
    except OSError:
        return FileFact(path, "unverified", f"{path} has the size of the lock, but is not the store's file {place}.")
    record = store.verified(place, file)
    if record is None:
        return FileFact(path, "unverified", f"{path} has the size of the lock; its content was never verified here.")
    if record == found:
        return FileFact(path, "verified", f"{path} has not been touched since its content was verified.")
    if {**record, "mtime_ns": 0} == {**found, "mtime_ns": 0}:
        # Neither replaced nor moved: somebody wrote into it.
        return FileFact(path, "damaged", f"{path} was written to after its content was verified.")
    return FileFact(path, "unverified", f"{path} has the size of the lock; another file was verified in its place.")
