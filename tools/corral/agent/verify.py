"""Reading what lies in the store again, to see whether every byte is still what the lock says; mending what is not."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from .errors import CorralError
from .fetch import fetch
from .hub_client import Hub
from .lock_file import Lock, LockedFile, LockedModel
from .patience import Settings
from .progress import Hashing, Report
from .stopping import Stopped
from .store import Store, fingerprint, hash_file

State = Literal["ok", "repaired", "missing", "damaged"]


@dataclass(frozen=True)
class FileCheck:
    """What is true of one file of one model.

    Attributes:
        model: the model's id.
        file: what servers call it: ``model.gguf``.
        state: ``missing`` also says that the model's link does not lead to it.
        detail: what is wrong, as a clause; empty when nothing is.
        size: bytes, by the lock.
    """

    model: str
    file: str
    state: State
    detail: str
    size: int

    @property
    def is_good(self) -> bool:
        """Whether a server gets now what the lock says."""
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

    A file that is damaged is no longer trusted: the next fetch brings it anew.  One that is good is put on record.

    Raises:
        Refused: an unknown model, or foreign things in the store.
        Stopped: *stop* was set.
    """
    hashed: dict[Path, tuple[State, str]] = {}
    checks = []
    for model in lock.select(models):
        for link, file in model.links.items():
            path = store.location(model, file)
            if path not in hashed:
                hashed[path] = _content(store, f"{model.id}/{file.name}", path, file, report, stop)
            state, detail = hashed[path]
            if state == "ok":
                state, detail = _reachable(store, model, link, path)
            checks.append(FileCheck(model.id, link, state, detail, file.size))
    return tuple(checks)


def repair(
    lock: Lock,
    store: Store,
    checks: Sequence[FileCheck],
    *,
    hub: Hub | None = None,
    report: Report = lambda _event: None,
    stop: threading.Event | None = None,
    settings: Settings | None = None,
) -> tuple[tuple[FileCheck, ...], CorralError | None]:
    """Fetch anew what *checks* found missing or damaged, then read it once more.

    A server that has a damaged file open keeps it: the good one takes its name, not its place on disk.

    Args:
        lock: what must be there.
        store: where.
        checks: the answer of ``verify``.
        hub: where good copies come from; by default what the environment says.
        report: called with each event, from this thread.
        stop: end soon, with ``Stopped``.
        settings: how hard to try.

    Returns:
        *checks* as they are now, and what kept the rest from being repaired.

    Raises:
        Stopped: *stop* was set.
    """
    bad = {check.model for check in checks if not check.is_good}
    if not bad:
        return tuple(checks), None
    trouble = None
    try:
        fetch(lock, store, models=sorted(bad), hub=hub, report=report, stop=stop, settings=settings)
    except Stopped:
        raise
    except CorralError as error:
        trouble = error
    again = {
        (check.model, check.file): check for check in verify(lock, store, models=sorted(bad), report=report, stop=stop)
    }
    return tuple(_now(check, again.get((check.model, check.file), check)) for check in checks), trouble


def _now(before: FileCheck, after: FileCheck) -> FileCheck:
    return replace(before, state="repaired") if after.is_good and not before.is_good else after


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
        return "damaged", f"{size} bytes, the lock says {file.size}"

    def on_read(done: int) -> None:
        if stop and stop.is_set():
            raise Stopped
        report(Hashing(name, done, size))

    try:
        before = fingerprint(path)
        actual = hash_file(path, on_read=on_read)
    except OSError as error:
        return "damaged", f"{path} cannot be read: {error.strerror}"
    if actual != file.sha256:
        store.forget(path, file)
        return "damaged", f"sha256 {actual}, the lock says {file.sha256}"
    _put_on_record(store, path, file, before)
    return "ok", ""


def _put_on_record(store: Store, path: Path, file: LockedFile, read: dict[str, int]) -> None:
    """Remember that *path*, which had the fingerprint *read* before it was read, is good."""
    with contextlib.suppress(OSError):  # verify may run where the store is read-only
        # What is on record already stays as it is: prune goes by its age.
        if not store.recorded(path, file) and fingerprint(path) == read:
            store.record(path, file)


def _reachable(store: Store, model: LockedModel, link: str, path: Path) -> tuple[State, str]:
    """Whether a server that follows the model's link gets the file at *path*."""
    if store.linked_set(model.id) != store.set_name(model):
        return "missing", f"{store.root / model.id} does not lead to the set of this lock"
    seen = store.root / model.id / link
    try:
        reached = seen.samefile(path)
    except OSError:
        reached = False
    return ("ok", "") if reached else ("missing", f"{seen} does not lead to {path}")
