"""Reads what an exporter recorded: the lines of ``exporter.recorder``, each checked, as moments."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, model_validator

from corral.exporter import account
from corral.exporter.account import CardAccount, CardPromise
from corral.exporter.alertmanager import Alert
from corral.exporter.holders import Reading
from corral.exporter.llama_swap import Change
from corral.exporter.recorder import LATEST, Failure, NotRead
from corral.exporter.yields import Yielded


@dataclass(frozen=True)
class Moment:
    """One sample.

    Attributes:
        at: seconds since 1970.
        seal: of the lock that the promises are from.
        accounts: of each card.
        models: the state of each model that has a process; None: unknown; ``NOT_READ``: no llama-swap is read.
        failures: requests that failed since the sample before.
        alerts: that fire; None: unknown.
        is_start: the exporter has started with it.
        changes: loads and unloads since the sample before; None: unknown, as they are in older recordings.
        yields: models that were unloaded for their neighbours since the sample before.
    """

    at: float
    seal: str
    accounts: tuple[CardAccount, ...]
    models: Mapping[str, str] | NotRead | None
    failures: tuple[Failure, ...]
    alerts: tuple[Alert, ...] | None
    is_start: bool
    changes: tuple[Change, ...] | None = None
    yields: tuple[Yielded, ...] = ()


@dataclass(frozen=True)
class Recording:
    """The moments in the order in which they were recorded, and how many lines were damaged."""

    moments: tuple[Moment, ...]
    damaged: int

    def between(self, since: float, until: float) -> tuple[Moment | None, tuple[Moment, ...], Moment | None]:
        """All moments from *since* to *until*, in seconds since 1970, and what was recorded just before and after them.

        Where the clock was set back, one that was recorded later may have an earlier time.
        """
        places = [place for place, one in enumerate(self.moments) if since <= one.at <= until]
        first, last = (places[0], places[-1]) if places else (0, len(self.moments))
        before, after = self.moments[:first][-1:], self.moments[last + 1 :][:1]
        return (before or (None,))[0], tuple(self.moments[place] for place in places), (after or (None,))[0]


class _Line(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    version: Literal[1]
    at: Annotated[float, Field(ge=0, le=LATEST, allow_inf_nan=False)]


class _Head(_Line):
    seal: str
    promises: dict[str, CardPromise]
    is_start: bool

    @model_validator(mode="after")
    def _has_sizes(self) -> Self:
        for card in self.promises.values():
            figures = (card.reserve, *card.tenants.values(), *(one.seat for one in card.models.values()))
            if card.vram < 1 or min(figures) < 0:
                raise ValueError("a size is no number of bytes")
        return self


class _Sample(_Line):
    reading: Reading
    models: dict[str, str] | NotRead | None
    failures: tuple[Failure, ...]
    changes: tuple[Change, ...] | None = None
    alerts: tuple[Alert, ...] | None
    yields: tuple[Yielded, ...] = ()  # older lines have none

    @model_validator(mode="after")
    def _has_sizes(self) -> Self:
        cards = [size for one in self.reading.cards for size in (one.card.total, one.card.free)]
        held = [holder.held for one in self.reading.cards for holder in one.holders]
        needs = [size for one in self.yields for size in (one.free, one.wanted, one.idle_s)]
        if any(size is not None and not 0 <= size < math.inf for size in (*cards, *held, *needs)):
            raise ValueError("a size is no number of bytes")
        if not all(0 <= one.at <= LATEST for one in self.changes or ()):
            raise ValueError("the time of a load is none")
        return self


def damaged(count: int) -> str:
    """How many lines are damaged, as a sentence without its end."""
    return "1 line of the recording is damaged" if count == 1 else f"{count:,} lines of the recording are damaged"


_LINES: TypeAdapter[_Head | _Sample | _Line] = TypeAdapter(_Head | _Sample | _Line)


def read(lines: Iterable[bytes]) -> Recording:
    """The recording in *lines*, segment after segment.

    A line that was torn, or is none of an exporter, is counted; what the line after it repeats is not known then.
    """
    moments: list[Moment] = []
    head: _Head | None = None
    last: Moment | None = None
    starts, count = False, 0
    for line in lines:
        if not line.strip():
            continue
        try:
            found = _LINES.validate_json(line)
        except ValidationError:
            last, count = None, count + 1
            continue
        if isinstance(found, _Head):
            starts = starts or found.is_start
            last = last if head and (head.seal, head.promises) == (found.seal, found.promises) else None
            head = found
            continue
        if head and isinstance(found, _Sample):
            accounts = account.of(head.promises, found.reading)
            served = (found.models, found.failures, found.alerts, starts, found.changes, found.yields)
            last = Moment(found.at, head.seal, accounts, *served)
        elif last and not isinstance(found, _Sample):
            changes = None if last.changes is None else ()
            last = replace(last, at=found.at, failures=(), changes=changes, yields=(), is_start=starts)
        else:
            continue
        moments.append(last)
        starts = False
    return Recording(tuple(moments), count)
