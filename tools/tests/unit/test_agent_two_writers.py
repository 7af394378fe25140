"""Two processes at one store, and the leases of dead processes."""

import json
import multiprocessing
import os
import threading
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

from corral.agent.fetch import fetch
from corral.agent.hub_client import Hub
from corral.agent.lock_file import read_lock
from corral.agent.store import Store
from tests.support.fetching import shop

TRIALS = 100
SIZE = 50_000


def fetch_at(when: float, lock: Path, store: Path, endpoint: str) -> int:
    """Fetch in this process from *when* on; the bytes that it moved."""
    time.sleep(max(0.0, when - time.time()))
    return fetch(read_lock(lock), Store(store), hub=Hub(endpoint)).bytes_moved


class Watcher(threading.Thread):
    """Polls *path*; counts how often it was missing after it had been present."""

    def __init__(self, path: Path) -> None:
        super().__init__(daemon=True)
        self.path = path
        self.present = self.gone = 0
        self.ended = threading.Event()
        self.start()

    def run(self) -> None:
        while not self.ended.wait(0.0005):
            if self.path.exists():
                self.present += 1
            elif self.present:
                self.gone += 1

    def end(self) -> None:
        self.ended.set()
        self.join()


def test_two_writers_a_hundred_times_move_every_byte_once_and_never_take_a_file_away(tmp_path):
    context = multiprocessing.get_context("spawn")
    with (
        shop(tmp_path, size=SIZE) as one,
        ProcessPoolExecutor(1, mp_context=context) as first,
        ProcessPoolExecutor(1, mp_context=context) as second,
    ):
        lock = one.lock
        moved = []
        for trial in range(TRIALS):
            store = tmp_path / f"store-{trial}"
            watcher = Watcher(store / "m" / "model.gguf")
            when = time.time() + 0.005
            works = [pool.submit(fetch_at, when, lock, store, one.hub.endpoint) for pool in (first, second)]
            moved += [work.result(timeout=30) for work in works]
            assert (store / "m" / "model.gguf").read_bytes() == one.content
            watcher.end()
            assert watcher.gone == 0
            assert [path.name for path in (store / ".corral" / "partials").iterdir()] == []
        assert len(moved) == 2 * TRIALS
        assert one.hub.data_sent <= 1.05 * TRIALS * SIZE
        assert sum(moved) == one.hub.data_sent


def test_the_lease_of_a_host_that_died_is_waited_for_and_then_taken_over(tmp_path):
    with shop(tmp_path, size=SIZE) as one:
        sha256 = json.loads(one.lock.read_text())["models"]["m"]["files"][0]["sha256"]
        one.store.prepare()
        lease = one.store.leases / sha256
        lease.write_text(json.dumps(["0000", "elsewhere", "elsewhere", 1, "1"]))
        os.utime(lease, (time.time() + 3600,) * 2)  # it lives, until the other process waits for it
        with one.start("--lease-ttl", "60") as process:
            waits = next(line for line in process.stderr if "waiting for process 1 on elsewhere" in line)
            os.utime(lease, (time.time() - 61,) * 2)
            _, error = process.communicate(timeout=30)
        assert process.returncode == 0, waits + error
        assert one.leftovers() == []


@pytest.mark.parametrize("holder", ["", "nonsense"])
def test_a_lease_without_a_holder_is_waited_for_no_longer(tmp_path, holder):
    with shop(tmp_path, size=SIZE) as one:
        sha256 = json.loads(one.lock.read_text())["models"]["m"]["files"][0]["sha256"]
        one.store.prepare()
        (one.store.leases / sha256).write_text(holder)
        one.fetch(lease_ttl=0.5)
        assert one.published.read_bytes() == one.content
