"""Loads of a local stack's model, with its files in the page cache and without."""

from __future__ import annotations

from corral.agent import page_cache, warm
from corral.agent.lock_file import Lock
from corral.agent.store import Store
from corral.engine.llama_swap import LlamaSwap


class LocalLoader:
    """Unloads a model of the local stack, and drops its files from the page cache or reads them into it."""

    def __init__(self, lock: Lock, store: Store, model: str, llama_swap: LlamaSwap) -> None:
        """For *model* of *lock*.

        Raises:
            Refused: *lock* does not have it.
        """
        (self._locked,) = lock.select([model])
        self._lock, self._store, self._llama_swap = lock, store, llama_swap

    def prepare(self, *, cold: bool) -> tuple[int, int]:
        """As ``corral.bench.loads.Loader``.

        Raises:
            Refused: its files are not in the store.
            CannotRun: llama-swap does not unload it, or the page cache cannot be read or changed.
        """
        self._llama_swap.unload(self._locked.id)
        files = warm.files_of(self._store, self._locked)
        if cold:
            for path in files:
                page_cache.drop(path)
        else:
            warm.warm(self._lock, self._store, models=[self._locked.id])
        return sum(path.stat().st_size for path in files), sum(map(page_cache.cached_bytes, files))
