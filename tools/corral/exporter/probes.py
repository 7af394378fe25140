"""The deep probe: every model that is loaded gives a real answer every few minutes, which is the health that counts.

One request at a time, none to an engine that serves others, and none that would load a model.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass

from .errors import LlamaSwapUnknown
from .llama_swap import LlamaSwap, Resident
from .rounds import repeating

EVERY_S = 300.0
"""Seconds until a model that gave an answer is asked again."""
ROUND_S = 30.0
"""Seconds between two rounds: a model that is new, or gave no answer, is asked in the next."""


@dataclass(frozen=True)
class Result:
    """The last probe of a model.

    Attributes:
        seconds: that its answer took; None: it gave none.
        at: when it ended, in seconds since 1970.
        clock: the same by a clock that no one sets.
    """

    seconds: float | None
    at: float
    clock: float = 0.0


class Probes:
    """The results of the models that are loaded.

    Args:
        find_llama_swap: the llama-swap that runs now, None: none does.
        clock: seconds that no one sets.
        now: seconds since 1970.
    """

    def __init__(
        self,
        find_llama_swap: Callable[[], LlamaSwap | None],
        *,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._find, self._clock, self._now = find_llama_swap, clock, now
        self._results: Mapping[str, Result] = {}

    @property
    def results(self) -> Mapping[str, Result]:
        """The last result of each model, without those that were not loaded in the last round."""
        return self._results

    def run(self) -> None:
        """Probe every loaded model whose turn it is; one that serves others keeps its last answer.

        A round that fails leaves no result: an old one would be taken for a new one.
        """
        try:
            self._run()
        except Exception:
            self._results = {}
            raise

    def _run(self) -> None:
        found: dict[str, Result] = {}
        try:
            client = self._find()
            residents = client.residents() if client else ()
        except LlamaSwapUnknown:
            return
        for one in residents:
            if one.state == "ready" and client and (result := self._result(client, one)):
                found[one.model] = result
        self._results = found

    def _result(self, client: LlamaSwap, resident: Resident) -> Result | None:
        before = self._results.get(resident.model)
        if before and before.seconds is not None and self._clock() - before.clock < EVERY_S:
            return before
        try:
            seconds = client.probe(resident)
        except LlamaSwapUnknown:
            return Result(None, self._now(), self._clock())
        if seconds is None:  # it serves others, which disproves its last failure
            return before if before and before.seconds is not None else None
        return Result(seconds, self._now(), self._clock())

    def running(self) -> AbstractContextManager[None]:
        """A round every ``ROUND_S`` while the block lasts."""
        return repeating(self.run, ROUND_S, "No model is probed")
