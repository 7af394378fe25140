"""Loads and unloads beside a real llama-swap with real engines: each is counted once, and under its cause."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import threading

import psutil
import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from corral.demo import tiny_gguf
from corral.door.config import read_config
from corral.door.follower import Follower
from corral.door.llama_swap import FAULTS
from corral.engine.stack_folder import StackFolder
from corral.exporter.llama_swap import LlamaSwap
from corral.exporter.metrics import Exporter
from tests.support.engine_process import question, wait_for
from tests.support.guard_process import run_guard
from tests.support.kernel import forget_cached
from tests.support.served import Served, served

pytestmark = pytest.mark.timeout(240)
MODELS = ("first", "second", "idle", "broken")
CLIENTS = {
    "operator": {"models": None, "requests": None, "role": "operator"},
    "watch": {"models": [], "requests": 4, "role": "steward"},
}
IS_MEASURED = shutil.which("fincore") is not None


@pytest.fixture(scope="module")
def stack(tmp_path_factory):
    """``first`` and ``second`` take turns, ``idle`` is unloaded after a second, ``broken`` cannot be loaded."""
    folder = tmp_path_factory.mktemp("changes")
    weights = tiny_gguf.write_all(folder).text
    models = {
        "first": Served(weights, group="turns", more=["--metrics"]),
        "second": Served(weights, group="turns"),
        "idle": Served(weights, ttl=1),
        "broken": Served(weights, more=["--no-such-flag"]),
    }
    run = folder / "run"
    run.mkdir()
    with served(run, models) as running:
        yield running


class Watched:
    """A guard in front of *stack*, nothing loaded, and an exporter that has begun to count."""

    def __init__(self, stack, guard):
        self.stack, self.guard = stack, guard
        self.registry = CollectorRegistry()
        exporter = Exporter(seal="0" * 64, models=MODELS, accounts=tuple, find_llama_swap=self.client)
        self.registry.register(exporter)
        for one in stack.running.client().residents():
            stack.running.client().unload(one.model)
        self.follow()

    def client(self):
        host, port = self.guard.address
        return LlamaSwap(f"http://{host}:{port}", {"Authorization": "Bearer key-of-watch"}, is_door=True)

    def follow(self):
        self.guard.set_keys(operator=["operator-key"], watch=["key-of-watch"])
        wait_for(lambda: ("corral_missed_changes_total",) in self.scrape(), what="the guard follows")

    def scrape(self):
        families = text_string_to_metric_families(generate_latest(self.registry).decode())
        return {(one.name, *one.labels.values()): one.value for family in families for one in family.samples}

    def ask(self, model):
        return self.guard.post(question("Hello.", model=model), key="operator-key").status

    def counts(self):
        """Loads of each model, and unloads by model and cause, that are not 0."""
        found = [(*key, value) for key, value in self.scrape().items() if value]
        loads = {labels[0]: value for name, *labels, value in found if name == "corral_loads_total"}
        unloads = {tuple(labels[::-1]): value for name, *labels, value in found if name == "corral_unloads_total"}
        return loads, unloads

    def wait_for(self, loads, unloads):
        wait_for(lambda: self.counts() == (loads, unloads), what=f"the counts {loads} and {unloads}")

    def pid(self, model):
        (pid,) = [one.pid for one in self.stack.running.engines() if self.path(model) in command(one.pid)]
        return pid

    def path(self, model):
        return str(self.stack.weights(model))


def command(pid):
    return psutil.Process(pid).cmdline()


def options(stack):
    key = {"internal_key_file": str(stack.running.folder / "llama-swap.key")}
    return {**key, "clients": CLIENTS, "models": {name: name for name in MODELS}}


@pytest.fixture
def watched(stack, tmp_path):
    with run_guard(tmp_path, stack.running.door.swap_port, **options(stack)) as guard:
        yield Watched(stack, guard)


def test_a_load_is_counted_once_with_its_seconds(watched):
    assert watched.ask("first") == watched.ask("first") == 200
    watched.wait_for({"first": 1}, {})
    found = watched.scrape()
    (key,) = [key for key in found if key[0] == "corral_load_seconds_sum"]
    assert found["corral_load_seconds_count", *key[1:]] == 1
    assert 0.2 < found[key] < 60  # llama-swap asks an engine for its health after 0.25 s


@pytest.mark.parametrize(("forget", "expected"), [(False, "warm"), (True, "cold")])
def test_a_load_has_what_was_in_the_page_cache_before_it(watched, forget, expected):
    path = watched.stack.weights("first")
    path.read_bytes()
    if forget:
        forget_cached(path)
    assert watched.ask("first") == 200
    watched.wait_for({"first": 1}, {})
    expected = expected if IS_MEASURED else "unknown"
    assert watched.scrape()["corral_load_seconds_count", "first", expected] == 1


def test_a_model_whose_place_another_one_needs_is_evicted(watched):
    for model in ("first", "second", "first"):
        assert watched.ask(model) == 200
    watched.wait_for({"first": 2, "second": 1}, {("first", "evicted"): 1, ("second", "evicted"): 1})


def test_a_model_without_requests_is_unloaded_as_idle(watched):
    assert watched.ask("idle") == 200
    watched.wait_for({"idle": 1}, {("idle", "idle"): 1})


@pytest.mark.parametrize("path", ["/api/models/unload/first", "/api/models/unload", "/unload"])
def test_a_model_that_an_operator_unloads_is_unloaded_on_request(watched, path):
    assert watched.ask("first") == 200
    key = {"key": "operator-key"}
    answer = watched.guard.get(path, **key) if path == "/unload" else watched.guard.post(b"", path=path, **key)
    assert answer.status == 200, answer
    watched.wait_for({"first": 1}, {("first", "requested"): 1})


def test_a_model_that_is_unloaded_for_a_neighbour_has_yielded(watched):
    assert watched.ask("first") == 200
    wait_for(lambda: watched.client().unload_idle("first"), what="the unload")
    watched.wait_for({"first": 1}, {("first", "yielded"): 1})


def test_a_model_whose_engine_is_killed_died(watched):
    assert watched.ask("first") == 200
    os.kill(watched.pid("first"), signal.SIGKILL)
    watched.wait_for({"first": 1}, {("first", "died"): 1})


def test_a_load_that_fails_is_no_load(watched):
    assert watched.ask("broken") == 503
    assert watched.ask("first") == 200
    watched.wait_for({"first": 1}, {})
    assert watched.scrape()["corral_failed_loads_total", "broken", "process-ended"] == 1


def test_two_hundred_scrapes_load_nothing_and_keep_nothing_loaded(watched):
    assert watched.ask("idle") == 200
    requests = len(watched.client().requests())
    watched.wait_for({"idle": 1}, {("idle", "idle"): 1})
    for _ in range(200):
        watched.scrape()
    assert watched.counts() == ({"idle": 1}, {("idle", "idle"): 1})
    assert watched.client().residents() == ()
    assert len(watched.client().requests()) == requests


def test_the_counts_survive_the_guard_and_are_unknown_while_it_is_away(watched, stack, tmp_path):
    assert watched.ask("first") == 200
    watched.wait_for({"first": 1}, {})
    assert watched.guard.stop() == 0
    assert watched.counts() == ({}, {})
    assert not [key for key in watched.scrape() if key[0] in ("corral_loads_total", "corral_unloads_total")]

    (tmp_path / "second").mkdir()
    with run_guard(tmp_path / "second", stack.running.door.swap_port, **options(stack)) as watched.guard:
        watched.follow()
        watched.wait_for({"first": 1}, {})
        assert watched.ask("second") == 200
        watched.wait_for({"first": 1, "second": 1}, {("first", "evicted"): 1})


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_stream_ends_with_llama_swap_and_breaks_off_when_it_is_killed(tmp_path, number):
    weights = tiny_gguf.write_all(tmp_path / "models").text
    (tmp_path / "run").mkdir()
    with served(tmp_path / "run", {"first": Served(weights)}) as stack:
        config = read_config(StackFolder(stack.state).guard_config)
        follower = Follower()
        ended = []

        def follow():
            try:
                asyncio.run(follower.follow(config))
                ended.append(signal.SIGTERM)
            except FAULTS:
                ended.append(signal.SIGKILL)

        thread = threading.Thread(target=follow)
        thread.start()
        wait_for(lambda: follower.listed() is not None, what="it follows")
        os.kill(stack.running.pid, number)
        thread.join(60)
        assert ended == [number]
        assert follower.listed() is None
