"""Removes from the store what nothing needs any more.

A file stays while a model's link leads to it, the lock names it, or a live process works on it.  Everything else is
removed after the grace period: a server that was started before an update may still have the old files open, and over
a network it loses them when they are removed.
"""

from __future__ import annotations

import errno
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from .hub_policy import printable
from .lease import server_time
from .lock_file import Lock
from .progress import count, duration, human
from .store import Store, disk_error
from .survey import Survey, survey

DEFAULT_GRACE = 24 * 3600.0


@dataclass(frozen=True)
class Removal:
    """Something that nothing needs."""

    path: str  # relative to the store
    why: str  # what it is, and why nothing needs it
    size: int  # bytes that its removal frees
    idle: float  # seconds since anything needed it
    error: str = ""  # why it could not be removed


@dataclass(frozen=True)
class Pruned:
    """What was removed, or would be, and what stays until its grace period is over."""

    removals: tuple[Removal, ...]
    waiting: tuple[Removal, ...]
    grace: float
    deleted: bool

    @property
    def size(self) -> int:
        """Bytes that were freed, or would be."""
        return sum(removal.size for removal in self.removals if not removal.error)

    @property
    def failed(self) -> tuple[Removal, ...]:
        """What could not be removed."""
        return tuple(removal for removal in self.removals if removal.error)

    def summary(self) -> str:
        """One or two sentences."""
        what = f"{count(len(self.removals) - len(self.failed), 'thing')}, {human(self.size)}"
        text = "Nothing to remove."
        if self.removals:
            text = f"Removed {what}." if self.deleted else f"{what}, would be removed; nothing was."
        if self.waiting:
            size = human(sum(removal.size for removal in self.waiting))
            text += f"  Idle for less than {duration(self.grace)}: {count(len(self.waiting), 'thing')}, {size}."
        return text


def prune(lock: Lock, store: Store, *, grace: float = DEFAULT_GRACE, delete: bool = False) -> Pruned:
    """Find what *lock*, the models' links and live processes do not need, and remove it if *delete*.

    What was needed less than *grace* seconds ago stays.  Files outside the store are never touched; for a model that
    lies elsewhere, only links to it are removed.

    Raises:
        Refused: there is no store.
        CannotRun: it cannot be read.
    """
    try:
        now = server_time(store.leases) if delete else time.time()  # a dry run writes nothing
        found = list(_find(lock, store, survey(store), now))
    except OSError as error:
        raise disk_error(error, store.root) from error
    removals = [removal for removal in found if removal.idle >= grace]
    waiting = tuple(removal for removal in found if removal.idle < grace)
    return Pruned(tuple(_remove(store, one) if delete else one for one in removals), waiting, grace, deleted=delete)


def _find(lock: Lock, store: Store, found: Survey, now: float) -> Iterator[Removal]:
    """In the order of removal: what leads to something before what it leads to."""

    def unneeded(path: str, why: str, size: int, since: float) -> Removal:
        return Removal(path, why, size, max(0.0, now - since))

    models = lock.models.values()
    locked_sets = {store.set_name(model) for model in models}
    locked = {file.sha256 for model in models if model.repo is not None for file in model.files}
    complete = {blob.sha256 for blob in found.blobs if blob.names}
    at_work = set(found.at_work)

    idle_sets = {}
    for one in found.sets:
        if not (one.linked_by or one.foreign or one.name in locked_sets):
            idle_sets[one.name] = one.since
            yield unneeded(f"sets/{one.name}", "set that no model's link leads to", 0, one.since)
    for blob in found.blobs:
        if blob.sha256 not in locked | at_work and idle_sets.keys() >= set(blob.used_by):
            since = max([blob.since, *(idle_sets[name] for name in blob.used_by)])
            names = printable(", ".join(blob.names)) or "nothing"
            yield unneeded(f"blobs/{blob.sha256}", f"{names}, to which no set in use leads", blob.size, since)
    for download in found.downloads:
        if download.sha256 not in at_work | (locked - complete):
            why = "that is complete" if download.sha256 in complete else "that the lock does not name"
            path = f".corral/partials/{download.folder}"
            yield unneeded(path, f"part of a file {why}", download.on_disk, download.since)
    for leftover in found.leftovers:
        yield unneeded(leftover.path, leftover.what, leftover.size, leftover.since)


def _remove(store: Store, removal: Removal) -> Removal:
    """*removal*, with its error when that failed."""
    path = store.root / removal.path
    try:
        match Path(removal.path).parts:
            case ["sets", _]:
                for link in path.iterdir():
                    _unlink_link(link)
                path.rmdir()
            case ["blobs", sha256]:
                (store.records / f"{sha256}.json").unlink(missing_ok=True)
                for file in path.iterdir():
                    file.unlink()
                path.rmdir()
            case [".corral", "partials" | "replaced", _]:
                shutil.rmtree(path)
            case _:
                path.unlink()
    except FileNotFoundError:
        pass
    except OSError as error:
        return replace(removal, error=error.strerror or str(error))
    return removal


def _unlink_link(path: Path) -> None:
    if not path.is_symlink():  # made since the survey, and not by corral
        raise OSError(errno.ENOTEMPTY, "something that corral did not make is in it")
    path.unlink()
