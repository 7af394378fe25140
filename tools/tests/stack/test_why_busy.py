"""`corral why` of models that are loaded and overloaded, or whose port another process holds."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from corral.demo import tiny_gguf
from corral.engine.engine_process import is_stopped
from corral.why import local
from corral.why.facts import StackFacts
from corral.why.next_steps import StepOptions, commands
from tests.support.engine_process import Stream, chat, stop, unanswered, wait_for
from tests.support.served import Served, served
from tests.support.shells import program
from tests.support.why_command import (
    STOPPED,
    completion,
    diagnose,
    engine_of,
    in_flight,
    in_parallel,
    send,
    unload,
    wait_for_evidence,
)

pytestmark = pytest.mark.timeout(120)
produces = pytest.mark.produces


@pytest.fixture(scope="module")
def stack(tmp_path_factory):
    folder = tmp_path_factory.mktemp("busy")
    text, slow = folder / "text.gguf", folder / "slow.gguf"
    tiny_gguf.write_text(text)
    tiny_gguf.write_text(slow, n_ff=80_000)  # an answer that fills the context takes seconds
    models = {
        "flooded": Served(slow),
        "busy": Served(slow),
        "burst": Served(text, engine=STOPPED),
        "good": Served(text),
        "crowded": Served(slow, limit=2),
        "frozen": Served(text),
        "tenant": Served(slow, group="shared"),
        "waiting": Served(text, group="shared"),
        # The real engine ends when its port is taken; one that lives on and does not listen is a script.
        "usurped": Served(text, engine=["sh", "-c", "exec sleep 600", "sh"]),
    }
    run = folder / "run"
    run.mkdir()
    with served(run, models) as running:
        yield running


@pytest.fixture
def why(stack, monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("CORRAL_STATE", str(stack.state))
    monkeypatch.chdir(tmp_path)  # no catalog here: the one that the stack was started with counts
    wait_for_evidence(monkeypatch)
    return lambda *words: diagnose(capsys, *words)


def test_on_an_overloaded_machine_the_evidence_may_take_longer(stack, why, monkeypatch):
    chat(stack.endpoint, "Hello.", model="good")
    monkeypatch.setattr(local, "_FIRST_ROUND_S", 0.001)
    assert why("good")["class"] != "healthy"
    monkeypatch.setattr(local, "_slowdown", lambda: 20_000.0)
    assert why("good")["class"] == "healthy"


@pytest.mark.parametrize(("load", "slowdown"), [(0.5, 1.0), (6.0, 1.0), (10.0, 5.0), (90.0, 8.0)])
def test_how_much_longer_follows_from_the_load_of_each_core(monkeypatch, load, slowdown):
    monkeypatch.setattr(os, "getloadavg", lambda: (load, 0.0, 0.0))
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    assert local._slowdown() == slowdown


class OtherServer(BaseHTTPRequestHandler):
    """Answers every request with 200."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    do_POST = do_GET  # noqa: N815

    def log_message(self, *_: object) -> None:
        """Log nothing."""


def test_an_engine_with_more_requests_than_threads_for_them_works_and_is_not_to_be_killed(stack, why):
    stream = Stream(stack.endpoint, "busy", 2000)
    others = in_parallel(8, lambda: completion(stack, "busy"))
    wait_for(lambda: in_flight(stack, "busy") > 5, what="more requests than the engine has threads for")

    verdict = why("busy")

    unload(stack, "busy")
    for thread in (stream, *others):
        thread.join()
    assert verdict["class"] == "healthy", verdict
    assert "requests in flight (of 10 at most)" in verdict["evidence"][0]
    assert not any("kill" in step for step in verdict["next"])


def test_a_request_that_waits_in_the_engines_queue_is_counted(stack, why):
    stream = Stream(stack.endpoint, "busy", 2000)
    others = in_parallel(1, lambda: completion(stack, "busy"))
    wait_for(lambda: in_flight(stack, "busy") == 2, what="both requests")

    verdict = why("busy")

    unload(stack, "busy")
    for thread in (stream, *others):
        thread.join()
    assert "2 requests in flight (of 10 at most), 1 of them in the engine's queue" in verdict["evidence"][0]


