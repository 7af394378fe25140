"""Looking at several sources at once, none of which may hold the answer up.

A network file system that hangs, or a server that accepts and says nothing, takes as long as it likes: the thread that
looks there is left behind when the time is over.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from corral.errors import CorralError

_K = TypeVar("_K", bound=Hashable)
_T = TypeVar("_T")


@dataclass(frozen=True)
class Look(Generic[_T]):
    """What a source said: a value, or else the problem that kept it from saying any."""

    value: _T | None = None
    problem: str = ""


def look(sources: Mapping[_K, Callable[[], _T]], *, limit_s: float) -> dict[_K, Look[_T]]:
    """Ask every one of *sources* at once; return after *limit_s* seconds with what is there by then."""
    found: dict[_K, Look[_T]] = {}

    def ask(name: _K, source: Callable[[], _T]) -> None:
        try:
            found[name] = Look(source())
        except CorralError as error:
            found[name] = Look(problem=error.message)
        except OSError as error:
            found[name] = Look(problem=str(error))

    threads = [threading.Thread(target=ask, args=one, daemon=True) for one in sources.items()]
    end = time.monotonic() + limit_s
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, end - time.monotonic()))
    seen = dict(found)
    return {name: seen.get(name, Look(problem=f"no answer within {limit_s:g} s")) for name in sources}
