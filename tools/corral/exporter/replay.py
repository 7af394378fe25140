"""What a former exporter had observed, from its records: a new one goes on with it."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from . import account, recorder
from .account import CardAccount, CardPromise, ModelPromise
from .driver import Card
from .excesses import Excesses
from .holders import CardReading, Holder, Kind, Reading

SINCE_S = 86400.0
"""Seconds of the records that are read."""
_GAP_S = 4 * recorder.EVERY_S


def continued(folder: Path, now: float) -> Excesses:
    """The excesses that lasted when the records in *folder* ended, where that was less than ``_GAP_S`` before *now*.

    A break of the records is one of each excess.  A damaged line is counted on stderr and left out; what the line after
    it repeats is not known then, as for ``corral.timeline.recording``, which an exporter's image does not have.
    """
    found, last, damaged = Excesses(), None, 0
    promises: dict[str, CardPromise] = {}
    accounts: tuple[CardAccount, ...] | None = None
    for line in _lines(folder, now - SINCE_S):
        try:
            read = json.loads(line)
            at = recorder.time_of(read)
            if "promises" in read:
                promises = {name: _promise(one) for name, one in read["promises"].items()}
                continue
            if "reading" in read:
                accounts = account.of(promises, _reading(read["reading"]))
            if accounts is None or at < now - SINCE_S:
                continue
            if last is not None and not 0 <= at - last <= _GAP_S:
                found = Excesses()
            found.date(accounts, at)
            last = at
        except recorder.DAMAGED:
            accounts, damaged = None, damaged + 1
    if damaged:
        lines = "1 line of the records is" if damaged == 1 else f"{damaged:,} lines of the records are"
        print(f"exporter: {lines} damaged, and left out.", file=sys.stderr, flush=True)  # noqa: T201 - a program
    return found if last is not None and 0 <= now - last <= _GAP_S else Excesses()


def _lines(folder: Path, since: float) -> Iterator[bytes]:
    """Each line that is not empty, as far as they can be read."""
    with suppress(OSError), ExitStack() as opened:
        for stream in [opened.enter_context(one) for one in recorder.open_since(folder, since)]:
            yield from filter(bytes.strip, stream)


def _promise(read: Mapping[str, Any]) -> CardPromise:
    models = {model: ModelPromise(**one) for model, one in read["models"].items()}
    return CardPromise(read["vram"], read["reserve"], read["tenants"], models)


def _reading(read: Mapping[str, Any]) -> Reading:
    cards = tuple(CardReading(Card(**one["card"]), tuple(map(_holder, one["holders"]))) for one in read["cards"])
    return Reading(cards, read["unknown"], read["problem"], frozenset(map(Kind, read["certain"])))


def _holder(read: Mapping[str, Any]) -> Holder:
    return Holder(Kind(read["kind"]), read["name"], tuple(read["pids"]), read["held"], tuple(read["pods"]))
