"""Reads the store's files again and compares them with the lock; repairs what is missing or damaged."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from .errors import CorralError
from .fetch import fetch
from .hub_client import Hub
from .hub_policy import printable
from .lock_file import Lock, LockedFile, LockedModel
from .ownership import as_owner_of
from .progress import Report
from .scheduling import TransferSettings
from .stopping import Stopped
from .store import Store, fingerprint, hash_file

State = Literal["ok", "repaired", "missing", "damaged"]


@dataclass(frozen=True)
class FileCheck:
    """The state of one file of one model."""

    model: str
    file: str  # as servers call it: model.gguf
    state: State  # missing: also when the model's link does not lead to it
    detail: str  # what is wrong, as a clause
    size: int  # bytes, by the lock

    @property
    def is_good(self) -> bool:
        """Whether a server gets now the file of the lock."""
        return self.state in ("ok", "repaired")


def verify(
    lock: Lock,
    store: Store,
    *,
    models: Sequence[str] = (),
    report: Report = lambda _event: None,
    stop: threading.Event | None = None,
) -> tuple[FileCheck, ...]:
    """Check the links and hash the content of *models* (all of *lock* when empty); changes no content.

    The record of a damaged file is removed, so that the next fetch replaces it; a good file gets one.

    Raises:
        Refused: an unknown model, or foreign things in the store.
        Stopped: *stop* was set.
    """
    chosen = lock.select(models)
    with as_owner_of(store.root):
        return tuple(_checks(chosen, store, report, stop))


def repair(
    lock: Lock,
    store: Store,
    checks: Sequence[FileCheck],
    *,
    hub: Hub | None = None,
    report: Report = lambda _event: None,
    stop: threading.Event | None = None,
    settings: TransferSettings | None = None,
) -> tuple[tuple[FileCheck, ...], CorralError | None]:
    """Fetch what *checks*, the result of ``verify``, found missing or damaged, then read it once more.

    A server that has a damaged file open keeps it: the good one takes its name, not its place on disk.  For the other
    arguments see ``fetch``.  Returns *checks* as they are now, and the error of the fetch, if any; raises ``Stopped``.
    """
    bad = {check.model for check in checks if not check.is_good}
    if not bad:
        return tuple(checks), None
    failure = None
    try:
        fetch(lock, store, models=sorted(bad), hub=hub, report=report, stop=stop, settings=settings)
    except Stopped:
        raise
    except CorralError as error:
        failure = error
    verified = verify(lock, store, models=sorted(bad), report=report, stop=stop)
    again = {(check.model, check.file): check for check in verified}

    def now(before: FileCheck) -> FileCheck:
        after = again.get((before.model, before.file), before)
        return replace(before, state="repaired") if after.is_good and not before.is_good else after

    return tuple(now(check) for check in checks), failure


def _checks(
    models: Sequence[LockedModel], store: Store, report: Report, stop: threading.Event | None
) -> Iterator[FileCheck]:
    hashed: dict[Path, tuple[State, str]] = {}
    for model in models:
        for link, file in model.links.items():
            path = store.location(model, file)
            if path not in hashed:
                hashed[path] = _content(store, printable(f"{model.id}/{file.name}"), path, file, report, stop)
            state, detail = hashed[path]
            if state == "ok":
                state, detail = _reachable(store, model, link, path)
            yield FileCheck(model.id, link, state, detail, file.size)


def _content(
    store: Store, name: str, path: Path, file: LockedFile, report: Report, stop: threading.Event | None
) -> tuple[State, str]:
    try:
        size = path.stat().st_size
    except FileNotFoundError:
        return "missing", f"{path} does not exist"
    except OSError as error:
        return "missing", f"{path} cannot be read: {error.strerror}"
    if size != file.size:
        store.forget(path, file)
        return "damaged", f"{size} bytes, {file.size} in the lock"
    try:
        before = fingerprint(path)
        actual = hash_file(path, size, name, report, stop)
    except OSError as error:
        return "damaged", f"{path} cannot be read: {error.strerror}"
    if actual != file.sha256:
        store.forget(path, file)
        return "damaged", f"sha256 {actual}, {file.sha256} in the lock"
    with contextlib.suppress(OSError):  # verify may run where the store is read-only
        # A valid record stays as it is, because prune uses its age; a file that changed while it was read gets none.
        if not store.recorded(path, file) and fingerprint(path) == before:
            store.record(path, file)
    return "ok", ""


def _reachable(store: Store, model: LockedModel, link: str, path: Path) -> tuple[State, str]:
    """Whether a server that follows the model's link gets the file at *path*."""
    if store.linked_set(model.id) != store.set_name(model):
        return "missing", f"{store.root / model.id} does not lead to the set of this lock"
    served = store.root / model.id / link
    with contextlib.suppress(OSError):
        if served.samefile(path):
            return "ok", ""
    return "missing", f"{served} does not lead to {path}"
