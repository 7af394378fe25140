"""The timeline for people: a line for each holder as a curve, and what happened, minute by minute."""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from typing import Any

from corral.exporter.account import OTHER, CardAccount
from corral.timeline import events
from corral.timeline.events import GAP_S, Code, Event
from corral.timeline.recording import Moment, Recording
from corral.vram.prediction import MIB, mib

COLUMNS = ("time", "free MiB", "what happened")
"""The headings of ``rows``; with several cards, ``free MiB`` has each."""
CELLS = 60
"""Of a curve."""
CHANGE_MIB = 64
"""What a holder has gained or lost is a line from this on."""
MOST_CURVES = 8
_LEVELS = "▁▂▃▄▅▆▇█"
_Holder = tuple[str, str]  # kind and name
_FREE: _Holder = ("", "free")
_UNKNOWN, _NOT_RECORDED = "?", " "


@dataclass(frozen=True)
class Timeline:
    """What was recorded from *since* to *until*, in seconds since 1970, and the zone in which times are shown."""

    recording: Recording
    since: float
    until: float
    zone: tzinfo | None

    @property
    def moments(self) -> tuple[Moment, ...]:
        """The samples; empty where nothing was recorded in this time."""
        return self.recording.between(self.since, self.until)[1]

    @property
    def events(self) -> tuple[Event, ...]:
        """What happened, and what had begun before."""
        before, moments, after = self.recording.between(self.since, self.until)
        found = list(events.of(moments, before))
        if moments and before is None and moments[0].at - self.since > GAP_S:
            found.insert(0, Event(moments[0].at, Code.GAP, "", "", "nothing is recorded before this"))
        if moments and after and after.at < moments[-1].at:
            found.append(events.set_back(moments[-1], after, moments[-1].at))
        if moments and after is None and self.until - moments[-1].at > GAP_S:
            found.append(Event(moments[-1].at, Code.GAP, "", "", "nothing is recorded after this"))
        return tuple(found)

    def time(self, at: float, *, form: str = "%H:%M") -> str:
        """The time *at*, as a person reads it."""
        return datetime.fromtimestamp(at, UTC).astimezone(self.zone).strftime(form)

    @property
    def form(self) -> str:
        """How the time of a row is written: with the day, where there are several."""
        days = {self.time(at, form="%Y-%m-%d") for at in (self.since, self.until)}
        return "%H:%M" if len(days) == 1 else "%m-%d %H:%M"

    def as_json(self) -> dict[str, Any]:
        """It for programs: seconds since 1970 and bytes, null where unknown; the last sample of each minute."""
        return {
            "since": self.since,
            "until": self.until,
            "damaged_lines": self.recording.damaged,
            "events": [
                {"at": one.at, "event": one.code, "card": one.card or None, "name": one.name or None, "text": one.text}
                | {"count": one.count, "reason": one.reason or None, "has_begun_before": one.has_begun}
                for one in self.events
            ],
            "samples": [
                {"at": one.at, "models": one.models, "cards": {card.name: _figures(card) for card in one.accounts}}
                for one in _last_of_minutes(self.moments)
            ],
        }


def curves(timeline: Timeline) -> Iterator[str]:
    """For each card a line with its free memory, and one for each of its largest holders; a full block is the card."""
    moments = timeline.moments
    cards = {card.name: card.vram for moment in moments for card in moment.accounts}
    for name, vram in cards.items():
        yield f"{name}: {mib(vram):,} MiB"
        series = _series(moments, name)
        largest = sorted(series, key=lambda holder: (holder != _FREE, -_most(series[holder]), holder))
        shown = [holder for holder in largest if holder == _FREE or _most(series[holder])][: MOST_CURVES + 1]
        names = {holder: holder_name(*holder) for holder in shown}
        width = max(map(len, names.values()), default=0)
        for holder in shown:
            known = [value for _, value in series[holder] if value is not None]
            figures = f"{mib(known[0]):,} → {mib(known[-1]):,} MiB" if known else "unknown"
            worst = f", at most {mib(max(known)):,}" if known and holder != _FREE else ""
            worst = f", at least {mib(min(known)):,}" if known and holder == _FREE else worst
            pick = min if holder == _FREE else max
            drawn = _curve(series[holder], timeline.since, timeline.until, vram, pick)
            yield f"  {names[holder]:<{width}}  {drawn}  {figures}{worst}"


