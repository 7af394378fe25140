"""Requests by a plan: so many users, or so many requests a second; and how late this process itself was.

A closed loop has users, each of whom waits for an answer and then sends the next request.  An open loop sends at times
that are drawn beforehand, whatever the answers do, and measures from these times: a client that sends later because the
server is slow would hide just that (coordinated omission: docs/benchmarks/load-client.md has 50 ms in place of 6 s).
"""

from __future__ import annotations

import asyncio
import gc
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from corral.bench.exchange import Sample
from corral.bench.neighbours import Beside, Neighbours

Send = Callable[[float | None], Awaitable[Sample]]
"""Sends the next request, which was scheduled for a time (None: for now)."""

LEAST_PAUSE_S, MOST_PAUSE_S = 0.1, 5.0
_LAG_EVERY_S = 0.005


@dataclass(frozen=True)
class Level:
    """How much load: *users* in a closed loop, or a *rate* of requests a second in an open one.

    Attributes:
        seconds: no request is begun after that.
        requests: nor more than so many; None: any number.
        ramp_s: of a closed loop: its users begin one after the other within so long, for they would march in step.
        at_most: of an open loop: requests under way at a time, the others wait in the client; None: any number.
        seed: of the times of an open loop.
        neighbours: what computes and holds memory meanwhile; None: only what does so anyway.
    """

    users: int | None = None
    rate: float | None = None
    seconds: float = 30.0
    requests: int | None = None
    ramp_s: float = 1.0
    at_most: int | None = None
    seed: int = 0
    neighbours: Neighbours | None = None

    @property
    def load(self) -> str:
        """The requests, for people."""
        if self.rate is None:
            return "1 user" if self.users == 1 else f"{self.users} users"
        limit = f", at most {self.at_most} at a time" if self.at_most else ""
        return f"{self.rate:g}/s{limit}"

    @property
    def name(self) -> str:
        """For people."""
        return self.load + (f", neighbours {self.neighbours.name}" if self.neighbours else "")

    def arrivals(self) -> list[float]:
        """The times of an open loop in seconds from its beginning: a Poisson process."""
        assert self.rate
        source, now = random.Random(self.seed), 0.0  # noqa: S311 - no secret
        found: list[float] = []
        while len(found) < (self.requests or float("inf")):
            now += source.expovariate(self.rate)
            if now > self.seconds:
                break
            found.append(now)
        return found


@dataclass
class Run:
    """What a level brought.

    Attributes:
        level: it.
        samples: in the order in which they ended.
        seconds: from the first request to the end of the last answer.
        lags: seconds by which this process's event loop was late, sampled all the time.
        late: of an open loop: seconds by which the last request was handed over after its time; 0 in a closed one.
        planned_s: of an open loop: the time of its last request, from the beginning.
        beside: what the level's neighbours did.
    """

    level: Level
    samples: list[Sample] = field(default_factory=list)
    seconds: float = 0.0
    lags: list[float] = field(default_factory=list)
    late: float = 0.0
    planned_s: float = 0.0
    beside: Beside | None = None

    @property
    def achieved_rate(self) -> float | None:
        """Requests a second that an open loop handed over; None: a closed loop has no asked rate."""
        if self.level.rate is None or not self.planned_s:
            return None
        return self.level.rate * self.planned_s / (self.planned_s + max(0.0, self.late))


async def run(level: Level, send: Send) -> Run:
    """Play *level*; every request that was begun is waited for."""
    found = Run(level)
    gc.collect()
    gc.disable()  # a collection in the middle of a stream would be measured as the server's
    try:
        async with _lag(found.lags):
            began = time.perf_counter()
            await (_closed(found, send, began) if level.rate is None else _open(found, send, began))
            found.seconds = time.perf_counter() - began
    finally:
        gc.enable()
    return found


async def _closed(found: Run, send: Send, began: float) -> None:
    level, begun = found.level, 0

    async def user(after_s: float) -> None:
        nonlocal begun
        await asyncio.sleep(after_s)
        while time.perf_counter() - began < level.seconds and (level.requests is None or begun < level.requests):
            begun += 1
            sample = await send(None)
            found.samples.append(sample)
            if not sample.is_ok:
                await asyncio.sleep(pause_after(sample))

    async with asyncio.TaskGroup() as group:
        users = level.users or 1
        for number in range(users):
            group.create_task(user(level.ramp_s * number / users))


def pause_after(failed: Sample) -> float:
    """Seconds for which a user waits after a request that *failed*: as long as the server asked, within limits."""
    asked = float(failed.retry_after) if failed.retry_after.isdecimal() else 0.0
    return min(MOST_PAUSE_S, max(LEAST_PAUSE_S, asked))


async def _open(found: Run, send: Send, began: float) -> None:
    arrivals = found.level.arrivals()
    places = asyncio.Semaphore(found.level.at_most or max(1, len(arrivals)))

    async def request(scheduled: float) -> None:
        async with places:
            found.samples.append(await send(scheduled))

    async with asyncio.TaskGroup() as group:
        for offset in arrivals:
            await asyncio.sleep(max(0.0, began + offset - time.perf_counter()))
            group.create_task(request(began + offset))
            found.planned_s, found.late = offset, time.perf_counter() - began - offset


@asynccontextmanager
async def _lag(lags: list[float]) -> AsyncIterator[None]:
    async def watch() -> None:
        while True:
            before = time.perf_counter()
            await asyncio.sleep(_LAG_EVERY_S)
            lags.append(time.perf_counter() - before - _LAG_EVERY_S)

    watching = asyncio.create_task(watch())
    try:
        yield
    finally:
        watching.cancel()
