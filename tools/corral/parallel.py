"""Reads several sources in parallel, none of which may delay the result.

A network file system that hangs, or a server that accepts and does not answer, has no time limit: the thread that
reads it is abandoned when the time is over.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from corral.errors import CorralError

_K = TypeVar("_K", bound=Hashable)
_T = TypeVar("_T")


@dataclass(frozen=True)
class Result(Generic[_T]):
    """What reading a source gave: a value, or else the problem that kept it from giving one."""

    value: _T | None = None
    problem: str = ""
    next_step: str = ""  # of a CorralError


def read_all(sources: Mapping[_K, Callable[[], _T]], *, limit_s: float) -> dict[_K, Result[_T]]:
    """Read all *sources* in parallel; return after *limit_s* seconds at most with what has arrived by then."""
    found: dict[_K, Result[_T]] = {}

    def read(name: _K, source: Callable[[], _T]) -> None:
        try:
            found[name] = Result(source())
        except CorralError as error:
            found[name] = Result(problem=error.message, next_step=error.next_step)
        except OSError as error:
            found[name] = Result(problem=str(error))

    threads = [threading.Thread(target=read, args=one, daemon=True) for one in sources.items()]
    end = time.monotonic() + limit_s
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, end - time.monotonic()))
    arrived = dict(found)
    return {name: arrived.get(name, Result(problem=f"no answer within {limit_s:g} s")) for name in sources}


def value_of(found: Mapping[_K, Result[Any]], source: _K, otherwise: Any) -> Any:
    """What ``read_all`` has *found* at *source*; *otherwise* where that was not read, or gave no value."""
    one = found.get(source, Result())
    return otherwise if one.value is None else one.value
