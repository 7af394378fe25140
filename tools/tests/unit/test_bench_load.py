"""Load by a plan, and the figures of it: what a run can show, and what it cannot."""

import asyncio
import random
import statistics
import time
from dataclasses import replace

import pytest

from corral.bench import comparison, figures, load, measuring
from corral.bench.exchange import Sample
from corral.bench.load import Level, Run
from corral.bench.measuring import Question


def whole(scheduled=0.0, ttft=0.05, tpot=0.01, tokens=32, *, wait=0.0, prompt_s=None):
    """A whole answer, of a piece a token."""
    sent = scheduled + wait
    first = sent + ttft
    last = first + tpot * (tokens - 1)
    return Sample(
        scheduled,
        sent,
        "ok",
        first,
        last,
        last,
        tokens,
        [tpot] * (tokens - 1),
        prompt_tokens=20,
        output_tokens=tokens,
        server_prompt_s=prompt_s,
    )


def failed(outcome, retry_after="", example=""):
    return Sample(0.0, 0.0, outcome, ended=0.1, retry_after=retry_after, example=example)


def of(*samples, level=None, seconds=10.0, lags=(), planned_s=0.0, late=0.0):
    return figures.of(Run(level or Level(users=1), list(samples), seconds, list(lags), late, planned_s))


# -- closed and open -------------------------------------------------------------------------------------------------


class Server:
    """Counts those that wait for it; each request ends when ``may_end`` is set, or at once."""

    def __init__(self, outcome="ok", *, holds=False):
        self.under_way = self.most = self.sent = 0
        self.outcome, self.scheduled, self.changed = outcome, [], asyncio.Event()
        self.may_end = asyncio.Event()
        if not holds:
            self.may_end.set()

    async def send(self, scheduled):
        self.scheduled.append(scheduled)
        self.sent += 1
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        self.changed.set()
        await self.may_end.wait()
        await asyncio.sleep(0)
        self.under_way -= 1
        now = time.perf_counter()
        return Sample(now if scheduled is None else scheduled, now, self.outcome, ended=now)

    async def has(self, under_way):
        while self.under_way < under_way:
            self.changed.clear()
            await self.changed.wait()


def played(level, server):
    return asyncio.run(load.run(level, server.send))


def test_so_many_users_have_so_many_requests_under_way():
    server = Server()
    run = played(Level(users=7, requests=70, seconds=60, ramp_s=0), server)
    assert (server.most, server.sent, len(run.samples)) == (7, 70, 70)
    assert set(server.scheduled) == {None}
    assert run.achieved_rate is None


def test_users_begin_one_after_the_other():
    slept, sleep = [], asyncio.sleep

    async def recorded(seconds):
        slept.append(seconds)
        await sleep(0)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(load.asyncio, "sleep", recorded)
        played(Level(users=4, requests=4, seconds=60, ramp_s=2.0), Server())
    assert [one for one in slept if one in (0.0, 0.5, 1.0, 1.5)][:4] == [0.0, 0.5, 1.0, 1.5]


def test_no_request_begins_after_the_time():
    server = Server()
    run = played(Level(users=3, seconds=0), server)
    assert (server.sent, run.samples) == (0, [])


def test_a_user_who_was_refused_waits_as_long_as_the_server_asked(monkeypatch):
    slept, sleep = [], asyncio.sleep

    async def recorded(seconds):
        if seconds >= load.LEAST_PAUSE_S:
            slept.append(seconds)
        await sleep(0)

    monkeypatch.setattr(load.asyncio, "sleep", recorded)
    monkeypatch.setattr(load, "_LAG_EVERY_S", 0.0)
    server = Server("http-429")
    run = played(Level(users=1, requests=2, seconds=60), server)
    assert len(run.samples) == 2
    assert slept == [load.LEAST_PAUSE_S] * 2


@pytest.mark.parametrize(("asked", "seconds"), [("", 0.1), ("0", 0.1), ("3", 3.0), ("900", 5.0), ("soon", 0.1)])
def test_the_pause_is_within_limits(asked, seconds):
    assert load.pause_after(failed("http-429", retry_after=asked)) == seconds


def test_an_open_loop_sends_whatever_the_answers_do():
    level = Level(rate=400, seconds=0.2, seed=3)
    server = Server(holds=True)

    async def play():
        running = asyncio.create_task(load.run(level, server.send))
        await server.has(len(level.arrivals()))
        server.may_end.set()
        return await running

    run = asyncio.run(play())
    assert len(run.samples) == len(level.arrivals()) > 20
    assert run.planned_s == level.arrivals()[-1]


