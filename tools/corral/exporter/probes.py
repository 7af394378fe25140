"""The deep probe: every model that is loaded gives a real answer every few minutes, which is the health that counts.

One request at a time, none to an engine that serves others, and none that would load a model.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from .errors import LlamaSwapUnknown
from .llama_swap import LlamaSwap

EVERY_S = 300.0


@dataclass(frozen=True)
class Result:
    """The last probe of a model.

    Attributes:
        seconds: that its answer took; None: it gave none.
        at: when it ended, in seconds since 1970.
    """

    seconds: float | None
    at: float


class Probes:
    """The results of the models that are loaded.

    Args:
        find_llama_swap: the llama-swap that runs now, None: none does.
    """

    def __init__(self, find_llama_swap: Callable[[], LlamaSwap | None]) -> None:
        self._find = find_llama_swap
        self._results: Mapping[str, Result] = {}

    @property
    def results(self) -> Mapping[str, Result]:
        """The last result of each model, without those that were not loaded in the last round."""
        return self._results

    def run(self) -> None:
        """Probe every model that is loaded; one that serves others, or cannot be asked now, keeps its last result."""
        found: dict[str, Result] = {}
        try:
            client = self._find()
            residents = client.residents() if client else ()
        except LlamaSwapUnknown:
            return
        for one in residents:
            if one.state != "ready" or client is None:
                continue
            try:
                seconds = client.probe(one)
            except LlamaSwapUnknown:
                found[one.model] = Result(None, time.time())
                continue
            if seconds is not None:
                found[one.model] = Result(seconds, time.time())
            elif before := self._results.get(one.model):
                found[one.model] = before
        self._results = found

    @contextmanager
    def running(self) -> Iterator[None]:
        """A round every ``EVERY_S`` while the block lasts."""
        ended = threading.Event()

        def repeat() -> None:
            while not ended.wait(EVERY_S):
                self.run()

        thread = threading.Thread(target=repeat, daemon=True)  # a probe under way does not delay the end
        thread.start()
        try:
            yield
        finally:
            ended.set()
