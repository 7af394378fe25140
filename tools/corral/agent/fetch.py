"""Makes the store hold the files of the lock: downloads what is missing, then switches the links.

Sizes and free space are compared before the first request.  A model's link switches when all files of its new set are
verified and durable, and not before: a fetch that fails on the way leaves the old set linked.
"""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from .errors import CannotRun, Code, CorralError, Failed, Refused
from .hub_client import Hub, HubFile
from .hub_policy import printable
from .lease import DEFAULT_LEASE_TTL, Lease, LeaseLost
from .lock_file import Lock, LockedFile, LockedModel
from .ownership import as_owner_of
from .partial import length, read_journal
from .progress import Finished, FoundDamaged, Linked, Planned, Published, Report, Waiting, human
from .scheduling import TransferSettings
from .stopping import Stopped
from .store import Store, disk_error, fingerprint, hash_file
from .transfer import Damaged, transfer

_FIRST_POLL_SECONDS = 0.05
_LONGEST_POLL_SECONDS = 0.5
_RESERVED_SHARE = 0.01  # of what is fetched: a file system needs room for its metadata


def fetch(
    lock: Lock,
    store: Store,
    *,
    models: Sequence[str] = (),
    hub: Hub | None = None,
    report: Report = lambda _event: None,
    stop: threading.Event | None = None,
    settings: TransferSettings | None = None,
    lease_ttl: float = DEFAULT_LEASE_TTL,
) -> Finished:
    """Make *store* hold the *models* of *lock* (ids; all when empty) and link them.

    As root it writes as the owner of the store.

    The files are from *hub*, by default the one that the environment names.  *report* is called from this thread.
    *stop* ends the call soon, with ``Stopped``; what has arrived is kept.  Another process that has not renewed its
    lease for *lease_ttl* seconds counts as dead.

    Raises:
        Refused: an unknown model, a file that the hub does not have or denies, a store with files of other programs.
        Failed: a file does not match the lock, not even when fetched again; it is not published.
        CannotRun: no room, no network, a store that cannot be written, or ``Stopped``.
    """
    try:
        hub = hub or Hub.from_environment()
        work = _Fetch(store, hub, report, stop or threading.Event(), settings or TransferSettings(), lease_ttl)
        chosen = lock.select(models)
        with as_owner_of(store.root):
            return work.run(chosen)
    except OSError as error:
        raise disk_error(error, store.root) from error


@dataclass(frozen=True)
class _Item:
    """One file, its place, and the first model that has it."""

    model: LockedModel
    file: LockedFile
    path: Path

    @property
    def name(self) -> str:
        return printable(f"{self.model.id}/{self.file.name}")