def test_the_times_of_an_open_loop_are_those_of_its_seed_and_have_its_rate():
    arrivals = Level(rate=50, seconds=100, seed=1).arrivals()
    assert arrivals == Level(rate=50, seconds=100, seed=1).arrivals() != Level(rate=50, seconds=100, seed=2).arrivals()
    assert 4500 < len(arrivals) < 5500
    assert arrivals == sorted(arrivals)
    assert arrivals[-1] <= 100
    assert len(Level(rate=50, seconds=100, requests=10).arrivals()) == 10


def test_a_limit_at_the_client_delays_the_sending_and_not_the_schedule():
    level = Level(rate=400, seconds=0.1, at_most=2, seed=5)
    server = Server(holds=True)

    async def play():
        running = asyncio.create_task(load.run(level, server.send))
        await server.has(2)
        server.may_end.set()
        return await running

    run = asyncio.run(play())
    assert server.most == 2
    scheduled = [one - server.scheduled[0] for one in server.scheduled]
    assert scheduled == pytest.approx([one - level.arrivals()[0] for one in level.arrivals()])
    assert run.achieved_rate == pytest.approx(level.rate, rel=0.5)


def test_the_lag_of_this_process_is_measured_all_the_time():
    async def block(scheduled):
        time.sleep(0.03)  # noqa: ASYNC251 - that is the fault
        await asyncio.sleep(0.02)
        return Sample(0.0, 0.0, "ok")

    run = asyncio.run(load.run(Level(users=1, requests=3, seconds=60), block))
    assert max(run.lags) > 0.02


# -- figures ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("q", "n"), [(0.5, 20), (0.9, 100), (0.95, 200), (0.99, 1000)])
def test_a_quantile_needs_ten_samples_beyond_it(q, n):
    assert figures.least_samples(q) == n


def test_a_quantile_without_enough_samples_is_none():
    assert figures.spread([1.0] * 19).p50 is None
    found = figures.spread([float(one) for one in range(200)])
    assert (found.n, found.p50, found.p95, found.p99) == (200, 99.5, pytest.approx(189.05), None)


def test_latency_counts_from_the_time_at_which_a_request_was_to_be_sent():
    found = of(*[whole(wait=2.0)] * 20)
    assert found.ttft.p50 == pytest.approx(2.05)
    assert found.ttft_from_sent.p50 == pytest.approx(0.05)
    assert found.e2e.p50 == pytest.approx(2.05 + 0.31)
    assert found.tpot.p50 == pytest.approx(0.01)


def test_failures_are_counted_by_cause_and_are_in_no_latency():
    found = of(
        *[whole(ttft=0.05)] * 20,
        *[failed("http-429", "3", "full")] * 5,
        failed("cut"),
        failed("http-503", "1"),
    )
    assert (found.requests, found.ok) == (27, 20)
    assert found.failures == {"cut": 1, "http-429": 5, "http-503": 1}
    assert found.examples == {"http-429": "full"}
    assert found.retry_after == ("1", "3")
    assert found.ttft.n == 20
    assert found.requests_per_s == 2.0
    assert found.output_tokens_per_s == pytest.approx(64)


def test_waiting_is_what_the_server_did_not_spend_on_the_prompt():
    assert of(*[whole(ttft=0.5, prompt_s=0.2)] * 20).waiting.p50 == pytest.approx(0.3)
    assert of(*[whole(ttft=0.5)] * 20).waiting.n == 0


def test_the_servers_own_speeds_leave_out_what_it_had_in_its_cache():
    one = whole(prompt_s=0.1)
    one.cached_tokens, one.server_output_s = 5, 0.32
    found = of(one)
    assert found.prefill_per_s == pytest.approx(150)
    assert found.decode_per_s == pytest.approx(100)
    assert found.cached_tokens == 5


def test_a_run_whose_client_was_late_is_invalid():
    assert of(whole(), lags=[0.001] * 99 + [0.5]).invalid == ()
    (reason,) = of(whole(), lags=[0.001] * 90 + [0.5] * 10).invalid
    assert "late by 500.0 ms" in reason


def test_a_run_that_did_not_reach_its_rate_is_invalid():
    level = Level(rate=10, seconds=10)
    assert of(whole(), level=level, planned_s=10.0, late=0.4).invalid == ()
    (reason,) = of(whole(), level=level, planned_s=10.0, late=1.0).invalid
    assert "9.09 requests a second were sent of 10" in reason


