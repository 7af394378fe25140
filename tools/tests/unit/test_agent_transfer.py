"""The engine against a hub that misbehaves: faults that pass are survived, and nothing corrupt is ever published."""

import errno
import functools
import itertools
import os
import threading
from dataclasses import replace

import pytest

from corral.agent import hub_client, scheduling, transfer
from corral.agent.partial import Partial
from corral.agent.progress import Downloading, Planned, Retrying, StartedOver
from corral.agent.stopping import Stopped
from corral.errors import CannotRun, Failed, Refused
from tests.support import faulty_hub as faults
from tests.support.fetching import IMPATIENT, MIB, shop


@pytest.fixture
def one(tmp_path):
    with shop(tmp_path) as made:
        yield made


SURVIVED = {
    "fin-twenty-times-with-progress": [faults.Cut(after=100_000, times=20)],
    "rst-mid-body": [faults.Cut(after=100_000, times=5, reset=True)],
    "seven-cuts-after-little": [faults.Cut(after=5000, times=7)],
    "fin-before-the-head-counts": [faults.Cut(after=0, times=3)],
    "503-five-times": [faults.Status(times=5)],
    "503-from-the-api": [faults.Status(on=faults.RESOLVE, times=3)],
    "429-with-retry-after": [faults.Status(status=429, retry_after="1", times=2)],
    "short-bodies-with-matching-length": [faults.Truncate(to=200_000, times=4)],
    "range-ignored-once": [faults.IgnoreRange(skip=1)],
    "range-always-ignored": [faults.IgnoreRange(times=None)],
    "range-always-ignored-and-cut": [faults.Cut(after=MIB, times=1), faults.IgnoreRange(times=None)],
    "signed-address-refused-once": [faults.Status(status=403)],
    "signed-address-expires-on-the-way": [faults.Expire(skip=2)],
    "one-flipped-bit": [faults.Flip(skip=1)],
    "wrong-etag-in-the-metadata": [faults.Header(on=faults.RESOLVE, value='"beef"', times=None)],
    "wrong-size-in-the-metadata": [
        faults.Header(on=faults.RESOLVE, name="X-Linked-Size", value="7", times=None),
    ],
    "wrong-range-once": [faults.Header(name="Content-Range", value="bytes 5-9/4194304")],
    "no-range-header-once": [faults.Header(name="Content-Range", value="nonsense")],
    "compressed-once": [faults.Compressed()],
}


@pytest.mark.parametrize("trouble", SURVIVED.values(), ids=SURVIVED)
def test_a_fault_that_passes_is_survived(one, trouble):
    one.hub.faults = [replace(fault) for fault in trouble]
    one.fetch()
    assert any(fault.times != given.times for fault, given in zip(one.hub.faults, trouble, strict=True)) or all(
        fault.times is None for fault in trouble
    ), "the fault never happened"
    assert one.published.read_bytes() == one.content
    assert one.leftovers() == []


def test_cuts_cost_no_byte_twice(one):
    one.hub.faults = [faults.Cut(after=100_000, times=10)]
    done = one.fetch()
    assert done.bytes_moved == len(one.content)


def test_a_range_that_is_ignored_once_costs_nothing(one):
    one.settings = replace(one.settings, connections=1)
    one.hub.faults = [faults.IgnoreRange(skip=3)]
    assert one.fetch().bytes_moved == len(one.content)


def test_a_server_that_knows_no_ranges_sends_everything_once_more_at_most(one):
    one.settings = replace(one.settings, connections=1)
    one.hub.faults = [faults.IgnoreRange(times=None)]
    assert one.fetch().bytes_moved <= 2 * len(one.content)


def test_a_connection_that_was_closed_while_it_was_idle_is_no_error(one):
    one.settings = replace(one.settings, connections=1)
    one.hub.faults = [faults.HangUp()]
    one.fetch()
    assert [event for event in one.events if isinstance(event, Retrying)] == []


def test_all_connections_wait_when_the_server_demands_it(tmp_path):
    with shop(tmp_path, size=8 * MIB) as one:
        one.hub.faults = [faults.Status(status=429, retry_after="1")]
        assert one.fetch().seconds >= 1


def test_a_connection_that_waits_for_another_try_does_not_hold_up_the_end(one, monkeypatch):
    """The one whose first answer was cut would try again in a day at the earliest."""
    monkeypatch.setattr(scheduling, "_FIRST_PAUSE_SECONDS", 1e5)
    one.settings = replace(one.settings, max_pause=2e5, give_up_after=1e6)
    one.hub.faults = [faults.Cut(after=0)]
    one.fetch()
    assert one.hub.faults[0].times == 0
    assert one.published.read_bytes() == one.content


