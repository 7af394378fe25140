"""Time the first token and the streams through the door, beside llama-swap alone in the same run.

The real llama-swap in front of an engine of a fixed pace (door_support/paced_engine.py: the first token after 50 ms,
then one each 20 ms), so that the difference is the proxies' alone.  50 clients stream at a time, each its next answer
as soon as the last one has ended.  The door is Caddy as Terraform configures it, in front of the guard; the guard is
also measured alone, at its socket.  Clients keep their connections, except to the guard, which has a new one for each
request.  The targets take turns, round by round.

    python tools/benchmarks/door.py [--rounds 6] [--streams 50] [--small]
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1])]

import psutil  # noqa: E402

from corral.engine import binaries  # noqa: E402
from tests.support import door  # noqa: E402
from tests.support.engine_process import free_port, get, wait_for  # noqa: E402
from tests.support.guard_process import INTERNAL_KEY, post, run_guard  # noqa: E402

GOAL_P50_MS, GOAL_P95_MS = 3.0, 10.0
FIRST_MS, TOKEN_MS, TOKENS = 50, 20, 32
ENGINE = Path(__file__).parent / "door_support" / "paced_engine.py"
ANSWERS = 3  # of each client in a round
BODY = json.dumps(
    {"model": "tiny-text", "stream": True, "messages": [{"role": "user", "content": "word " * 2000}]}
).encode()
END = b"0\r\n\r\n"


@dataclass
class Target:
    """Where requests are sent, and what came of them.

    Attributes:
        at: a port of loopback, or a socket.
        processes: whose processor time is counted.
        first_ms: of each answer, to its first token.
        gaps_ms: the longest pause in each answer after its first token.
        whole: answers with every token and their end.
    """

    name: str
    at: int | Path
    key: str
    keeps: bool
    processes: list[psutil.Process]
    first_ms: list[float] = field(default_factory=list)
    gaps_ms: list[float] = field(default_factory=list)
    whole: int = 0
    processor_s: float = 0.0

    def processor_now(self) -> float:
        """Seconds that its processes have used."""
        return sum(sum(process.cpu_times()[:2]) for process in self.processes)

    async def connect(self) -> Connection:
        """A new connection to it."""
        loop = asyncio.get_running_loop()
        if isinstance(self.at, Path):
            return (await loop.create_unix_connection(Connection, str(self.at)))[1]
        return (await loop.create_connection(Connection, "127.0.0.1", self.at))[1]


def main() -> int:
    """Print the figures; return 1 when a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=6, help="of each target")
    parser.add_argument("--streams", type=int, default=50, help="at a time")
    parser.add_argument("--small", action="store_true", help="two rounds, as CI runs it")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="corral-door-") as folder, targets(Path(folder), args.streams) as measured:
        load = os.getloadavg()[0]
        for target in measured:  # connections stand, code is warm
            asyncio.run(round_of(target, args.streams, 1))
            target.first_ms.clear()
            target.gaps_ms.clear()
            target.whole, target.processor_s = 0, 0.0
        for _ in range(2 if args.small else args.rounds):
            for target in measured:
                asyncio.run(round_of(target, args.streams, ANSWERS))
    print(f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, load {load:.1f}")
    print(f"{args.streams} streams at a time; the engine's first token after {FIRST_MS} ms, one each {TOKEN_MS} ms")
    met = [show(target, measured[0]) for target in measured]
    print(f"goals: p50 {GOAL_P50_MS:+g} ms, p95 {GOAL_P95_MS:+g} ms, every answer whole")
    return 0 if all(met) else 1


def show(target: Target, reference: Target) -> bool:
    """Print a line, and whether the goals are met; those of the reference always are."""
    answers = len(target.first_ms)
    words = [f"{target.name:10} first token"]
    is_met = target.whole == answers
    for at, goal in ((50, GOAL_P50_MS), (95, GOAL_P95_MS)):
        value, compared = quantile(target.first_ms, at), quantile(reference.first_ms, at)
        words.append(f"p{at} {value:6.1f} ms ({value - compared:+5.1f} ms, {value / compared:4.2f} x)")
        is_met = is_met and value - compared <= goal
    print(
        *words,
        f" longest pause p50 {statistics.median(target.gaps_ms):5.1f} ms  {target.whole} of {answers} answers whole",
        f" {1e6 * target.processor_s / (answers * TOKENS):4.0f} us of processor a token",
    )
    return is_met


def quantile(values: list[float], percent: int) -> float:
    """The *percent*-th percentile."""
    return statistics.quantiles(values, n=100)[percent - 1]


@contextlib.contextmanager
def targets(folder: Path, streams: int) -> Iterator[list[Target]]:
    """The reference first, then what is compared with it; they run until the block ends."""
    words = [sys.executable, str(ENGINE), "${PORT}", str(FIRST_MS), str(TOKEN_MS), str(TOKENS)]
    model = {"cmd": " ".join(words), "proxy": "http://127.0.0.1:${PORT}", "concurrencyLimit": 2 * streams}
    config = {"startPort": free_port(), "captureBuffer": 0, "apiKeys": [INTERNAL_KEY], "models": {"tiny-text": model}}
    (folder / "config.json").write_text(json.dumps(config))
    port = free_port()
    command = [str(binaries.llama_swap()), "-config", str(folder / "config.json"), "-listen", f"127.0.0.1:{port}"]
    with (folder / "log").open("wb") as log:
        swap = subprocess.Popen(command, stdout=log, stderr=log)
    clients = {"operator": {"models": None, "requests": None, "role": "operator"}}
    socket, run = folder / "run" / "guard.sock", folder / "run"
    run.mkdir()
    rendered = door.render(folder / "terraform", guard={"unix": str(socket)}, listen="127.0.0.1:1")["caddy"]
    try:
        wait_for(lambda: get(f"http://127.0.0.1:{port}/health")[0] == 200, what="llama-swap")
        with (
            run_guard(run, port, clients=clients, listen={"unix": str(socket)}) as guard,
            door.caddy(run, rendered, has_guard=False) as caddy,
        ):
            parts = [psutil.Process(one.pid) for one in (guard.process, caddy.process)]
            yield [
                Target("llama-swap", port, INTERNAL_KEY, True, [psutil.Process(swap.pid)]),
                Target("guard", socket, "operator-key", False, parts[:1]),
                Target("door", caddy.port, "operator-key", True, parts),
            ]
    finally:
        swap.terminate()
        swap.wait()


async def round_of(target: Target, streams: int, answers: int) -> None:
    """Have *streams* clients read *answers* answers each, at the same time."""
    before = target.processor_now()

    async def client(number: int) -> None:
        await asyncio.sleep(number * (FIRST_MS + TOKENS * TOKEN_MS) / 1000 / streams)  # out of step
        connection: Connection | None = None
        for _ in range(answers):
            begun = time.perf_counter()
            if connection is None or connection.transport.is_closing():
                connection = await target.connect()
            await connection.ask(target.key, target.keeps)
            target.first_ms.append(1000 * (connection.times[0] - begun))
            gaps = [later - earlier for earlier, later in zip(connection.times, connection.times[1:], strict=False)]
            target.gaps_ms.append(1000 * max(gaps, default=0.0))
            target.whole += connection.tokens == TOKENS
        if connection:
            connection.transport.close()

    await asyncio.gather(*(client(number) for number in range(streams)))
    target.processor_s += target.processor_now() - before


class Connection(asyncio.Protocol):
    """Reads one answer at a time, and when each of its tokens came."""

    transport: asyncio.Transport
    times: list[float]
    tokens: int

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def ask(self, key: str, keeps: bool) -> asyncio.Future[None]:
        self.times, self.tokens, self._tail = [], 0, b""
        self._ended = asyncio.get_running_loop().create_future()
        self._keeps = keeps
        self.transport.write(post(BODY, key=key))
        return self._ended

    def data_received(self, data: bytes) -> None:
        if found := data.count(b'"word "'):
            self.times.append(time.perf_counter())
            self.tokens += found
        self._tail = (self._tail + data)[-len(END) :]
        if self._keeps and self._tail == END:
            self._end()

    def connection_lost(self, _: Exception | None) -> None:
        if not self._ended.done():
            if self._tail != END:
                self.tokens = 0
            self._end()

    def _end(self) -> None:
        self.times = self.times or [float("inf")]
        self._ended.set_result(None)


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    sys.exit(main())