def test_an_open_loop_that_sends_late_is_invalid_unless_its_limit_makes_it_wait():
    late = [whole(wait=0.05)] * 20
    (reason,) = of(*late, level=Level(rate=10)).invalid
    assert "requests were sent 50.0 ms late (p99)" in reason
    assert of(*late, level=Level(rate=10, at_most=4)).invalid == ()
    assert of(*[whole(wait=0.001)] * 20, level=Level(rate=10)).invalid == ()


def test_a_run_without_a_request_is_invalid():
    assert of().invalid == ("no request was sent",)


def test_the_requests_under_way_are_counted():
    found = of(whole(0.0), whole(0.1), whole(0.2), whole(5.0))  # each takes 0.36 s
    assert found.at_once == 3


def test_a_run_without_an_answer_has_no_figure():
    found = of(failed("http-500"))
    assert (found.ok, found.ttft.p50, found.prefill_per_s, found.output_tokens_per_s) == (0, None, None, 0)
    assert found.as_json()["failures"] == {"http-500": 1}


# -- comparison ------------------------------------------------------------------------------------------------------


def drawn(seed, mean, n=300):
    source = random.Random(seed)
    return [mean * source.lognormvariate(0, 0.2) for _ in range(n)]


def test_two_runs_of_the_same_are_not_different_and_twenty_percent_are_found():
    false_alarms = found = 0
    for pair in range(40):
        base = drawn(2 * pair, 0.01)
        false_alarms += comparison.compare(base, drawn(2 * pair + 1, 0.01)).is_real
        slower = comparison.compare(base, drawn(2 * pair + 1, 0.012))
        found += slower.is_real and slower.change > 0
    assert false_alarms <= 2
    assert found >= 38


def test_a_change_that_is_smaller_than_a_machines_drift_is_none():
    difference = comparison.compare(drawn(1, 1.0, 20000), drawn(2, 1.03, 20000))
    assert difference.low > 0
    assert not difference.is_real


def test_the_interval_is_around_the_change_and_has_the_right_width():
    """By drawing n of n, as the bootstrap is defined."""
    before, after = drawn(1, 1.0), drawn(2, 1.2)
    difference = comparison.compare(before, after)
    source = random.Random(3)
    quotients = sorted(
        statistics.median(source.choices(after, k=300)) / statistics.median(source.choices(before, k=300)) - 1
        for _ in range(2000)
    )
    assert difference.low <= difference.change <= difference.high
    assert difference.low == pytest.approx(quotients[10], abs=0.02)
    assert difference.high == pytest.approx(quotients[-11], abs=0.02)


def queued(seed, n=400, *, load=0.9):
    """The wait in a queue of one server."""
    source, now, free, found = random.Random(seed), 0.0, 0.0, []
    for _ in range(n):
        now += source.expovariate(load)
        began = max(now, free)
        free = began + source.uniform(0.7, 1.3)
        found.append(free - now)
    return found


def test_samples_that_depend_on_each_other_are_worth_less():
    assert comparison.independent(drawn(1, 1.0, 1000)) > 800
    assert comparison.independent(queued(1)) < 60
    assert comparison.independent([1.0] * 50) == 50


def test_two_runs_of_the_same_queue_are_not_called_different():
    found = [comparison.compare(queued(2 * pair), queued(2 * pair + 1)) for pair in range(40)]
    assert sum(one is not None and one.is_real for one in found) <= 2


def test_too_few_samples_are_not_compared():
    assert comparison.compare(drawn(1, 1.0, 19), drawn(2, 1.0)) is None
    assert comparison.compare(drawn(1, 1.0), drawn(2, 1.0), 0.95) is not None
    assert comparison.compare(drawn(1, 1.0, 199), drawn(2, 1.0), 0.95) is None


@pytest.mark.parametrize(("answer_s", "ramp_s"), [(0.01, 0.01), (5.0, 1.0)])
def test_users_of_a_fast_model_begin_within_the_time_of_an_answer_so_that_none_begins_after_the_last_request(
    answer_s, ramp_s, monkeypatch
):
    class Client:
        async def send(self, asked, scheduled):
            return Sample(0.0, 0.0, "ok", ended=answer_s, prompt_tokens=20)

    async def played(level, send):
        return Run(level)

    monkeypatch.setattr(measuring.load, "run", played)
    levels = [Level(users=10, requests=200)]
    found = asyncio.run(measuring.measure(Client(), "m", Question(20, 8), levels, lambda _: None, next_step=""))
    (run,) = found.runs
    assert run.level == replace(levels[0], ramp_s=ramp_s)
