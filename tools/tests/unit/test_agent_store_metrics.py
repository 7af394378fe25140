"""The store's metrics: what is ready, what is cached, what room is left; a store that hangs hangs no scrape."""

import contextlib
import os
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import threading
import urllib.request
from contextlib import contextmanager

import pytest
from prometheus_client.parser import text_string_to_metric_families

from corral.agent import metrics_server, store_metrics, store_state
from corral.agent.lock_file import read_lock
from corral.agent.metrics_server import serving
from corral.agent.store_state import ModelState, StoreState, Watch
from corral.errors import Refused
from tests.support.engine_process import get
from tests.support.fetching import MIB, shop
from tests.support.kernel import OTHER_UID, forget_cached, on_a_disk

SIZE = 8 * MIB
SEAL = "0123456789abcdef" * 4
STATE = StoreState(100, 40, 10, 1, (ModelState("chat", "ready", 30, 20), ModelState("vision", "missing", 25, None)))


@pytest.fixture
def one(tmp_path):
    with on_a_disk(tmp_path) as folder, shop(folder, size=SIZE) as made:
        yield made


@pytest.fixture
def fetched(one):
    one.fetch()
    return one


def state_of(one):
    return store_state.read(read_lock(one.lock), one.store)


def model_of(one):
    (model,) = state_of(one).models
    return model


def series(text):
    """The value of each series, by its name and labels."""
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


# -- the state of a model --------------------------------------------------------------------------------------------


def test_a_fetched_model_is_ready(fetched):
    found = model_of(fetched)
    assert (found.model, found.state, found.size) == ("m", "ready", SIZE)


def test_a_store_without_the_model_has_it_missing(one):
    one.store.prepare()
    assert model_of(one) == ModelState("m", "missing", SIZE, None)


def test_a_file_that_is_gone_is_missing(fetched):
    fetched.published.resolve().unlink()
    assert model_of(fetched) == ModelState("m", "missing", SIZE, None)


def test_a_file_that_changed_after_it_was_verified_is_unverified(fetched):
    with fetched.published.resolve().open("r+b") as file:
        file.write(b"x")
    assert model_of(fetched).state == "unverified"


def test_a_model_whose_record_is_lost_is_unverified(fetched):
    shutil.rmtree(fetched.store.records)
    assert model_of(fetched).state == "unverified"


def test_another_version_is_outdated(fetched):
    link = fetched.store.root / "m"
    other = fetched.store.root / "sets" / "m@000000000000"
    link.resolve().rename(other)
    link.unlink()
    link.symlink_to(f"sets/{other.name}")
    assert model_of(fetched) == ModelState("m", "outdated", SIZE, None)


def test_what_corral_did_not_make_serves_no_model(one):
    one.store.prepare()
    (one.store.root / "m").mkdir()
    assert model_of(one).state == "missing"


def test_the_cached_part_is_what_the_page_cache_has(fetched):
    fetched.published.read_bytes()
    assert model_of(fetched).cached == SIZE
    forget_cached(fetched.published.resolve())
    assert model_of(fetched).cached < SIZE / 2


def test_to_a_user_who_may_not_see_it_the_cached_part_is_unknown(fetched, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: OTHER_UID)
    monkeypatch.setattr(os, "access", lambda *_args: False)
    monkeypatch.setattr("corral.agent.page_cache._effective_capabilities", lambda: 0)
    assert model_of(fetched) == ModelState("m", "ready", SIZE, None)


def test_reading_changes_nothing(fetched):
    def entries():
        return {
            path: (path.lstat().st_mtime_ns, path.lstat().st_ino)
            for path in fetched.store.root.rglob("*")
            if path.name not in ("clock", "leases")
        }

    before = entries()
    assert len(before) > 5
    state_of(fetched)
    assert entries() == before


# -- the room --------------------------------------------------------------------------------------------------------


def test_content_that_no_model_links_to_is_counted_apart(fetched):
    assert state_of(fetched).unlinked == 0
    (fetched.store.root / "m").unlink()
    assert state_of(fetched).unlinked == SIZE


def test_total_and_free_are_those_of_the_file_system(fetched):
    found = state_of(fetched)
    assert found.total == shutil.disk_usage(fetched.store.root).total
    assert 0 < found.free < found.total


# -- a state that is not known ---------------------------------------------------------------------------------------


def test_without_a_store_the_state_is_unknown_and_the_reason_is_written_once(one):
    warnings = []
    watch = Watch(lambda: state_of(one), warnings.append)
    watch.read_once()
    watch.read_once()
    assert watch.latest() is None
    assert len(warnings) == 1
    assert "There is no store" in warnings[0]
    one.store.prepare()
    watch.read_once()
    assert watch.latest().models[0].state == "missing"


def test_a_record_that_is_hostile_is_no_end_of_the_readings(fetched):
    (record,) = fetched.store.records.glob("*.json")
    record.write_text("[" * 200_000)
    assert model_of(fetched).state == "unverified"


def test_a_reading_that_fails_as_no_one_expected_is_unknown_and_the_next_one_counts():
    answers = [ZeroDivisionError("x"), STATE]
    warnings = []

    def read():
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    watch = Watch(read, warnings.append)
    watch.read_once()
    assert watch.latest() is None
    assert warnings == ["The store cannot be read: ZeroDivisionError('x')."]
    watch.read_once()
    assert watch.latest() == STATE