def rows(timeline: Timeline) -> Iterator[tuple[str, str, str]]:
    """The events, and how far holders changed, minute by minute, under ``COLUMNS``."""
    texts: dict[int, list[str]] = {}
    for event in _merged(timeline.events):
        texts.setdefault(int(event.at // 60), []).append(event.text)
    held: dict[tuple[str, str, str], int] = {}
    recorded = {int(one.at // 60): one for one in _last_of_minutes(timeline.moments)}
    minutes = list(recorded)
    for one in sorted(texts.keys() - recorded.keys()):  # of which there is no sample
        bisect.insort(minutes, one)
    for minute in minutes:
        moment = recorded.get(minute)
        free = " / ".join(_free(card) for card in moment.accounts) if moment else ""
        for text in [*(_changes(moment, held) if moment else ()), *texts.get(minute, ())]:
            yield timeline.time(minute * 60, form=timeline.form), free or "?", text


def _changes(minute: Moment, held: dict[tuple[str, str, str], int]) -> Iterator[str]:
    """Which holders have gained or lost since *held*, which then has their figures of *minute*."""
    for card in minute.accounts:
        for row in card.rows:
            if row.held is None or row.kind == "unattributed":
                continue
            before = held.get((card.name, row.kind, row.name))
            if before is None or abs(row.held - before) >= CHANGE_MIB * MIB:
                held[card.name, row.kind, row.name] = row.held
                if before is not None:
                    yield f"{holder_name(row.kind, row.name)} {mib(before):,} → {mib(row.held):,} MiB"


def _merged(found: Sequence[Event]) -> list[Event]:
    """*found*, where the requests of one minute that failed alike are one event."""
    merged: dict[tuple[object, ...], Event] = {}
    for at, one in enumerate(found):
        key = (int(one.at // 60), one.name, one.reason) if one.code is Code.FAILED else (at,)
        before = merged.get(key)
        merged[key] = events.failed(before.at, one.name, one.reason, before.count + one.count) if before else one
    return list(merged.values())


def _last_of_minutes(moments: Sequence[Moment]) -> list[Moment]:
    return list({int(one.at // 60): one for one in moments}.values())


def holder_name(kind: str, name: str) -> str:
    """As a person reads it: each foreign kind may have a sum of its own."""
    return f"{name} of kind {kind}" if name == OTHER else name


def _series(moments: Sequence[Moment], card: str) -> Mapping[_Holder, list[tuple[float, int | None]]]:
    """What is free, and what each holder has, at each moment: bytes, None where unknown."""
    found: dict[_Holder, list[tuple[float, int | None]]] = {_FREE: []}
    accounts = [account for one in moments for account in one.accounts if account.name == card]
    holders = {(row.kind, row.name) for one in accounts for row in one.rows}
    for moment in moments:
        for account in moment.accounts:
            if account.name == card:
                rows: dict[_Holder, int | None] = {
                    (row.kind, row.name): row.held for row in account.rows if row.kind != "reserve"
                }
                found[_FREE].append((moment.at, account.driver.free if account.driver else None))
                for holder in holders:
                    absent = None if account.unknown else 0
                    found.setdefault(holder, []).append((moment.at, rows.get(holder, absent)))
    return found


def _most(series: Sequence[tuple[float, int | None]]) -> int:
    return max((value or 0 for _, value in series), default=0)


def _curve(
    series: Sequence[tuple[float, int | None]],
    since: float,
    until: float,
    vram: int,
    pick: Callable[[Sequence[int]], int],
) -> str:
    span = max(1.0, until - since) / CELLS
    cells: list[list[int | None]] = [[] for _ in range(CELLS)]
    for (at, value), (following, _) in zip(series, [*series[1:], (until, None)], strict=True):
        lasts = min(max(following, at), at + GAP_S)  # a sample stands until the next one
        first, last = int((at - since) // span), int((lasts - since) // span)
        for place in range(max(0, first), min(CELLS, max(first + 1, last))):
            cells[place].append(value)
    return "".join(_cell(values, vram, pick) for values in cells)


def _cell(values: Sequence[int | None], vram: int, pick: Callable[[Sequence[int]], int]) -> str:
    known = [one for one in values if one is not None]
    if not known:
        return _UNKNOWN if values else _NOT_RECORDED
    return _LEVELS[min(len(_LEVELS) - 1, pick(known) * len(_LEVELS) // max(1, vram))]


def _free(card: CardAccount) -> str:
    return "?" if card.driver is None or card.driver.free is None else f"{mib(card.driver.free):,}"


def _figures(card: CardAccount) -> dict[str, Any]:
    return {
        "unknown": card.unknown or None,
        "free": card.driver.free if card.driver else None,
        "held": [{"kind": row.kind, "name": row.name, "held": row.held} for row in card.rows if row.kind != "reserve"],
    }
