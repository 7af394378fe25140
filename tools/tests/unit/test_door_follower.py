"""Following llama-swap's events, by a stub whose streams break off, or are none: what is known of models then."""

from __future__ import annotations

import json
import queue

import pytest

from tests.support.engine_process import wait_for
from tests.support.guard_process import CLIENTS, LIMIT_S, run_guard, stub_llama_swap

MONITOR = {"operator": CLIENTS["operator"], "first": {"models": [], "requests": None, "role": "monitor"}}
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
END = b"0\r\n\r\n"
DIED = "2026-01-01T00:00:00Z [WARN] <tiny-text> upstream process exited unexpectedly\n"
IDLE = "2026-01-01T00:00:00Z [INFO] <tiny-text> Unloading model, TTL of 4s reached\n"


def chunk(data: bytes) -> bytes:
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


def event(kind: str, data: object) -> bytes:
    text = json.dumps({"type": kind, "data": json.dumps(data)}, separators=(",", ":"))
    return f"event:message\ndata:{text}\n\n".encode()


def states(**of_models: str) -> bytes:
    listed = [{"id": model.replace("_", "-"), "state": state} for model, state in of_models.items()]
    return chunk(event("modelStatus", [*listed, {"id": "of-a-peer", "state": ""}]))


def log(text: str, source: str = "proxy") -> bytes:
    return chunk(event("logData", {"source": source, "data": text}))


class Streams:
    """Answers each request for the events with the parts that a test gives, until it gives None."""

    def __init__(self, stub):
        self.parts: queue.Queue[bytes | None] = queue.Queue()
        stub.acts["/api/events"] = self

    def __call__(self, connection):
        while (part := self.parts.get(timeout=LIMIT_S)) is not None:
            connection.sendall(part)

    def send(self, *parts):
        for part in parts:
            self.parts.put(part)


@pytest.fixture
def stub():
    with stub_llama_swap() as stub:
        yield stub


@pytest.fixture
def streams(stub):
    return Streams(stub)


@pytest.fixture
def guard(stub, streams, tmp_path):
    with run_guard(tmp_path, stub.port, clients=MONITOR) as guard:
        yield guard
        streams.send(*[None] * 9)  # for each stream that it may still begin


def changes(guard):
    """What a monitor gets; None: they are not followed."""
    answer = guard.get("/model-changes", "key-of-first")
    if answer.status == 503:
        assert (answer.error["code"], answer.fields["retry-after"]) == ("not-followed", "1")
        return None
    assert answer.status == 200, answer
    return [(one["model"], one["cause"] or one["kind"]) for one in json.loads(answer.body)["changes"]]


def followed(guard):
    return wait_for(lambda: [changes(guard)] if changes(guard) is not None else None, what="the stream")[0]


def test_nothing_is_followed_before_the_first_question(guard, stub):
    assert guard.get("/running", "key-of-first").status == 200
    assert [one for one in stub.requests if b"/api/events" in one] == []
    assert changes(guard) is None


def test_until_the_first_states_are_there_nothing_is_known(guard, streams):
    streams.send(HEAD, log(IDLE))
    assert changes(guard) is None
    streams.send(states(tiny_text="ready"))
    assert followed(guard) == []


def test_the_log_of_before_a_stream_explains_nothing_after_it(guard, streams):
    streams.send(HEAD, states(tiny_text="ready"))
    assert followed(guard) == []
    streams.send(None)
    wait_for(lambda: changes(guard) is None, what="the break")
    streams.send(HEAD, log(IDLE), states(tiny_text="ready"), states(), log(DIED))
    wait_for(lambda: changes(guard) == [("tiny-text", "died")], what="the unload")


def test_an_event_in_several_chunks_and_several_events_in_one_are_each_read(guard, streams):
    first, second = event("modelStatus", [{"id": "tiny-text", "state": "ready"}]), event("modelStatus", [])
    late = event("logData", {"source": "proxy", "data": IDLE})
    streams.send(HEAD, chunk(first[:20]), chunk(first[20:]), chunk(late + second))
    wait_for(lambda: changes(guard) == [("tiny-text", "idle")], what="the unload")


def test_a_line_of_an_engine_is_none_of_llama_swap(guard, streams):
    streams.send(HEAD, states(tiny_text="ready"), log(IDLE, "upstream"), states(), log(IDLE.replace("text", "vision")))
    streams.send(states(tiny_vision="starting"), states(tiny_vision="ready"))
    wait_for(lambda: ("tiny-text", "evicted") in (changes(guard) or ()), what="the unload")


def test_a_stream_that_ends_is_the_end_of_all_models_and_one_that_breaks_off_is_unknown(guard, streams):
    streams.send(HEAD, states(tiny_text="ready"))
    assert followed(guard) == []
    streams.send(END, None)
    wait_for(lambda: changes(guard) is None, what="the end")
    streams.send(HEAD, states(tiny_vision="ready"))
    assert followed(guard) == [("tiny-text", "requested"), ("tiny-vision", "loaded")]
    streams.send(None)
    wait_for(lambda: changes(guard) is None, what="the break")
    streams.send(HEAD, states())
    assert followed(guard)[2:] == [("tiny-vision", "unknown")]


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", id="no such path"),
        pytest.param(HEAD + b"zz\r\n", id="no chunk"),
        pytest.param(HEAD + chunk(b"data:[]\n\n"), id="no event"),
        pytest.param(HEAD + chunk(b"data:\xff\n\n"), id="no text"),
        pytest.param(HEAD + chunk(event("modelStatus", {"a": 1})), id="no list of models"),
        pytest.param(HEAD + b"7fffffff\r\n", id="too long"),
        pytest.param(b"", id="nothing"),
    ],
)
def test_what_is_no_stream_of_llama_swap_is_unknown_and_asked_for_again(guard, streams, stub, answer):
    streams.send(answer, None)
    assert changes(guard) is None
    streams.send(HEAD, states())
    assert followed(guard) == []
    assert len([one for one in stub.requests if b"/api/events" in one]) == 2
