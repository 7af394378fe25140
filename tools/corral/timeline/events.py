"""What happened between the moments of a recording: each event has a code for programs and a sentence for people."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from corral.exporter.account import FOREIGN, CardAccount, Row
from corral.exporter.recorder import EVERY_S, NOT_READ
from corral.timeline.recording import Moment
from corral.vram.prediction import mib

GAP_S = 4 * EVERY_S
"""Seconds without a sample that are an event."""


class Code(StrEnum):
    """What an event is."""

    START = "exporter-started"
    GAP = "not-recorded"
    CLOCK = "clock-set-back"
    LOCK = "lock-changed"
    LOADED = "model-ready"
    LOADING = "model-loading"
    STOPPING = "model-stopping"
    RELOADED = "model-reloaded"
    UNLOADED = "model-unloaded"
    YIELDED = "model-yielded"
    FAILED = "requests-failed"
    OVER = "over-promise"
    WITHIN = "within-promise"
    FOREIGN = "foreign-holder"
    FOREIGN_ENDED = "foreign-holder-ended"
    NO_ROOM = "no-room"
    ROOM = "room"
    UNKNOWN = "card-unknown"
    KNOWN = "card-known"
    SILENT = "llama-swap-silent"
    ANSWERS = "llama-swap-answers"
    NOT_READ = "llama-swap-not-read"
    ALERT = "alert-fires"
    ALERT_ENDED = "alert-ended"


@dataclass(frozen=True)
class Event:
    """One event.

    Attributes:
        at: seconds since 1970: of a load or an unload that is followed, else of the sample that shows it.
        name: of the card's holder or the model; empty where it is about none.
        count: of requests that failed; else 1.
        reason: of their failure, one of ``llama_swap.LOAD_FAILURES`` or ``status-N``; of a model that has yielded, one
            of ``yields.Reason``; else empty.
        has_begun: before the first moment.
    """

    at: float
    code: Code
    card: str
    name: str
    text: str
    count: int = 1
    reason: str = ""
    has_begun: bool = False


@dataclass(frozen=True)
class _Condition:
    """What lasts: *begin* is the event of the first sample that shows it, *end* that of the first one that does not."""

    begin: tuple[Code, str]
    end: tuple[Code, str]


_Key = tuple[str, str, str, str]
"""The code of its beginning, the card, and the kind and the name of the holder; empty where it is about none."""
_STATES = {"starting": Code.LOADING, "ready": Code.LOADED, "stopping": Code.STOPPING}
_STATE_WORDS = {"starting": "is being loaded", "ready": "is loaded", "stopping": "is being unloaded"}
_CHANGED = (Code.LOADED, Code.UNLOADED, Code.RELOADED)
"""Samples show these where loads and unloads are not followed."""
_CAUSES = {
    "idle": "its time to live was over",
    "evicted": "another model was asked for",
    "yielded": "a neighbour needed memory",
    "requested": "an operator, or the end of llama-swap",
    "died": "its process ended by itself",
    "unknown": "the cause is not known",
}
_CACHES = {"warm": "from the page cache", "cold": "cold", "partial": "partly from the page cache"}
_FAILURES = {
    "process-ended": "its load failed, the process ended before it was ready",
    "timeout": "its load failed, it was not ready in time",
}


@dataclass
class _State:
    """What lasts: the conditions by their keys, the states of models, and the pids of their engines."""

    active: dict[_Key, _Condition]
    states: Mapping[str, str]
    pids: dict[str, tuple[int, ...]]
    last: Moment | None = None


def of(moments: Sequence[Moment], before: Moment | None = None) -> Iterator[Event]:
    """The events of *moments*, in their order, after what had begun with the moment *before* them.

    A moment that is older than ``GAP_S`` proves nothing about the first one.
    """
    state = _State({}, {}, {})
    if before and moments:
        if moments[0].at - before.at <= GAP_S:
            begun = list(_after(state, replace(before, failures=(), yields=(), is_start=False)))
            yield from (replace(one, at=moments[0].at, text=f"before: {one.text}", has_begun=True) for one in begun)
        else:
            state.last = before
    for now in moments:
        yield from _after(state, now)


def _after(state: _State, now: Moment) -> Iterator[Event]:
    """The events between *state* and *now*, which becomes the state."""
    yield from _of_recorder(state.last, now)
    yield from _yields(now)
    pids = _pids(now)
    last = state.last
    is_followed = last is not None and None not in (last.changes, now.changes) and not now.is_start
    if is_followed:
        yield from _changes(now)
    if now.models is not None and now.models != NOT_READ:
        found_states = _of_models(state.states, now.models, state.pids, pids, now.at)
        yield from (one for one in found_states if not (is_followed and one.code in _CHANGED))
        state.states = now.models
        state.pids = {model: found for model, found in state.pids.items() if model in now.models}
    state.pids |= pids
    found = _conditions(state.last, now, state.active)
    present = {(one.name, row.kind, row.name) for one in now.accounts for row in one.rows if row.promised is not None}
    for key in [one for one in state.active if one not in found]:
        (code, text), (begun, card, kind, name) = state.active[key].end, key
        # What the lock does not have any more has not become well.
        if begun not in (Code.OVER, Code.NO_ROOM) or (card, kind, name) in present:
            yield Event(now.at, code, card, name, text)
    for key in [one for one in found if one not in state.active]:
        (code, text), (_, card, _, name) = found[key].begin, key
        yield Event(now.at, code, card, name, text)
    yield from _failures(now)
    state.active, state.last = found, now


def _of_recorder(before: Moment | None, now: Moment) -> Iterator[Event]:
    if before and now.at < before.at:
        yield set_back(before, now, now.at)
    elif before and now.at - before.at > GAP_S:
        text = f"nothing was recorded for {(now.at - before.at) / 60:.0f} min before this"
        yield Event(now.at, Code.GAP, "", "", text)
    if now.is_start:
        yield Event(now.at, Code.START, "", "", "the exporter has started")
    if before and now.seal != before.seal:
        yield Event(now.at, Code.LOCK, "", "", f"the promises are those of another lock ({now.seal[:12]})")


def set_back(before: Moment, now: Moment, at: float) -> Event:
    """The clock was set back between *before* and *now*; *at* is the time of one of them."""
    return Event(at, Code.CLOCK, "", "", f"the clock was set back by {before.at - now.at:.0f} s")


def _of_models(
    before: Mapping[str, str],
    now: Mapping[str, str],
    pids_before: Mapping[str, tuple[int, ...]],
    pids: Mapping[str, tuple[int, ...]],
    at: float,
) -> Iterator[Event]:
    for model in sorted(before.keys() - now.keys()):
        yield Event(at, Code.UNLOADED, "", model, f"{model} is unloaded")
    for model, state in sorted(now.items()):
        if before.get(model) != state:
            words = _STATE_WORDS.get(state, f"is in the state {state}")
            yield Event(at, _STATES.get(state, Code.LOADING), "", model, f"{model} {words}")
        elif (was := pids_before.get(model)) and (is_ := pids.get(model)) and was != is_:
            yield Event(at, Code.RELOADED, "", model, f"{model} was unloaded and loaded again")


def _pids(moment: Moment) -> dict[str, tuple[int, ...]]:
    rows = (row for one in moment.accounts for row in one.rows)
    return {row.name: tuple(sorted(row.pids)) for row in rows if row.kind == "model" and row.pids}


def _conditions(before: Moment | None, now: Moment, active: Mapping[_Key, _Condition]) -> dict[_Key, _Condition]:
    """All that lasts *now*; what is unknown now is as it was."""
    found: dict[_Key, _Condition] = {}
    is_next = before is not None and now.at - before.at <= GAP_S
    accounts = before.accounts if before and is_next else now.accounts
    short_before = {(Code.NO_ROOM, one.name, row.kind, row.name) for one in accounts for row in one.rows if row.short}
    for account in now.accounts:
        unknown = {(Code.OVER, row.kind, row.name) for row in account.rows if row.held is None}
        unknown |= {
            (Code.NO_ROOM, "model", one.name) for one in account.rows if one.kind == "model" and one.short is None
        }
        kept = {
            key: one
            for key, one in active.items()
            if key[1] == account.name and key[0] != Code.UNKNOWN and (account.unknown or (key[0], *key[2:]) in unknown)
        }
        found |= kept | _of_card(account, short_before | active.keys())
    found |= (
        _alerts(now) if now.alerts is not None else {key: one for key, one in active.items() if key[0] is Code.ALERT}
    )
    if now.models is None:
        silent = (Code.SILENT, "llama-swap does not answer")
        found[Code.SILENT, "", "", ""] = _Condition(silent, (Code.ANSWERS, "llama-swap answers again"))
    elif now.models == NOT_READ:
        unread = (Code.NOT_READ, "llama-swap is not read: no load and no failed request is recorded")
        found[Code.NOT_READ, "", "", ""] = _Condition(unread, (Code.ANSWERS, "llama-swap is read"))
    return found


def _alerts(now: Moment) -> dict[_Key, _Condition]:
    found: dict[_Key, _Condition] = {}
    for one in now.alerts or ():
        words = ", ".join(f"{name} {value}" for name, value in one.labels.items() if name != "card")
        text = f"the alert {one.name}{f' ({words})' if words else ''}"
        key = (Code.ALERT, one.labels.get("card", ""), "", f"{one.name} {words}".strip())
        found[key] = _Condition((Code.ALERT, f"{text} fires"), (Code.ALERT_ENDED, f"{text} has ended"))
    return found


def _of_card(account: CardAccount, before: Collection[_Key]) -> dict[_Key, _Condition]:
    """What lasts on one card.

    Room lacks in two samples, or is in *before*: between the end of an engine and the return of its memory is one.
    """
    name = account.name
    if account.unknown:
        begin = f"what is held on {name} is unknown: {account.problem}"
        end = f"what is held on {name} is known again"
        return {(Code.UNKNOWN, name, "", ""): _Condition((Code.UNKNOWN, begin), (Code.KNOWN, end))}
    found: dict[_Key, _Condition] = {}
    for row in account.excesses:
        if row.kind in FOREIGN:
            begin = f"{row.name} holds {mib(row.excess):,} MiB, and has no promise on {name}"
            end = f"{row.name} holds no more than the reserve of {name}"
            found[Code.FOREIGN, name, row.kind, row.name] = _Condition((Code.FOREIGN, begin), (Code.FOREIGN_ENDED, end))
        else:
            found[Code.OVER, name, row.kind, row.name] = _over(row)
    culprit = account.excesses[0].name if account.excesses else "none"
    for row in account.rows:
        if row.short and (Code.NO_ROOM, name, row.kind, row.name) in before:
            begin = f"{row.name} does not fit: {mib(row.short):,} MiB short; largest excess: {culprit}"
            end = f"{row.name} fits again"
            found[Code.NO_ROOM, name, row.kind, row.name] = _Condition((Code.NO_ROOM, begin), (Code.ROOM, end))
    return found


def _over(row: Row) -> _Condition:
    held, promised = mib(row.held or 0), mib(row.promised or 0)
    begin = f"{row.name} holds {held:,} MiB, {mib(row.over):,} more than the {promised:,} promised"
    return _Condition((Code.OVER, begin), (Code.WITHIN, f"{row.name} keeps to its promise again"))


def _yields(now: Moment) -> Iterator[Event]:
    for one in now.yields:
        free, wanted = f"{mib(one.free):,} MiB", f"{mib(one.wanted):,}"
        idle = f"idle for {one.idle_s:.0f} s" if one.idle_s < 60 else f"idle for {one.idle_s / 60:.0f} min"
        why = (
            f"a pod of {one.tenant} waits; {free} are free, {wanted} are left of its budget"
            if one.reason == "tenant-waits"
            else f"{free} are free, less than the {wanted} of yield.floor_mib"
        )
        yield Event(now.at, Code.YIELDED, one.card, one.model, f"{one.model}, {idle}, yields: {why}", reason=one.reason)


def _changes(now: Moment) -> Iterator[Event]:
    for one in sorted(now.changes or (), key=lambda change: change.at):
        if one.cause:
            yield Event(one.at, Code.UNLOADED, "", one.model, f"{one.model} is unloaded: {_CAUSES[one.cause]}")
        else:
            time = "" if one.seconds is None else f" after {one.seconds:.1f} s"
            cache = "" if one.page_cache == "unknown" else f", {_CACHES[one.page_cache]}"
            yield Event(one.at, Code.LOADED, "", one.model, f"{one.model} is loaded{time}{cache}")


def _failures(now: Moment) -> Iterator[Event]:
    for one in now.failures:
        reason = one.load_failure or f"status-{one.status}"
        yield failed(now.at, one.model, reason, one.count)


def failed(at: float, model: str, reason: str, count: int) -> Event:
    """*count* requests to *model* that failed with *reason*."""
    requests = f"{count:,} request{'s' if count > 1 else ''}"
    text = f"{requests} to {model} failed: {_FAILURES.get(reason, reason.replace('-', ' '))}"
    return Event(at, Code.FAILED, "", model, text, count, reason)