def test_a_stall_is_noticed_and_survived(one):
    over = threading.Event()
    one.hub.faults = [faults.Stall(after=1000, until=over, seconds=threading.TIMEOUT_MAX)]
    try:
        one.fetch(timeout=0.5)  # ends although the stall does not
    finally:
        over.set()
    assert one.hub.faults[0].times == 0
    assert one.published.read_bytes() == one.content


def test_a_refused_connection_is_tried_again_until_the_hub_is_back(tmp_path):
    with shop(tmp_path) as gone:
        where = gone.hub.endpoint
    with pytest.raises(CannotRun, match=r"m/a\.gguf could not be fetched: .*connection refused"):
        gone.fetch(hub=hub_client.Hub(where), settings=IMPATIENT)
    assert sum(isinstance(event, Retrying) for event in gone.events) > 3
    assert not gone.published.exists()


def test_a_hub_that_was_away_for_a_while_is_waited_for(one):
    opened = threading.Event()

    def open_door(event):
        if isinstance(event, Retrying) and not opened.is_set():
            opened.set()
            door.open()

    one.settings = replace(one.settings, give_up_after=1e6)
    with faults.Door(one.hub) as door:
        one.fetch(hub=hub_client.Hub(door.endpoint), on_event=open_door)
    assert opened.is_set()
    assert one.published.read_bytes() == one.content


def test_bodies_that_are_empty_for_ever_are_never_published(one):
    one.hub.faults = [faults.Truncate(to=0, times=None)]
    with pytest.raises(CannotRun, match=r"could not be fetched: .*(ended early|too slowly)"):
        one.fetch(settings=IMPATIENT)
    assert not one.published.exists()


def test_a_server_that_compresses_everything_fails_with_the_reason(one):
    one.hub.faults = [faults.Compressed(times=None)]
    with pytest.raises(Failed, match="is compressed, though it was requested as it is"):
        one.fetch()
    assert not one.published.exists()


def test_a_server_that_ends_at_the_same_byte_each_time_does_not_send_without_end(one, monkeypatch):
    monkeypatch.setattr(transfer, "_MAX_SKIPPED_OF_SMALL", 0)
    one.settings = replace(one.settings, connections=1, give_up_after=1e6)
    one.hub.faults = [faults.CutWhole(after=2 * MIB, times=None)]
    with pytest.raises(CannotRun, match="ignores ranges and sends the same bytes again"):
        one.fetch()


def test_what_is_on_disk_survives_a_server_that_no_longer_knows_ranges(one):
    one.hub.faults = [faults.Cut(after=200_000, times=8), faults.Status(status=404, times=None)]
    with pytest.raises(Refused):
        one.fetch()
    kept = sum(path.stat().st_blocks for path in one.store.partials.rglob("*.partial")) * 512
    assert kept > 500_000
    one.hub.faults = [faults.IgnoreRange(times=None), faults.Slow(rate=1e6)]
    done = one.fetch(settings=replace(one.settings, connections=1))
    planned = next(event for event in reversed(one.events) if isinstance(event, Planned))
    assert planned.bytes_missing < len(one.content) - 500_000
    assert done.bytes_moved <= 2 * len(one.content)
    assert one.published.read_bytes() == one.content


def test_a_bit_that_is_always_flipped_is_fetched_twice_and_never_published(one):
    one.hub.faults = [faults.Flip(times=None)]
    with pytest.raises(Failed) as caught:
        one.fetch()
    began_anew = [event for event in one.events if isinstance(event, StartedOver)]
    assert len(began_anew) == 1
    assert began_anew[0].expected in caught.value.message
    assert began_anew[0].actual in caught.value.message
    assert one.hub.data_sent == 2 * len(one.content)
    assert not one.published.exists()
    assert list((one.store.root / "blobs").iterdir()) == []
    assert one.leftovers() == []


def test_a_file_that_is_shorter_than_in_the_lock_fails_with_both_sizes(one):
    one.hub.faults = [faults.Header(name="Content-Range", value="bytes 0-9/10", times=None)]
    one.settings = replace(one.settings, connections=1, give_up_after=1e6)
    with pytest.raises(Failed, match="has 10 bytes of it, the lock 4194304"):
        one.fetch()
    assert not one.published.exists()


