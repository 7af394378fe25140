"""Which models are in memory now, by llama-swap's /running."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

from corral.engine import llama_swap
from corral.smoke.endpoint import Endpoint


@dataclass(frozen=True)
class Residency:
    """A reading of /running.

    Attributes:
        states: model → llama-swap's state of it; a model that is not in it is not loaded.  None: not known.
        why_unknown: why ``states`` is None.
    """

    states: Mapping[str, str] | None
    why_unknown: str = ""

    def holds(self, model: str) -> bool:
        """Whether *model*, or that of the adapter MODEL:NAME, is in memory or on its way there; False: not known."""
        return self._state(model) in {"starting", "ready"}

    def is_ready(self, model: str) -> bool:
        """Whether *model*, or that of the adapter MODEL:NAME, can answer now."""
        return self._state(model) == "ready"

    def _state(self, model: str) -> str | None:
        return (self.states or {}).get(model.partition(":")[0])


async def read(api: Endpoint, limit_s: float) -> Residency:
    """Read /running, which loads nothing and resets no timer.

    Raises:
        TransportError: the endpoint does not answer at all.
    """
    try:
        async with asyncio.timeout(limit_s):
            reply = await api.request("/running")
    except TimeoutError:
        return Residency(None, f"/running gave no answer within {limit_s:g} s")
    if reply.status != 200:
        return Residency(None, f"/running answers HTTP {reply.status}")
    try:
        return Residency({one.model: one.state for one in llama_swap.residents_in(reply.body)})
    except ValueError:
        return Residency(None, "/running is not llama-swap's")