def test_a_flood_is_too_many_requests_and_no_hang(stack, why):
    assert send(stack, "flooded")[0] == 200
    engine = engine_of(stack, "flooded")
    stop(engine)  # so that none of the first ten has its answer before the last of forty has come
    statuses: list[int] = []
    threads = in_parallel(40, lambda: statuses.append(completion(stack, "flooded")))
    wait_for(lambda: statuses.count(429) == 30, what="thirty refusals")
    os.kill(engine, signal.SIGCONT)

    verdict = why("flooded")

    unload(stack, "flooded")
    for thread in threads:
        thread.join()
    assert verdict["class"] == "over-concurrency"
    assert verdict["evidence"][0].startswith("30 requests got 429")
    assert "10 requests in flight" in verdict["evidence"][2]


@produces("over-concurrency")
def test_requests_over_the_limit_are_named_with_the_limit(stack, why):
    stream, engine = unanswered(stack.running, "crowded", 400)
    statuses: list[int] = []
    others = [threading.Thread(target=lambda: statuses.append(send(stack, "crowded")[0])) for _ in range(2)]
    for other in others:
        other.start()
    wait_for(lambda: 429 in statuses, what="the refusal of the third")
    os.kill(engine, signal.SIGCONT)

    verdict = why("crowded")

    unload(stack, "crowded")
    for thread in (stream, *others):
        thread.join()
    assert verdict["class"] == "over-concurrency"
    assert "got 429" in verdict["evidence"][0]
    assert "2 requests" in verdict["culprit"]


def test_a_burst_that_has_the_model_loaded_is_counted_when_it_is_over(stack, why):
    statuses: list[int] = []
    threads = in_parallel(15, lambda: statuses.append(send(stack, "burst")[0]))
    wait_for(lambda: statuses.count(429) == 5, what="the refusals of the five that are too many")
    # The model is not loaded before: no request finds room.
    engine = wait_for(lambda: (pid := engine_of(stack, "burst")) and is_stopped(pid) and pid, what="a stopped engine")
    os.kill(engine, signal.SIGCONT)
    for thread in threads:
        thread.join()
    assert (statuses.count(429), statuses.count(200)) == (5, 10)

    verdict = why("burst")

    assert verdict["class"] == "over-concurrency"
    assert verdict["evidence"][0].startswith("5 requests got 429")


def test_another_server_on_the_port_of_a_model_is_not_taken_for_its_engine(stack, why):
    with ThreadingHTTPServer(("127.0.0.1", stack.ports["usurped"]), OtherServer) as other:
        serving = threading.Thread(target=other.serve_forever)
        serving.start()
        assert send(stack, "usurped")[0] == 200

        verdict = why("usurped")

        other.shutdown()
        serving.join()
    pid = engine_of(stack, "usurped")
    unload(stack, "usurped")
    assert verdict["class"] == "port-in-use"
    assert f"pid {os.getpid()}" in verdict["culprit"]
    assert f"not its engine (pid {pid})" in verdict["evidence"][0]


def test_the_command_that_unloads_a_model_is_one_that_llama_swap_has(stack):
    program("curl")
    # The embedded engine is on no card, so no real preflight blames it: here only the command is tried.
    chat(stack.endpoint, "Hello.", model="good")
    facts = StackFacts("running", stack.endpoint)

    (command,) = commands(StepOptions(), facts, "unload", model="good")
    subprocess.run(shlex.split(command), check=True, capture_output=True)

    assert not engine_of(stack, "good")


def test_an_engine_that_is_stopped_hangs_until_it_goes_on(stack, why):
    chat(stack.endpoint, "Hello.", model="frozen")
    pid = engine_of(stack, "frozen")
    stop(pid)
    try:
        verdict = why("frozen")
    finally:
        os.kill(pid, signal.SIGCONT)

    assert verdict["class"] == "hung"
    assert f"pid {pid}" in verdict["culprit"]
    assert verdict["next"][0] == f"kill -CONT {pid}"
    assert why("frozen")["class"] == "healthy"


def test_a_request_that_waits_for_the_slot_is_explained_by_the_model_that_has_it(stack, why):
    stream = Stream(stack.endpoint, "tenant", 2000)
    others = in_parallel(8, lambda: completion(stack, "tenant"))
    wait_for(lambda: in_flight(stack, "tenant") > 5, what="work for longer than `corral why` takes")
    waiting = threading.Thread(target=send, args=(stack, "waiting"))
    waiting.start()
    verdict = wait_for(lambda: (found := why("waiting"))["class"] != "healthy" and found, what="a request that waits")
    unload(stack, "tenant")
    for thread in (stream, *others, waiting):
        thread.join()

    assert verdict["class"] == "over-concurrency"
    assert verdict["culprit"].startswith("tenant")
