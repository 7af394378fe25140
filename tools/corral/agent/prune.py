"""Removing from the store what nothing needs any more.

Three things keep a file: a model's link leads to it, the lock names it, or a process that is alive is at work on
it.  Everything else goes once it has lain idle for the grace period: a server that was started before an update may
still have the old files open, and over a network it loses them when they are removed.
"""

from __future__ import annotations

import errno
import shutil
import time
from dataclasses import dataclass, field, replace
from pathlib import Path

from .clock import server_time
from .errors import CannotRun, Code
from .lease import DEFAULT_LEASE_TTL
from .lock_file import Lock
from .progress import count, duration, human
from .store import Store
from .survey import Survey, survey

DEFAULT_GRACE = 24 * 3600.0


@dataclass(frozen=True)
class Removal:
    """Something that nothing needs.

    Attributes:
        path: relative to the store.
        why: what it is, and why it can go.
        size: bytes that this frees.
        idle: seconds since anything needed it.
        error: why it could not be removed; empty when it could, or was not to be.
    """

    path: str
    why: str
    size: int
    idle: float
    error: str = ""


@dataclass(frozen=True)
class Pruned:
    """What was removed, or would be; *waiting* is what stays until its grace period is over."""

    removals: tuple[Removal, ...]
    waiting: tuple[Removal, ...]
    grace: float
    deleted: bool

    @property
    def size(self) -> int:
        """Bytes that are free now, or would be."""
        return sum(removal.size for removal in self.removals if not removal.error)

    @property
    def failed(self) -> tuple[Removal, ...]:
        """What could not be removed."""
        return tuple(removal for removal in self.removals if removal.error)

    def summary(self) -> str:
        """What was done, in a sentence or two."""
        what = f"{count(len(self.removals) - len(self.failed), 'thing')}, {human(self.size)}"
        text = "Nothing to remove."
        if self.removals:
            text = f"Removed {what}." if self.deleted else f"{what}, would go; nothing was removed."
        if self.waiting:
            size = human(sum(removal.size for removal in self.waiting))
            text += f"  Idle for less than {duration(self.grace)}: {count(len(self.waiting), 'thing')}, {size}."
        return text


@dataclass
class _Found:
    """What nothing needs, sorted by whether its time has come."""

    now: float
    grace: float
    old: list[Removal] = field(default_factory=list)
    young: list[Removal] = field(default_factory=list)

    def add(self, path: str, why: str, size: int, since: float) -> None:
        """Note something that nothing has needed *since* then."""
        idle = max(0.0, self.now - since)
        (self.old if idle >= self.grace else self.young).append(Removal(path, why, size, idle))


def prune(lock: Lock, store: Store, *, grace: float = DEFAULT_GRACE, delete: bool = False) -> Pruned:
    """Find what *lock*, the models' links and processes at work have no use for, and remove it if *delete*.

    Files outside the store are never touched; for a model that lies elsewhere, only links to it are removed.

    Args:
        lock: what may be needed although no link leads to it yet.
        store: where.
        grace: seconds that something must have been idle.
        delete: remove it; else only say what would go.

    Raises:
        Refused: there is no store.
        CannotRun: it cannot be read.
    """
    try:
        now = server_time(store.leases) if delete else time.time()  # whoever only asks writes nothing
        found = _find(lock, store, survey(store, lease_ttl=DEFAULT_LEASE_TTL), _Found(now, grace))
    except OSError as error:
        raise CannotRun(
            f"The store {store.root} cannot be read: {error}.",
            next_step="Check the rights of this user there",
            code=Code.STORE_UNUSABLE,
            fields={"path": str(store.root)},
        ) from error
    removals = tuple(_remove(store, removal) for removal in found.old) if delete else tuple(found.old)
    return Pruned(removals, tuple(found.young), grace, deleted=delete)


def _find(lock: Lock, store: Store, seen: Survey, found: _Found) -> _Found:
    """In the order in which it is to be removed: what leads to something before what it leads to."""
    models = lock.models.values()
    locked_sets = {store.set_name(model) for model in models}
    locked = {file.sha256 for model in models if model.repo is not None for file in model.files}
    complete = {blob.sha256 for blob in seen.blobs if blob.names}
    at_work = set(seen.at_work)

    idle_sets = {}
    for one in seen.sets:
        if not (one.linked_by or one.foreign or one.name in locked_sets):
            idle_sets[one.name] = one.since
            found.add(f"sets/{one.name}", "set that no model's link leads to", 0, one.since)
    for blob in seen.blobs:
        if blob.sha256 not in locked | at_work and idle_sets.keys() >= set(blob.used_by):
            since = max([blob.since, *(idle_sets[name] for name in blob.used_by)])
            names = ", ".join(blob.names) or "nothing"
            found.add(f"blobs/{blob.sha256}", f"{names}, to which no set in use leads", blob.size, since)
    for download in seen.downloads:
        if download.sha256 not in at_work | (locked - complete):
            why = "that is complete" if download.sha256 in complete else "that the lock does not name"
            found.add(f".corral/partials/{download.folder}", f"part of a file {why}", download.on_disk, download.since)
    for leftover in seen.leftovers:
        found.add(str(leftover.path), leftover.what, leftover.size, leftover.since)
    return found


def _remove(store: Store, removal: Removal) -> Removal:
    """Remove it; the same with an error when that did not work."""
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
    if not path.is_symlink():  # it was not there a moment ago, and is not ours
        raise OSError(errno.ENOTEMPTY, "something that corral did not make is in it")
    path.unlink()