@pytest.mark.parametrize(
    ("status", "expected"),
    [(404, "does not exist"), (401, "needs a token"), (403, "needs a token")],
)
@pytest.mark.parametrize("where", [faults.RESOLVE, faults.DATA])
def test_a_real_refusal_is_final_once_two_fresh_signed_addresses_are_refused_too(one, status, expected, where):
    one.settings = replace(one.settings, connections=1)
    one.hub.faults = [faults.Status(on=where, status=status, times=None)]
    with pytest.raises(Refused, match=expected) as caught:
        one.fetch()
    assert sum(isinstance(event, Retrying) for event in one.events) == (2 if where == faults.DATA else 0)
    assert str(status) in caught.value.message
    assert caught.value.next_step


def test_a_server_that_demands_a_longer_pause_than_the_limit_is_not_waited_for(one):
    one.hub.faults = [faults.Status(status=429, retry_after="100000", times=None)]
    with pytest.raises(CannotRun, match="answered 429"):
        one.fetch()
    assert [event for event in one.events if isinstance(event, Retrying)] == []


def test_a_full_disk_keeps_what_has_arrived(one, monkeypatch):
    write, room = Partial.write, [MIB]

    def write_while_there_is_room(partial, offset, data):
        room[0] -= len(data)
        if room[0] < 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        write(partial, offset, data)

    monkeypatch.setattr(Partial, "write", write_while_there_is_room)
    with pytest.raises(CannotRun, match=r"There is no room left on the file system of .*; what has arrived is kept"):
        one.fetch()
    monkeypatch.undo()
    assert not one.published.exists()
    kept = sum(path.stat().st_blocks for path in one.store.partials.rglob("*.partial")) * 512
    assert kept > 0
    assert one.fetch().bytes_moved < len(one.content)
    assert one.published.read_bytes() == one.content


def test_bytes_that_the_disk_refuses_at_the_last_moment_are_not_published(one, monkeypatch):
    went_on = threading.Event()

    def fail_late(_descriptor):
        went_on.wait(2)  # an engine that does not wait for the flush is past its end by then
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fdatasync", fail_late)
    monkeypatch.setattr(Partial, "sync", lambda _partial: went_on.set())
    with pytest.raises(CannotRun, match=r"cannot be read or written: .*Input/output error"):
        one.fetch()
    assert not one.published.exists()


def test_stopping_is_prompt_and_the_next_run_resumes(one):
    one.hub.faults = [faults.Slow(rate=300_000)]
    stop = threading.Event()
    arrived = []

    def stop_after_a_while(event):
        if isinstance(event, Downloading) and event.moved > 500_000:
            arrived.append(event.moved)
            stop.set()

    with pytest.raises(Stopped):
        one.fetch(stop=stop, on_event=stop_after_a_while)
    one.hub.faults = []
    one.fetch()
    assert one.published.read_bytes() == one.content
    # What was in the sockets' buffers is lost, nothing that had reached the process.
    planned = [event for event in one.events if isinstance(event, Planned)]
    assert planned[-1].bytes_missing <= len(one.content) - arrived[0]
    assert one.hub.data_sent < len(one.content) + one.settings.connections * 100_000


@pytest.mark.parametrize("step", ["write", "read"], ids=["slow-disk", "slow-hash"])
def test_time_that_the_disk_or_the_hash_takes_is_not_the_hubs(one, monkeypatch, step):
    """Four seconds pass while the first write, or the first read for the hash, does not return."""
    now, checks, held, go_on = [0.0], itertools.count(1), threading.Event(), threading.Event()
    work, require_rate = getattr(Partial, step), transfer._Attempt._require_rate

    def wait_first(*words):
        held.set()
        go_on.wait()
        return work(*words)

    def check(attempt, passed):
        has_all = transfer._Waits.FOR_THE_HUB not in attempt._waits_for
        if not held.is_set() or go_on.is_set() or not (has_all or step == "write"):
            require_rate(attempt, passed)
            return
        now[0] += 1
        require_rate(attempt, 1)
        if next(checks) == 4:
            go_on.set()

    monkeypatch.setattr(Partial, step, wait_first)
    monkeypatch.setattr(transfer._Attempt, "_require_rate", check)
    monkeypatch.setattr(transfer, "RetryBudget", functools.partial(scheduling.RetryBudget, clock=lambda: now[0]))
    try:
        one.fetch(settings=replace(one.settings, connections=1, give_up_after=2))
    finally:
        go_on.set()
    assert now[0] == 4
    assert one.published.read_bytes() == one.content


def test_a_line_that_several_connections_share_is_measured_as_a_whole():
    """Each of the eight sends an eighth of what is expected."""
    now = [0.0]
    budget = scheduling.RetryBudget(scheduling.TransferSettings(give_up_after=10), 800, lambda: now[0])
    for _ in range(100):
        now[0] += 1
        for _ in range(8):
            budget.received(100)
        assert budget.too_slow() is None
