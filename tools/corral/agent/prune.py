"""Removes from the store what nothing needs any more.

A lock names models; a model's link that no lock names is not needed, nor is what only such a link leads to.  A file
stays while a model's link that is needed leads to it, a lock names it, a live process works on it, or a process of this
machine has it open.  Everything else is removed after the grace period: a server that was started before an update may
still have the old files open, and over a network it loses them when they are removed.

The store does not record whose fetch made a link, and several catalogs may fill one store.  So the locks of the others
are given, too, and a fetch of any catalog restarts the grace period of the models that it names.
"""

from __future__ import annotations

import errno
import shutil
import threading
import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from .errors import Code, Refused
from .hub_policy import printable
from .lease import server_time
from .lock_file import Lock
from .open_files import OpenFiles, open_files
from .ownership import as_owner_of
from .progress import count, duration, human
from .stopping import Stopped
from .store import Store, disk_error, of_another
from .survey import Survey, survey

DEFAULT_GRACE = 24 * 3600.0


@dataclass(frozen=True)
class Removal:
    """Something that nothing needs."""

    path: str  # relative to the store
    why: str  # what it is, and why nothing needs it
    size: int  # bytes that its removal frees; of what stays in use: that stay with it
    idle: float  # seconds since anything needed it
    error: str = ""  # why it could not be removed
    in_use: bool = False  # a process of this machine has it open, so it stays however idle it is


@dataclass(frozen=True)
class Pruned:
    """What was removed, or would be, what stays until its grace period is over, and what a process has open."""

    removals: tuple[Removal, ...]
    waiting: tuple[Removal, ...]
    in_use: tuple[Removal, ...]
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
        for why, kept in (
            (f"Idle for less than {duration(self.grace)}", self.waiting),
            ("Open in a process of this machine", self.in_use),
        ):
            if kept:
                text += f"  {why}: {count(len(kept), 'thing')}, {human(sum(one.size for one in kept))}."
        return text


def prune(
    lock: Lock,
    store: Store,
    *,
    others: Sequence[Lock] = (),
    served: Collection[str] = (),
    grace: float = DEFAULT_GRACE,
    delete: bool = False,
    stop: threading.Event | None = None,
) -> Pruned:
    """Find what *lock*, *others*, the links of their models and live processes do not need, and remove it if *delete*.

    What was needed less than *grace* seconds ago stays.  Files outside the store are never touched; for a model that
    lies elsewhere, only links to it are removed.

    Args:
        lock: of the catalog that the store belongs to.
        store: what is pruned.
        others: the locks of other catalogs that use the store.
        served: ids of models that stay as if a lock named them, because they are served now.
        grace: seconds.
        delete: remove it; without it nothing is written.
        stop: ends the removal between two things, with ``Stopped``.

    Raises:
        Refused: there is no store, or links would be removed and none in it is of a model that a lock names.
        CannotRun: it cannot be read.
    """
    locks = (lock, *others)
    named = {name for one in locks for name in one.models} | set(served)
    try:
        found, opened = survey(store), open_files()
        with as_owner_of(store.root):
            now = server_time(store.leases) if delete else time.time()  # a dry run writes nothing
        removable = list(_find(locks, named, store, found, opened, now))
    except OSError as error:
        raise disk_error(error, store.root) from error
    free = [one for one in removable if not one.in_use]
    removals = [one for one in free if one.idle >= grace]
    if delete:
        _require_its_lock(store, locks, named, found, removals)
        with as_owner_of(store.root):
            removals = [_remove(store, one, stop) for one in removals]
    return Pruned(
        removals=tuple(removals),
        waiting=tuple(one for one in free if one.idle < grace),
        in_use=tuple(one for one in removable if one.in_use),
        grace=grace,
        deleted=delete,
    )


