"""Bringing the store to what the lock says: download what is missing, then flip the links.

Sizes and room are summed before the first byte moves.  A model's link flips when all files of its new set are
verified and durable, and not before: a fetch that fails half-way leaves every server what it had.
"""

from __future__ import annotations

import errno
import shutil
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from .errors import CannotRun, Code, CorralError, Failed, Refused
from .hub_client import Hub, HubFile
from .lease import DEFAULT_LEASE_TTL, Lease, LeaseLost
from .lock_file import Lock, LockedFile, LockedModel
from .partial import length, read_journal
from .patience import Settings
from .progress import Finished, FoundDamaged, Hashing, Linked, Planned, Published, Report, Waiting, human
from .stopping import Stopped
from .store import Store, fingerprint, hash_file
from .transfer import Damaged, transfer

_FIRST_POLL_SECONDS = 0.05
_LONGEST_POLL_SECONDS = 0.5
_RESERVED_SHARE = 0.01
"""Of what is fetched: a file system needs room for its own books."""


@dataclass(frozen=True)
class _Item:
    """One file to have, and the first model that wants it."""

    model: LockedModel
    file: LockedFile

    @property
    def name(self) -> str:
        return f"{self.model.id}/{self.file.name}"


@dataclass
class _Fetch:
    """One call of ``fetch``."""

    store: Store
    hub: Hub
    report: Report
    stop: threading.Event
    settings: Settings
    lease_ttl: float
    moved: int = 0
    present: set[Path] = field(default_factory=set)
    damaged: dict[Path, dict[str, int]] = field(default_factory=dict)
    """What was read and found wrong, as it was then: as long as it stays that way it is not read again."""


def fetch(
    lock: Lock,
    store: Store,
    *,
    models: Sequence[str] = (),
    hub: Hub | None = None,
    report: Report = lambda _event: None,
    stop: threading.Event | None = None,
    settings: Settings | None = None,
    lease_ttl: float = DEFAULT_LEASE_TTL,
) -> Finished:
    """Make *store* hold the models of *lock* and link them.

    Args:
        lock: what there must be.
        store: where.
        models: ids; all of the lock when empty.
        hub: where from; by default what the environment says.
        report: called with each event, from this thread.
        stop: end soon, with ``Stopped``; what has arrived is kept.
        settings: how hard to try.
        lease_ttl: seconds after which another process that shows no sign of life counts as dead.

    Raises:
        Refused: an unknown model, a file that the hub does not have or give, a store with foreign things in it.
        Failed: a file does not match the lock, not even when fetched anew; it is not published.
        CannotRun: no room, no network, a store that cannot be written, or ``Stopped``.
    """
    try:
        return _run(
            _Fetch(
                store=store,
                hub=hub or Hub.from_environment(),
                report=report,
                stop=stop or threading.Event(),
                settings=settings or Settings(),
                lease_ttl=lease_ttl,
            ),
            lock.select(models),
        )
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise CannotRun(
                f"There is no room left in {store.root}; what has arrived is kept.",
                next_step="Make room there, then run the same command again: it goes on from here.",
                code=Code.STORE_FULL,
                fields={"path": str(store.root)},
            ) from error
        raise CannotRun(
            f"The store {store.root} does not work as it should: {error}.",
            next_step="Check the file system under it, and the rights of this user there",
            code=Code.STORE_UNUSABLE,
            fields={"path": str(store.root)},
        ) from error


def _run(work: _Fetch, models: Sequence[LockedModel]) -> Finished:
    began = time.monotonic()
    items = _items(work.store, models)
    _plan(work, items, models)
    troubles: list[tuple[LockedModel, CorralError]] = []
    for model in models:
        try:
            for file in model.files:
                _bring(work, _Item(model, file))
            changed = work.store.link(model)
            work.report(Linked(model.id, work.store.set_name(model), changed=changed))
        except (Failed, Refused) as error:  # one model's trouble is not the next one's
            troubles.append((model, error))
    if troubles:
        raise _joined(troubles)
    finished = Finished(
        models=len(models),
        files=len(items),
        bytes_total=sum(item.file.size for item in items),
        bytes_moved=work.moved,
        seconds=time.monotonic() - began,
    )
    work.report(finished)
    return finished


def _items(store: Store, models: Sequence[LockedModel]) -> list[_Item]:
    """The files of *models*, each place in the store once."""
    items: dict[Path, _Item] = {}
    for model in models:
        for file in model.files:
            items.setdefault(store.location(model, file), _Item(model, file))
    return list(items.values())


