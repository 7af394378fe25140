"""Faults of the transport during a download, with the tests' hub."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

from corral.agent.hub_client import Hub
from corral.agent.scheduling import TransferSettings
from corral.errors import CorralError
from tests.support import faulty_hub as faults
from tests.support.fetching import MIB, Shop, shop

_TIMEOUT = 2.0
_CASES: dict[str, tuple[float, list[faults.Fault]]] = {
    "no fault": (0, []),
    "RST x5": (0, [faults.Cut(after=200_000, times=5, reset=True)]),
    "FIN x20, with progress": (0, [faults.Cut(after=200_000, times=20)]),
    "503 x5": (0, [faults.Status(times=5)]),
    "429, Retry-After 1": (1, [faults.Status(status=429, retry_after="1")]),
    f"stall, timeout {_TIMEOUT:g} s": (_TIMEOUT, [faults.Stall(after=1000, seconds=_TIMEOUT + 3)]),
    "signed address expires": (0, [faults.Expire(skip=2)]),
    "range ignored once": (0, [faults.IgnoreRange(skip=2)]),
    "ranges always ignored": (0, [faults.IgnoreRange(times=None)]),
}


def run_all(folder: Path, *, small: bool) -> Iterator[tuple[str, bool, float, float]]:
    """Each fault: its name, whether the complete file arrived in time, the seconds it took, and the limit."""
    for name, (wait, trouble) in _CASES.items():
        place = folder / name.split(",")[0].replace(" ", "-")
        place.mkdir()
        with shop(place, size=8 * MIB) as one:
            one.settings = TransferSettings()
            one.hub.faults = trouble
            yield name, *_timed(one, wait + 2)
    away = 3.0 if small else 30.0
    place = folder / "refused"
    place.mkdir()
    with shop(place, size=8 * MIB) as one, faults.Door(one.hub) as door:
        one.settings = TransferSettings()
        threading.Timer(away, door.open).start()
        limit = away + TransferSettings().max_pause + 1
        yield f"connection refused for {away:g} s", *_timed(one, limit, endpoint=door.endpoint)


def _timed(one: Shop, limit: float, endpoint: str | None = None) -> tuple[bool, float, float]:
    began = time.monotonic()
    try:
        one.fetch(hub=Hub(endpoint or one.hub.endpoint, timeout=_TIMEOUT))
        whole = one.published.read_bytes() == one.content
    except CorralError:
        whole = False
    seconds = time.monotonic() - began
    return whole and seconds <= limit, seconds, limit
