"""Which part is requested next, and when a failed request is sent again."""

import pytest

from corral.agent.hub_client import RetryableError
from corral.agent.scheduling import RetryBudget, TransferSettings, Worklist, part_size
from corral.errors import CannotRun, Failed

MIB = 1 << 20


def test_every_missing_byte_is_claimed_once_and_in_order():
    missing = [(0, 10 * MIB), (50 * MIB, 50 * MIB + 7), (60 * MIB, 90 * MIB)]
    worklist = Worklist(missing, 4)
    claimed = []
    while spans := worklist.claim(4 * MIB):
        claimed += spans
    assert claimed == sorted(claimed)
    covered = []
    for start, end in claimed:
        if covered and covered[-1][1] == start:
            covered[-1] = (covered[-1][0], end)
        else:
            covered.append((start, end))
    assert covered == missing


def test_parts_shrink_towards_the_end_so_that_all_are_done_together():
    worklist = Worklist([(0, 256 * MIB)], 8)
    sizes = []
    while spans := worklist.claim(32 * MIB):
        sizes.append(spans[0][1] - spans[0][0])
    assert sizes[0] == 16 * MIB
    assert sizes == sorted(sizes, reverse=True)
    assert max(sizes[-8:]) == MIB


def test_what_is_released_is_claimed_next():
    worklist = Worklist([(0, 100 * MIB)], 2)
    first, second = worklist.claim(4 * MIB), worklist.claim(4 * MIB)
    worklist.release([(1 * MIB, 2 * MIB)])
    assert worklist.claim(4 * MIB) == [(1 * MIB, 2 * MIB)]
    assert worklist.claim(4 * MIB)[0][0] == second[0][1]
    assert first[0][0] == 0


def test_a_server_without_ranges_gets_one_request_at_a_time_for_everything():
    worklist = Worklist([(0, 100 * MIB)], 2)
    held = worklist.claim(4 * MIB)
    worklist.note_ignored_range()
    assert not worklist.in_one_piece  # once may be an accident
    worklist.note_ignored_range()
    assert worklist.claim(4 * MIB) == []
    worklist.release(held)
    assert sum(end - start for start, end in worklist.claim(4 * MIB)) == 100 * MIB


def test_no_more_workers_than_there_is_work():
    assert Worklist([], 8).workers == 0
    assert Worklist([(0, 1)], 8).workers == 1
    assert Worklist([(0, 100 * MIB)], 8).workers == 8


def test_a_slow_round_trip_makes_for_larger_parts():
    assert part_size(0.001, 4 * MIB, 0.1) == 4 * MIB
    assert part_size(0.05, 4 * MIB, 0.2) == pytest.approx(20 * MIB, abs=1)
    assert part_size(2.0, 4 * MIB, 0.1) == 64 * MIB


def budget_at(now, **settings):
    """A budget of 100 bytes a second whose clock is *now*, a list of one number."""
    return RetryBudget(TransferSettings(**settings), 100, lambda: now[0])


def test_retries_end_without_new_bytes_and_continue_with_them():
    now = [100.0]
    budget = budget_at(now, give_up_after=30, max_pause=1)
    for _ in range(4):
        now[0] += 10
        assert budget.pause_after(RetryableError("cut"), 9) <= 1
        budget.received(1000)
    now[0] += 30
    with pytest.raises(CannotRun, match="cut"):
        budget.pause_after(RetryableError("cut"), 9)


def test_a_byte_renews_no_more_than_its_share_of_the_time():
    now = [100.0]
    budget = budget_at(now, give_up_after=30, max_pause=1)
    for _ in range(29):
        now[0] += 1
        budget.received(1)
        assert budget.too_slow() is None
    now[0] += 2
    assert "at least" in budget.too_slow().reason
    with pytest.raises(CannotRun, match="cut"):
        budget.pause_after(RetryableError("cut"), 1)


def test_a_pause_that_the_server_demands_does_not_count_as_time_without_bytes():
    now = [100.0]
    budget = budget_at(now, give_up_after=1, max_server_wait=100)
    assert budget.pause_after(RetryableError("busy", wait=50), 1) == 50
    assert budget.server_wait() == 50
    now[0] += 25
    budget.received(1)  # by another connection
    now[0] += 25.5
    assert budget.too_slow() is None
    with pytest.raises(CannotRun):
        budget.pause_after(RetryableError("busy", wait=200), 1)


def test_a_byte_between_two_demanded_pauses_does_not_buy_another_one():
    now = [100.0]
    budget = budget_at(now, give_up_after=10, max_server_wait=100)
    for _ in range(2):
        now[0] += budget.pause_after(RetryableError("busy", wait=50), 1)
        budget.received(1)
    with pytest.raises(CannotRun, match="busy"):
        budget.pause_after(RetryableError("busy", wait=50), 1)
    budget.received(1000)  # what the whole time demands
    assert budget.pause_after(RetryableError("busy", wait=50), 1) == 50


def test_contradictions_end_soon_whatever_the_time_limit():
    budget = RetryBudget(TransferSettings(give_up_after=1000))
    contradiction = RetryableError("too short", becomes=Failed)
    for _ in range(7):
        budget.pause_after(contradiction, 1)
    with pytest.raises(Failed, match="too short"):
        budget.pause_after(contradiction, 1)