@dataclass
class _Fetch:
    """One call of ``fetch``."""

    store: Store
    hub: Hub
    report: Report
    stop: threading.Event
    settings: TransferSettings
    lease_ttl: float
    moved: int = 0
    present: set[Path] = field(default_factory=set)
    damaged: dict[Path, dict[str, int]] = field(default_factory=dict)
    """The fingerprints of damaged files: a file that still has its own is not read again."""

    def run(self, models: Sequence[LockedModel]) -> Finished:
        began = time.monotonic()
        items: dict[Path, _Item] = {}
        for model in models:
            for item in self._items(model):
                items.setdefault(item.path, item)
        self._plan(list(items.values()), models)
        errors: list[tuple[LockedModel, CorralError]] = []
        for model in models:
            try:
                for item in self._items(model):
                    self._bring(item)
                changed = self.store.link(model)
                self.report(Linked(model.id, self.store.set_name(model), changed=changed))
            except (Failed, Refused) as error:  # the other models are fetched all the same
                errors.append((model, error))
        if errors:
            raise _joined(errors)
        finished = Finished(
            models=len(models),
            files=len(items),
            bytes_total=sum(item.file.size for item in items.values()),
            bytes_moved=self.moved,
            seconds=time.monotonic() - began,
        )
        self.report(finished)
        return finished

    def _items(self, model: LockedModel) -> list[_Item]:
        return [_Item(model, file, self.store.location(model, file)) for file in model.files]

    def _plan(self, items: Sequence[_Item], models: Sequence[LockedModel]) -> None:
        """Find out which files are present, and refuse when the others do not fit on the disk."""
        store = self.store
        store.prepare()
        for model in models:
            store.linked_set(model.id)
        missing: dict[str, int] = {}
        for item in items:
            if self._is_present(item):
                self.present.add(item.path)
            elif item.model.repo is not None:
                begun = store.partials_of(item.file.sha256)
                kept = read_journal(begun[0], item.file) if begun else None
                missing[item.file.sha256] = item.file.size - length(kept or [])
        needed = sum(missing.values())
        total = sum(item.file.size for item in items)
        free = store.free_bytes()
        self.report(Planned(files=len(items), bytes_total=total, bytes_missing=needed, bytes_free=free))
        reserve = int(needed * _RESERVED_SHARE)
        if needed + reserve > free:
            raise CannotRun(
                f"{store.root} has {human(free)} free; "
                f"{human(needed)} are to be fetched and {human(reserve)} kept free.",
                next_step="Make room there, fetch fewer models (corral fetch MODEL), or name another one: --store DIR",
                code=Code.STORE_FULL,
                fields={"path": str(store.root), "free_bytes": free, "needed_bytes": needed, "reserved_bytes": reserve},
            )

    def _is_present(self, item: _Item) -> bool:
        """Whether the file is in its place with the right content; reads it when there is no record of that."""
        store, file, path = self.store, item.file, item.path
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
        if self.damaged.get(path) == found:
            return False
        if hash_file(path, size, item.name, self.report, self.stop) != file.sha256:
            self.damaged[path] = found
            if item.model.repo is not None:
                self.report(FoundDamaged(item.name))
            return False
        store.record(path, file)
        return True

    def _bring(self, item: _Item) -> None:
        """Return when the file is in its place: it was there, was downloaded here, or by another process."""
        store, file, model, path = self.store, item.file, item.model, item.path
        if path in self.present:
            if model.repo is not None:
                store.drop_partials(file.sha256)  # of a process that died between its last two steps
            return
        repo, revision = model.origin(file)
        if repo is None or revision is None:
            raise _not_on_disk(path, file)
        source = partial(self.hub.file, repo, revision, file.path)
        pause = 0.0
        while path not in self.present:
            if self.stop.is_set():
                raise Stopped
            lease = Lease(store.leases / file.sha256, self.lease_ttl)
            if lease.take():
                with lease:
                    self._bring_as_owner(item, source, lease)
                continue
            if not pause:
                self.report(Waiting(item.name, str(lease.holder() or "another process")))
            pause = min(2 * pause or _FIRST_POLL_SECONDS, _LONGEST_POLL_SECONDS)
            self.stop.wait(pause)

    def _bring_as_owner(self, item: _Item, source: Callable[[], HubFile], lease: Lease) -> None:
        """Download and publish, unless another process has done so or takes the lease over."""
        began = time.monotonic()
        store, file = self.store, item.file
        if self._is_present(item):
            self.present.add(item.path)
            return
        folder = store.adopt_partial(file.sha256, lease.owner)
        try:
            path, moved = transfer(
                file,
                source,
                folder,
                name=item.name,
                report=self.report,
                stop=self.stop,
                check=lease.check,
                settings=self.settings,
            )
            self.moved += moved
            store.publish(path, file)
        except Damaged:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        except (LeaseLost, FileNotFoundError):
            if lease.is_mine():
                raise
            return
        shutil.rmtree(folder, ignore_errors=True)
        self.present.add(item.path)
        self.report(Published(item.name, file.sha256, file.size, moved=moved, seconds=time.monotonic() - began))


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


def _joined(errors: Sequence[tuple[LockedModel, CorralError]]) -> CorralError:
    """One error for all of *errors*."""
    kind = Failed if any(isinstance(error, Failed) for _, error in errors) else Refused
    model, first = next((one for one in errors if isinstance(one[1], kind)), errors[0])
    return kind(
        "\n".join(f"{model.id}: {error.message}" for model, error in errors),
        next_step=first.next_step,
        code=first.code,
        fields={"model": model.id, **first.fields},
    )