def _plan(work: _Fetch, items: Sequence[_Item], models: Sequence[LockedModel]) -> None:
    """Find out what is there, and that the rest has room; nothing is fetched before that is clear."""
    store = work.store
    store.prepare()
    for model in models:
        store.linked_set(model.id)
    missing: dict[str, int] = {}
    for item in items:
        if _is_present(work, item):
            work.present.add(store.location(item.model, item.file))
        elif item.model.repo is not None:
            begun = store.partials_of(item.file.sha256)
            kept = read_journal(begun[0], item.file) if begun else None
            missing[item.file.sha256] = item.file.size - length(kept or [])
    needed = sum(missing.values())
    total = sum(item.file.size for item in items)
    free = store.free_bytes()
    work.report(Planned(files=len(items), bytes_total=total, bytes_missing=needed, bytes_free=free))
    reserve = int(needed * _RESERVED_SHARE)
    if needed + reserve > free:
        raise CannotRun(
            f"{store.root} has {human(free)} free; {human(needed)} are to be fetched and {human(reserve)} kept free.",
            next_step="Make room there, fetch fewer models (corral fetch MODEL), or name another folder: --store DIR",
            code=Code.STORE_FULL,
            fields={"path": str(store.root), "free_bytes": free, "needed_bytes": needed, "reserved_bytes": reserve},
        )


def _is_present(work: _Fetch, item: _Item) -> bool:
    """Whether the file is in its place with the right content; reads it when nothing vouches for that."""
    store, file = work.store, item.file
    path = store.location(item.model, file)
    if item.model.repo is not None:
        store.reuse_under_other_name(file)
    try:
        size = path.stat().st_size
    except OSError:
        return False
    if size != file.size:
        return False
    if store.recorded(path, file):
        store.keep(path, file)
        return True
    found = fingerprint(path)
    if work.damaged.get(path) == found:
        return False

    def on_read(done: int) -> None:
        if work.stop.is_set():
            raise Stopped
        work.report(Hashing(item.name, done, size))

    if hash_file(path, on_read=on_read) != file.sha256:
        work.damaged[path] = found
        if item.model.repo is not None:
            work.report(FoundDamaged(item.name))
        return False
    store.record(path, file)
    return True


def _bring(work: _Fetch, item: _Item) -> None:
    """Make sure that the file is in its place: there already, downloaded, or by another process."""
    store, file, model = work.store, item.file, item.model
    path = store.location(model, file)
    if path in work.present:
        if model.repo is not None:
            store.drop_partials(file.sha256)  # of a process that died between its last two steps
        return
    if model.repo is None or model.revision is None:
        raise _not_on_disk(path, file)
    source = partial(work.hub.file, model.repo, model.revision, file.path)
    pause = 0.0
    while path not in work.present:
        if work.stop.is_set():
            raise Stopped
        lease = Lease(store.leases / file.sha256, work.lease_ttl)
        if lease.take():
            with lease:
                _bring_as_owner(work, item, source, lease)
            continue
        if not pause:
            work.report(Waiting(item.name, str(lease.holder() or "another process")))
        pause = min(2 * pause or _FIRST_POLL_SECONDS, _LONGEST_POLL_SECONDS)
        work.stop.wait(pause)


def _bring_as_owner(work: _Fetch, item: _Item, source: Callable[[], HubFile], lease: Lease) -> None:
    """Download and publish, unless that has happened meanwhile, or another process takes the work over."""
    began = time.monotonic()
    store, file = work.store, item.file
    path = store.location(item.model, file)
    if _is_present(work, item):
        work.present.add(path)
        return
    folder = store.adopt_partial(file.sha256, lease.owner)
    try:
        done = transfer(
            file,
            source,
            folder,
            name=item.name,
            report=work.report,
            stop=work.stop,
            check=lease.check,
            settings=work.settings,
        )
        work.moved += done.moved
        store.publish(done.path, file)
    except Damaged:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    except (LeaseLost, FileNotFoundError):
        if lease.is_mine():
            raise
        return
    shutil.rmtree(folder, ignore_errors=True)
    work.present.add(path)
    work.report(Published(item.name, file.sha256, file.size, moved=done.moved, seconds=time.monotonic() - began))


def _not_on_disk(path: Path, file: LockedFile) -> CorralError:
    if not path.exists():
        return Refused(
            f"{path} is not there; the lock has it as a model on disk.",
            next_step="Put it there again",
            code=Code.SOURCE_MISSING,
            fields={"path": str(path)},
        )
    size = path.stat().st_size
    return Failed(
        f"{path} is not the file that was locked: {size} bytes on disk, {file.size} in the lock, or another sha256.",
        next_step="If the change was meant, bring the lock up to date with: corral lock",
        code=Code.CONTENT_DIFFERS,
        fields={"path": str(path)},
    )


def _joined(troubles: Sequence[tuple[LockedModel, CorralError]]) -> CorralError:
    """One error for all of *troubles*."""
    kind = Failed if any(isinstance(error, Failed) for _, error in troubles) else Refused
    model, first = next((one for one in troubles if isinstance(one[1], kind)), troubles[0])
    return kind(
        "\n".join(f"{model.id}: {error.message}" for model, error in troubles),
        next_step=first.next_step,
        code=first.code,
        fields={"model": model.id, **first.fields},
    )
