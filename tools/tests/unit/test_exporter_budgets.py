"""Which requests a latency budget is about, and which of them took too long; what is not known counts for none."""

from __future__ import annotations

from dataclasses import replace

import pytest

from corral.exporter.budgets import Budget, Budgets
from corral.exporter.llama_swap import Request, Resident
from corral.exporter.metrics import Exporter, Families, Served

CHAT = Budget("t4", "chat", "desk", 800, 120, seconds=4.5, cold="allowed")
WARM = replace(CHAT, cold="excluded")
ONE = Request(1, "chat", 200, 2.0, prompt_s=0.3, prompt_tokens=600, output_tokens=100, cached_tokens=200)
EVERY_S = 15.0


def counted(budget, *readings):
    """Requests and slow ones of *budget* after *readings*, EVERY_S apart; None: there was none."""
    times = (EVERY_S * at for at in range(100))
    one = Budgets([budget], clock=lambda: now)
    for now, reading in zip(times, readings, strict=False):  # noqa: B007 - the clock reads it
        one.lose_sight() if reading is None else one.take(*reading)
    ((_, requests, slow),) = one.counted()
    return requests, slow


def after(*requests, ready=("chat",), before=2):
    """A reading of *requests* after some at which the models *ready* were so."""
    return *[((), ready)] * before, (requests, ready)


def test_a_request_that_took_longer_than_the_budget_is_slow_and_one_that_took_as_long_is_not():
    times = [0.1, 4.5, 4.501, 60.0]
    assert counted(CHAT, *after(*(replace(ONE, seconds=seconds) for seconds in times))) == (4, 2)


@pytest.mark.parametrize(
    "other",
    [
        {"model": "vision"},
        {"prompt_tokens": 601},
        {"cached_tokens": 201},
        {"output_tokens": 121},
        {"status": 500},
        {"status": 429},
        {"cached_tokens": None},
        {"output_tokens": 0},
    ],
    ids=str,
)
def test_a_request_that_is_larger_or_unknown_or_failed_counts_for_none(other):
    slow = replace(ONE, seconds=60.0)
    assert counted(CHAT, *after(slow)) == (1, 1)
    assert counted(CHAT, *after(replace(slow, **other))) == (0, 0)


def test_a_request_that_waited_for_a_load_counts_where_that_is_allowed_and_not_where_it_is_excluded():
    slow = replace(ONE, seconds=20.0)
    loaded = (((), ()), ((), ()), ((slow,), ("chat",)))
    assert counted(CHAT, *loaded) == (1, 1)
    assert counted(WARM, *loaded) == (0, 0)


@pytest.mark.parametrize(
    ("seconds", "before", "counts"),
    [(2.0, 1, False), (2.0, 2, True), (14.9, 2, True), (15.1, 2, False), (15.1, 3, True), (44.0, 4, True)],
)
def test_a_request_is_known_to_be_warm_when_its_model_was_ready_before_it_can_have_begun(seconds, before, counts):
    """It ended since the last reading, so that it began *seconds* before that one at the earliest."""
    found = counted(WARM, *after(replace(ONE, seconds=seconds), before=before))
    assert found[0] == counts


@pytest.mark.parametrize("gap", [((), ()), None], ids=["unloaded", "unknown"])
def test_after_a_reading_without_the_model_it_was_not_ready_before(gap):
    long = replace(ONE, seconds=20.0)
    assert counted(WARM, *[((), ("chat",))] * 3, gap, *after(long, before=2)) == (0, 0)
    assert counted(WARM, *[((), ("chat",))] * 3, gap, *after(long, before=3)) == (1, 1)


def served(*lists):
    """The series of CHAT's card after *lists*, the first of which is older than the exporter."""
    one = Served(["chat"], [CHAT, replace(CHAT, consumer="tv", seconds=30.0)])
    for listed in lists:
        one.take(listed, ["chat"])
    families = Families()
    one.write(families)
    samples = (sample for family in families.all() for sample in family.samples)
    return {(one.name.removeprefix("corral_latency_budget_"), *one.labels.values()): one.value for one in samples}


def test_each_budget_is_a_series_from_0_on_and_a_request_counts_for_each():
    slow = replace(ONE, seconds=20.0)
    before, now = served((slow,)), served((slow,), (slow, replace(slow, number=2)))

    for consumer, seconds in (("desk", 4.5), ("tv", 30.0)):
        of = ("t4", "chat", consumer)
        assert (before["seconds", *of], before["requests_total", *of], before["slow_requests_total", *of]) == (
            seconds,
            0,
            0,
        )
    assert (now["requests_total", "t4", "chat", "desk"], now["slow_requests_total", "t4", "chat", "desk"]) == (1, 1)
    assert (now["requests_total", "t4", "chat", "tv"], now["slow_requests_total", "t4", "chat", "tv"]) == (1, 0)


class Client:
    """A llama-swap whose model is in *state*, after *requests* that took no time."""

    def __init__(self, requests=0, state="ready"):
        self._requests, self._state = requests, state

    def residents(self):
        return (Resident("chat", self._state, "http://127.0.0.1:1"),)

    def requests(self):
        return tuple(replace(ONE, number=at + 1, at=str(at), seconds=0.0) for at in range(self._requests))

    def engine(self, _resident):
        return {}

    def changes(self):
        return ()


@pytest.mark.parametrize(
    ("readings", "count"),
    [
        ((Client(), Client(1)), 1),
        ((Client(), Client(), Client(2)), 2),
        ((Client(state="starting"), Client(1)), 0),
        ((Client(), None, Client(1)), 0),
    ],
    ids=["ready", "ready-for-long", "starting", "unknown-in-between"],
)
def test_the_exporter_knows_from_its_readings_which_requests_were_warm(readings, count):
    found = iter(readings)
    exporter = Exporter(seal="", models=["chat"], budgets=[WARM], accounts=tuple, find_llama_swap=lambda: next(found))
    for _ in readings:
        families = {family.name: family for family in exporter.collect()}
    assert [one.value for one in families["corral_latency_budget_requests"].samples] == [count]
