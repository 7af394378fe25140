"""Reading what lies in the store again, to see whether every byte is still what the lock says."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from .lock_file import Lock, LockedFile, LockedModel
from .progress import Hashing, Report
from .stopping import Stopped
from .store import Store, hash_file

State = Literal["ok", "missing", "damaged"]


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


def verify(
    lock: Lock,
    store: Store,
    *,
    models: Sequence[str] = (),
    report: Report = lambda _event: None,
    stop: threading.Event | None = None,
) -> tuple[FileCheck, ...]:
    """Check the links and hash the content of *models* (all of *lock* when empty); changes no content.

    A file that is damaged is no longer trusted: the next fetch brings it anew.

    Raises:
        Refused: an unknown model, or foreign things in the store.
        Stopped: *stop* was set.
    """
    chosen = lock.select(models)
    hashed: dict[Path, tuple[State, str]] = {}
    checks = []
    for model in chosen:
        for link, file in model.links.items():
            path = store.location(model, file)
            if path not in hashed:
                hashed[path] = _content(store, f"{model.id}/{file.name}", path, file, report, stop)
            state, detail = hashed[path]
            if state == "ok":
                state, detail = _reachable(store, model, link, path)
            checks.append(FileCheck(model.id, link, state, detail, file.size))
    return tuple(checks)


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
        actual = hash_file(path, on_read=on_read)
    except OSError as error:
        return "damaged", f"{path} cannot be read: {error.strerror}"
    if actual != file.sha256:
        store.forget(path, file)
        return "damaged", f"sha256 {actual}, the lock says {file.sha256}"
    return "ok", ""


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
