"""An excess is as old as the first reading that showed it, and ends with the first that shows none."""

from __future__ import annotations

from corral.exporter.account import CardAccount, Row
from corral.exporter.excesses import Excesses

MIB = 1 << 20


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def since(excesses, held_mib, *, card="t4"):
    held = None if held_mib is None else held_mib * MIB
    rows = (Row("tenant", "immich-ml", promised=2100 * MIB, held=held), Row("reserve", "reserve", promised=512 * MIB))
    (found,) = excesses.dated((CardAccount(card, 15360 * MIB, None, "", "", rows),))
    assert found.rows[1].over_since is None
    return found.rows[0].over_since


def test_a_holder_within_its_promise_has_no_date():
    assert since(Excesses(), 2100) is None


def test_the_first_reading_that_shows_it_dates_it_until_one_shows_that_it_is_over():
    clock = Clock()
    excesses = Excesses(clock=clock)
    assert since(excesses, 5000) == 1000
    clock.now = 1015
    assert since(excesses, 10726) == 1000
    assert since(excesses, 2000) is None
    assert since(excesses, 5000) == 1015


def test_a_reading_that_does_not_know_what_it_has_ends_nothing():
    clock = Clock()
    excesses = Excesses(clock=clock)
    since(excesses, 5000)
    clock.now = 1015
    assert since(excesses, None) is None
    assert since(excesses, 5000) == 1000


def test_the_same_tenant_on_another_card_is_dated_by_itself():
    clock = Clock()
    excesses = Excesses(clock=clock)
    since(excesses, 5000)
    clock.now = 1015
    assert since(excesses, 5000, card="a10") == 1015