def _require_its_lock(
    store: Store, locks: Sequence[Lock], named: Collection[str], found: Survey, removals: Sequence[Removal]
) -> None:
    """Refuse to remove links by the locks of another store: where those name no model at all that is linked here."""
    links = {link.model for link in found.links}
    if links.isdisjoint(named) and (lost := sorted(links & {one.path for one in removals})):
        names = " or ".join(str(one.path) for one in locks)
        raise Refused(
            f"Of the models in {store.root} ({', '.join(lost)}) none is in {names}: it may be another catalog's store.",
            next_step="Fetch what the lock names first (corral fetch), or name the store's lock: --keep-lock FILE",
            code=Code.MODEL_UNKNOWN,
            fields={"models": " ".join(lost)},
        )


def _find(
    locks: Sequence[Lock], named: Collection[str], store: Store, found: Survey, opened: OpenFiles, now: float
) -> Iterator[Removal]:
    """In the order of removal: what leads to something before what it leads to."""

    def unneeded(path: str, why: str, size: int, since: float, *, in_use: bool = False) -> Removal:
        return Removal(path, why, size, max(0.0, now - since), in_use=in_use)

    models = [model for lock in locks for model in lock.models.values()]
    locked_sets = {store.set_name(model) for model in models}
    locked = {file.sha256 for model in models if model.repo is not None for file in model.files}
    complete = {blob.sha256 for blob in found.blobs if blob.names}
    at_work = set(found.at_work)
    used = {blob.sha256: blob.since for blob in found.blobs}
    sets = {one.name: one for one in found.sets}
    open_sets = {
        one.name for one in found.sets if any(opened.has(store.root / "sets" / one.name / name) for name in one.files)
    }

    idle_links = {}
    for link in found.links:
        if link.model not in named:
            one = sets.get(link.set_name)
            since = max([link.since, *(used[sha256] for sha256 in (one.blobs if one else ()) if sha256 in used)])
            what = f"model of {human(one.size)}" if one else "model without files"
            in_use = link.set_name in open_sets
            if not in_use:
                idle_links[link.model] = since
            size = one.size if one and in_use else 0
            yield unneeded(link.model, f"{what} that no lock names", size, since, in_use=in_use)
    idle_sets = {}
    for one in found.sets:
        if not (set(one.linked_by) - idle_links.keys() or one.foreign or one.name in locked_sets):
            since = max([one.since, *(idle_links[link] for link in one.linked_by)])
            in_use = one.name in open_sets
            if not in_use:
                idle_sets[one.name] = since
            why = "set of that model" if one.linked_by else "set that no model's link leads to"
            yield unneeded(f"sets/{one.name}", why, one.size if in_use else 0, since, in_use=in_use)
    for blob in found.blobs:
        if blob.sha256 not in locked | at_work and idle_sets.keys() >= set(blob.used_by):
            since = max([blob.since, *(idle_sets[name] for name in blob.used_by)])
            names = printable(", ".join(blob.names)) or "nothing"
            in_use = any(opened.has(store.root / "blobs" / blob.sha256 / name) for name in blob.names)
            path = f"blobs/{blob.sha256}"
            yield unneeded(path, f"{names}, to which no set in use leads", blob.size, since, in_use=in_use)
    for download in found.downloads:
        if download.sha256 not in at_work | (locked - complete):
            why = "that is complete" if download.sha256 in complete else "that no lock names"
            path = f".corral/partials/{download.folder}"
            yield unneeded(path, f"part of a file {why}", download.on_disk, download.since)
    for leftover in found.leftovers:
        yield unneeded(leftover.path, leftover.what, leftover.size, leftover.since)


def _remove(store: Store, removal: Removal, stop: threading.Event | None) -> Removal:
    """*removal*, with its error when that failed."""
    if stop and stop.is_set():
        raise Stopped
    path = store.root / removal.path
    try:
        match Path(removal.path).parts:
            case [_]:
                _unlink_link(path)
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
        foreign = of_another(error, store.root)
        why = f"{foreign.message} {foreign.next_step}" if foreign else error.strerror or str(error)
        return replace(removal, error=why)
    return removal


def _unlink_link(path: Path) -> None:
    if not path.is_symlink():  # made since the survey, and not by corral
        raise OSError(errno.ENOTEMPTY, "something that corral did not make is in it")
    path.unlink()