def test_a_client_that_sends_a_byte_at_a_time_is_ended(monkeypatch):
    monkeypatch.setattr(metrics_server, "_CLIENT_S", 0.3)
    with serving(("127.0.0.1", 0), lambda: "") as server, socket.create_connection(server.server_address) as client:
        client.settimeout(60)
        client.sendall(b"GET /metrics HTTP/1.1\r\n")
        with contextlib.suppress(ConnectionError):
            while True:  # each byte is within the limit of a piece
                client.sendall(b"x")
                if select.select([client], [], [], 0.05)[0] and not client.recv(100):
                    break


def test_a_problem_that_comes_again_is_written_again():
    answers = [Refused("one"), STATE, Refused("one")]
    warnings = []

    def read():
        answer = answers.pop(0)
        if isinstance(answer, Refused):
            raise answer
        return answer

    watch = Watch(read, warnings.append)
    for _ in range(3):
        watch.read_once()
    assert warnings == ["one", "one"]


def test_a_store_that_hangs_is_unknown_after_a_while_and_a_scrape_returns(monkeypatch):
    hangs, may_end = threading.Event(), threading.Event()
    answers = [STATE]

    def read():
        if answers:
            return answers.pop()
        hangs.set()
        may_end.wait(60)
        return STATE

    now = [1000.0]
    monkeypatch.setattr(store_state, "PERIOD_S", 0.0)
    monkeypatch.setattr(store_state.time, "monotonic", lambda: now[0])
    watch = Watch(read, pytest.fail)
    with watch.running():
        assert hangs.wait(60)
        assert watch.latest() == STATE
        now[0] += store_state.OLDEST_S + 1
        with serving(("127.0.0.1", 0), lambda: store_metrics.text("nfs", watch.latest(), SEAL)) as server:
            status, text = get(f"http://127.0.0.1:{server.server_port}/metrics")
        assert status == 200
        assert series(text) == {("corral_store_lock_info", "nfs", SEAL): 1.0, ("corral_store_up", "nfs"): 0.0}
    may_end.set()


# -- the metrics -----------------------------------------------------------------------------------------------------


def test_prometheus_own_parser_reads_every_metric():
    families = {
        family.name: family for family in text_string_to_metric_families(store_metrics.text("nfs", STATE, SEAL))
    }
    assert list(families) == [metric.name for metric in store_metrics.METRICS]
    for metric in store_metrics.METRICS:
        assert (families[metric.name].type, families[metric.name].documentation) == ("gauge", metric.help)
        assert families[metric.name].samples
        assert all(tuple(sample.labels) == metric.labels for sample in families[metric.name].samples)


def test_the_figures_are_those_of_the_state():
    assert series(store_metrics.text("nfs", STATE, SEAL)) == {
        ("corral_store_lock_info", "nfs", SEAL): 1,
        ("corral_store_up", "nfs"): 1,
        ("corral_store_size_bytes", "nfs"): 100,
        ("corral_store_free_bytes", "nfs"): 40,
        ("corral_store_unlinked_bytes", "nfs"): 10,
        ("corral_store_downloads", "nfs"): 1,
        ("corral_store_model_bytes", "nfs", "chat"): 30,
        ("corral_store_model_bytes", "nfs", "vision"): 25,
        ("corral_store_model_state", "nfs", "chat", "ready"): 1,
        ("corral_store_model_state", "nfs", "vision", "missing"): 1,
        ("corral_store_model_cached_bytes", "nfs", "chat"): 20,
    }


def test_every_state_is_described():
    (states,) = (metric.help for metric in store_metrics.METRICS if metric.name == "corral_store_model_state")
    assert re.findall("|".join(store_state.STATES), states) == list(store_state.STATES)


# -- the program -----------------------------------------------------------------------------------------------------


@contextmanager
def started(one, *words):
    command = [sys.executable, "-m", "corral.agent", "metrics", "--seal", SEAL, "--lock", str(one.lock)]
    process = subprocess.Popen(
        [*command, "--store", str(one.store.root), *words], stderr=subprocess.PIPE, text=True, errors="replace"
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def port_of(process):
    return re.search(r"listening on port (\d+)", process.stderr.readline())[1]


def test_it_serves_until_sigterm(fetched):
    with started(fetched, "--port", "0", "--name", "llama-cpp") as process:
        port = port_of(process)
        assert get(f"http://127.0.0.1:{port}/health") == (200, "OK\n")
        assert get(f"http://127.0.0.1:{port}/else") == (404, "There is /metrics and /health.\n")
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
            assert answer.headers["Content-Type"] == store_metrics.CONTENT_TYPE
            found = series(answer.read().decode())
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    assert ("corral_store_up", "llama-cpp") in found


def test_an_address_that_is_taken_is_named(fetched):
    with started(fetched, "--port", "0") as first:
        port = port_of(first)
        with started(fetched, "--port", port) as second:
            assert f"127.0.0.1:{port} cannot be listened on" in second.stderr.read()
            assert second.wait(60) == 3


@pytest.mark.parametrize("port", ["-1", "65536", "x", ""])
def test_what_is_no_port_is_refused(fetched, port):
    with started(fetched, f"--port={port}") as process:
        assert "is no port from 0 to 65535" in process.stderr.read()
        assert process.wait(60) == 2


def test_what_is_no_name_of_a_store_is_refused(fetched):
    with started(fetched, '--name=a"b') as process:
        assert "is no name of a store" in process.stderr.read()
        assert process.wait(60) == 2
