"""What a former exporter had observed, from its records: a new one goes on with it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
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

    A break of the records is one of each excess.  What cannot be read is not believed.
    """
    found, last = Excesses(), None
    try:
        for at, accounts in _accounts(folder, now - SINCE_S):
            if last is not None and not 0 <= at - last <= _GAP_S:
                found = Excesses()
            found.date(accounts, at)
            last = at
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return Excesses()
    return found if last is not None and 0 <= now - last <= _GAP_S else Excesses()


def _accounts(folder: Path, since: float) -> Iterator[tuple[float, tuple[CardAccount, ...]]]:
    """Each sample."""
    promises: dict[str, CardPromise] = {}
    accounts: tuple[CardAccount, ...] = ()
    with ExitStack() as opened:
        for stream in [opened.enter_context(one) for one in recorder.open_since(folder, since)]:
            for line in stream:
                try:
                    read = json.loads(line)
                except ValueError:  # torn
                    continue
                at = float(read["at"])
                if "promises" in read:
                    promises = {name: _promise(one) for name, one in read["promises"].items()}
                    continue
                if "reading" in read:
                    accounts = account.of(promises, _reading(read["reading"]))
                if at >= since:
                    yield at, accounts


def _promise(read: Mapping[str, Any]) -> CardPromise:
    models = {model: ModelPromise(**one) for model, one in read["models"].items()}
    return CardPromise(read["vram"], read["reserve"], read["tenants"], models)


def _reading(read: Mapping[str, Any]) -> Reading:
    cards = tuple(CardReading(Card(**one["card"]), tuple(map(_holder, one["holders"]))) for one in read["cards"])
    return Reading(cards, read["unknown"], read["problem"], frozenset(map(Kind, read["certain"])))


def _holder(read: Mapping[str, Any]) -> Holder:
    return Holder(Kind(read["kind"]), read["name"], tuple(read["pids"]), read["held"], tuple(read["pods"]))
