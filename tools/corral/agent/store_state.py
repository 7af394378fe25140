"""What a store has of a lock, and the room under it: read again and again, and nothing is changed."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

from .errors import CorralError, Refused
from .lock_file import Lock, LockedModel
from .page_cache import cached_bytes
from .store import Store
from .survey import survey

STATES = ("ready", "unverified", "outdated", "missing")
"""Of a model: served as the lock has it; not verified as it is now; another version is linked; it cannot be served."""

PERIOD_S = 30.0
OLDEST_S = 90.0
"""A state that is older is not known any more: a network file system that hangs lets no call return."""


@dataclass(frozen=True)
class ModelState:
    """A model of the lock; sizes in bytes."""

    model: str
    state: Literal["ready", "unverified", "outdated", "missing"]
    size: int  # of its files, by the lock
    cached: int | None  # of the files that servers open, in this machine's page cache; None: unknown, or there are none


@dataclass(frozen=True)
class StoreState:
    """A store at a moment; sizes in bytes."""

    total: int  # of the file system
    free: int
    unlinked: int  # of blobs that no model links to
    downloads: int  # files that a live process downloads
    models: tuple[ModelState, ...]


def read(lock: Lock, store: Store) -> StoreState:
    """The state of *store* now.

    Raises:
        Refused: there is no store.
        OSError: it cannot be read.
    """
    found = survey(store)
    return StoreState(
        total=found.total,
        free=found.free,
        unlinked=found.unlinked,
        downloads=len(found.at_work),
        models=tuple(_model(store, model) for model in lock.models.values()),
    )


def _model(store: Store, model: LockedModel) -> ModelState:
    state = _state(store, model)
    cached = None
    if state in ("ready", "unverified"):
        with contextlib.suppress(CorralError, FileNotFoundError):  # the kernel reports to a file's owner alone
            cached = sum(cached_bytes(store.root / model.id / link) for link in model.links)
    return ModelState(model.id, state, sum(file.size for file in model.files), cached)


def _state(store: Store, model: LockedModel) -> Literal["ready", "unverified", "outdated", "missing"]:
    try:
        linked = store.linked_set(model.id)
    except Refused:  # something stands in the link's place
        return "missing"
    if linked is None:
        return "missing"
    if linked != store.set_name(model):
        return "outdated"
    if not all((store.root / model.id / link).is_file() for link in model.links):
        return "missing"
    is_verified = all(store.recorded(store.location(model, file), file) for file in model.files)
    return "ready" if is_verified else "unverified"


class Watch:
    """The last state of a store, which a thread of its own reads: whatever the store does, ``latest`` returns.

    Args:
        read: gives the state; it may hang, and raise what ``read`` of this module does.
        warn: called with why the state is unknown, when that begins or changes.
    """

    def __init__(self, read: Callable[[], StoreState], warn: Callable[[str], None]) -> None:
        self._read, self._warn = read, warn
        self._latest: tuple[float, StoreState] | None = None
        self._problem = ""
        self._stop = threading.Event()

    def latest(self) -> StoreState | None:
        """The state, at most ``OLDEST_S`` old; None: unknown."""
        latest = self._latest
        return latest[1] if latest and time.monotonic() - latest[0] <= OLDEST_S else None

    def read_once(self) -> None:
        """Read the state now."""
        began = time.monotonic()
        try:
            self._latest, self._problem = (began, self._read()), ""
        except Exception as error:  # noqa: BLE001 - whatever is wrong in a store, the next reading may be right
            is_known = isinstance(error, (CorralError, OSError))
            problem = str(error) if is_known else f"The store cannot be read: {error!r}."
            self._latest = None
            if problem != self._problem:
                self._problem = problem
                self._warn(problem)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Read it every ``PERIOD_S`` while the block lasts.  A reading that hangs is not waited for."""
        self._stop.clear()
        threading.Thread(target=self._run, daemon=True).start()
        try:
            yield
        finally:
            self._stop.set()

    def _run(self) -> None:
        while not self._stop.is_set():
            self.read_once()
            self._stop.wait(PERIOD_S)
