"""The files that a model is served from: whether they exist, and whether they are what the lock requires.

Nothing is hashed: five gigabytes take longer than a diagnosis may.  The size, and the store's record of what was
verified when, show a file that is missing, truncated or modified; ``corral verify`` checks the rest.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from corral.agent.lock_file import LockedFile, LockedModel
from corral.agent.progress import human
from corral.agent.store import Store, fingerprint

_State = Literal["verified", "unverified", "missing", "damaged"]


@dataclass(frozen=True)
class FileFact:
    """One file."""

    path: Path  # as the engine opens it
    state: _State  # verified: and unmodified since; unverified: of the right size, as far as that is known
    detail: str  # a sentence
    changed_at: float = 0.0  # last change of it, or of a link to it, in seconds since 1970; 0 when unknown

    @property
    def is_bad(self) -> bool:
        """Whether a server cannot use it."""
        return self.state in ("missing", "damaged")


def check(paths: Sequence[Path], model: LockedModel | None, store: Store) -> tuple[FileFact, ...]:
    """The state of *paths*, compared with *model* of the lock where it is known."""
    locked = model.links if model else {}
    # The shards of a split model are found by the engine itself, beside the first.
    names = {path.name for path in paths}
    shards = [name for name in locked if paths and name not in names and name.startswith("model-")]
    found = []
    for path in [*paths, *(paths[0].with_name(name) for name in shards)]:
        state, detail = _state(path, locked.get(path.name), model, store)
        found.append(FileFact(path, state, f"{path} {detail}.", _changed_at(path)))
    return tuple(found)


def _changed_at(path: Path) -> float:
    """By ctime, which no program can set: it changes with the content, the name and every other property."""
    times = []
    for stat in (path.stat, path.lstat, path.parent.lstat):  # the file; the link to it; the model's link to its set
        with contextlib.suppress(OSError):
            times.append(stat().st_ctime)
    return max(times, default=0.0)


def _state(path: Path, file: LockedFile | None, model: LockedModel | None, store: Store) -> tuple[_State, str]:
    try:
        size = path.stat().st_size
    except FileNotFoundError:
        return "missing", "does not exist"
    except OSError as error:
        return "missing", f"cannot be read: {error.strerror}"
    if file is None or model is None:
        return "unverified", f"exists ({human(size)}); it was not compared with the lock"
    if size != file.size:
        return "damaged", f"has {size} bytes; the lock requires {file.size}"
    place = store.location(model, file)
    found = None
    with contextlib.suppress(OSError):
        found = fingerprint(place) if path.samefile(place) else None
    if found is None:
        return "unverified", f"has the size of the lock, but is not the store's file {place}"
    record = store.verified(place, file)
    if record is None:
        return "unverified", "has the size of the lock; its content was never verified here"
    if record == found:
        return "verified", "has not been modified since its content was verified"
    if {**record, "mtime_ns": 0} == {**found, "mtime_ns": 0}:  # neither replaced nor moved
        return "damaged", "was modified after its content was verified"
    return "unverified", "has the size of the lock; another file was verified in its place"
