"""What llama-swap gets of a request, and what a client gets of its answer, byte for byte."""

from __future__ import annotations

import contextlib
import json
import queue
import select
import socket
import stat
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import psutil
import pytest

from corral import door
from tests.support import guard_process as guards
from tests.support.engine_process import free_port, wait_for
from tests.support.guard_process import (
    CLIENTS,
    OK,
    Gate,
    post,
    read_answer,
    request,
    run_guard,
    stub_llama_swap,
    until_closed,
)
from tests.support.hostile import limited

CHAT = "/v1/chat/completions"
QUESTION = {"model": "gpt-4o", "messages": [{"role": "user", "content": "the secret prompt"}]}
STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
FIRST, LAST = b"6\r\nfirst\n\r\n", b"c\r\nlast [DONE]\n\r\n0\r\n\r\n"
FAILED_LOAD = {"src": "llama-swap", "error": "unspecific error: upstream command exited prematurely"}
REFUSAL = """\
preflight: room model=tiny-text need_mib=100 free_mib=900 total_mib=1000: room
preflight: no-room model=tiny-text need_mib=700 free_mib=90 total_mib=1000: a sentence
preflight: holder for=tiny-text pid=20311 name=immich_ml held_mib=800: a sentence
preflight: unattributed for=tiny-text held_mib=110: a sentence
"""


@pytest.fixture
def stub():
    with stub_llama_swap() as stub:
        yield stub


@pytest.fixture
def start(stub, tmp_path):
    """Starts a guard in front of the stub, with changes of its configuration."""
    with contextlib.ExitStack() as stack:
        yield lambda **changes: stack.enter_context(run_guard(tmp_path, stub.port, **changes))


@pytest.fixture
def guard(start):
    return start()


class Flood:
    """An act: an answer without end."""

    sent = 0

    def __call__(self, connection: socket.socket) -> None:
        connection.sendall(STREAM)
        while True:
            connection.sendall(b"10000\r\n" + b"x" * 65536 + b"\r\n")
            self.sent += 65536


def receive(connection: socket.socket, end: bytes) -> bytes:
    received = b""
    while not received.endswith(end):
        data = connection.recv(1 << 16)
        assert data, received
        received += data
    return received


def test_nothing_of_a_clients_head_reaches_llama_swap_but_method_and_path(guard, stub):
    body = json.dumps(QUESTION, indent=1).encode()

    foreign = {"Cookie": "a=b", "X_Forwarded_For": "::1", "Accept": "text/html", "Origin": "http://evil.example"}
    answer = guard.post(body, path=f"{CHAT}?beta=true", X_Api_Key="key-of-first", Connection="keep-alive, X", **foreign)

    assert answer.status == 200
    head = [
        f"POST {CHAT} HTTP/1.1",
        "Host: llama-swap",
        f"Authorization: Bearer {guards.INTERNAL_KEY}",
        "Connection: close",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
    ]
    assert stub.requests == ["\r\n".join([*head, "", ""]).encode() + body]


def test_an_operators_request_keeps_its_query(guard, stub):
    assert guard.get("/logs/stream/tiny-text?no-history", "operator-key").status == 200
    assert stub.requests[0].startswith(b"GET /logs/stream/tiny-text?no-history HTTP/1.1\r\n")


def test_a_client_gets_no_field_that_concerns_connections_origins_or_llama_swaps_keys(guard, stub):
    fields = {
        "Access-Control-Allow-Origin": "*",
        "access-control-allow-credentials": "true",
        "Set-Cookie": "a=b",
        "Keep-Alive": "timeout=5",
        "Connection": "keep-alive",
        "Proxy-Authenticate": "x",
        "Trailer": "x",
        "X-Accel-Buffering": "no",
        "Content-Length": "2",
    }
    head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    stub.answer(CHAT, f"HTTP/1.1 206 Partial\r\n{head}\r\n{{}}".encode())

    answer = guard.post(QUESTION)

    assert (answer.status, answer.body) == (206, b"{}")
    assert answer.fields == {"x-accel-buffering": "no", "content-length": "2", "connection": "close"}


def test_a_stream_is_relayed_while_it_comes(guard, stub):
    stub.acts[CHAT] = gate = Gate(STREAM + FIRST, LAST)
    with guard.connect() as connection:
        connection.sendall(post(QUESTION))

        begun = receive(connection, FIRST)

        assert begun.startswith(b"HTTP/1.1 200 OK\r\n")
        gate.open.set()
        assert receive(connection, LAST) == LAST
    assert guard.next_record()["status"] == 200


def test_an_event_in_two_chunks_is_whole_without_them(guard, stub):
    stub.answer(CHAT, STREAM + b'8\r\ndata: {"\r\n6\r\na": 1}\r\n2\r\n\n\n\r\n0\r\n\r\n')

    assert guard.post(QUESTION).body == b'data: {"a": 1}\n\n'


def test_a_client_that_disconnects_ends_the_request_at_llama_swap(guard, stub):
    def act(connection):
        connection.sendall(STREAM + FIRST)
        until_closed(connection)

    stub.acts[CHAT] = act
    with guard.connect() as connection:
        connection.sendall(post(QUESTION))
        receive(connection, FIRST)

    assert stub.closed.get(timeout=guards.LIMIT_S) == CHAT
    record = guard.next_record()
    assert (record["status"], record["code"]) == (200, "client-closed")


def test_a_client_that_disconnects_before_the_answer_ends_the_request_at_llama_swap(guard, stub):
    stub.acts[CHAT] = until_closed
    with guard.connect() as connection:
        connection.sendall(post(QUESTION))
        wait_for(lambda: stub.requests)

    assert stub.closed.get(timeout=guards.LIMIT_S) == CHAT
    record = guard.next_record()
    assert (record["status"], record["code"]) == (None, "client-closed")


def test_a_stream_that_breaks_off_has_no_clean_end(guard, stub):
    stub.answer(CHAT, STREAM + FIRST)

    with guard.connect() as connection:
        connection.sendall(post(QUESTION))
        received = b""
        while data := connection.recv(1 << 16):
            received += data

    assert received.endswith(FIRST)  # and no chunk of length 0


def test_a_client_that_reads_nothing_stops_llama_swap_and_takes_no_memory(start, stub):
    guard = start(wrap=lambda command: limited(command, memory_mib=300, cpu_seconds=60))
    stub.acts[CHAT] = flood = Flood()
    process = psutil.Process(guard.process.pid)
    with guard.connect() as connection:
        connection.sendall(post(QUESTION))
        last = [0, 0]

        def is_stopped():
            last[:] = [flood.sent, last[1] + 1 if flood.sent == last[0] else 0]
            return flood.sent and last[1] > 50 and process.status() == psutil.STATUS_SLEEPING

        wait_for(is_stopped, what="the end of the flood")
        assert flood.sent < 100 << 20  # the kernel's buffers; the flood has no end
    assert stub.closed.get(timeout=guards.LIMIT_S) == CHAT


def test_a_client_that_never_reads_on_is_cut_off(start, stub):
    guard = start(limits={"stall": 0.1})
    stub.acts[CHAT] = Flood()
    with guard.connect() as connection:
        connection.sendall(post(QUESTION))

        assert stub.closed.get(timeout=guards.LIMIT_S) == CHAT
    assert guard.next_record()["code"] == "client-closed"


def test_a_client_has_its_requests_at_once_and_no_more(guard, stub):
    stub.acts[CHAT] = gate = Gate(STREAM + FIRST, LAST)
    with guard.connect() as one, guard.connect() as two:
        for connection in (one, two):
            connection.sendall(post(QUESTION))
            receive(connection, FIRST)

        refused, other = guard.post(QUESTION), guard.get("/metrics", "key-of-second")

        assert (refused.status, refused.error["code"]) == (429, "too-many-requests")
        assert refused.fields["retry-after"] == "1"
        assert other.status == 200
        gate.open.set()
        read_answer(one)
        read_answer(two)
    assert guard.post(QUESTION).status == 200
    assert len(stub.requests) == 4


def test_requests_that_are_refused_leave_nothing_counted(guard, stub):
    for _ in range(5):
        assert guard.post({"model": "nothing"}).status == 404
        assert guard.post(b"{").status == 400
        with guard.connect() as connection:
            connection.sendall(post(QUESTION)[:-1])

    assert guard.post(QUESTION).status == 200


def test_all_bodies_together_are_bounded(start, stub):
    guard = start(clients={**guards.CLIENTS, "first": {"models": None, "requests": None, "role": "client"}})
    whole = post({"model": "gpt-4o", "prompt": "x" * 950_000})
    with contextlib.ExitStack() as stack:
        held = [stack.enter_context(guard.connect()) for _ in range(5)]
        for connection in held:
            connection.sendall(whole[:-1])
        (refused,) = select.select(held, (), (), guards.LIMIT_S)[0]
        answer = read_answer(refused)
        for connection in held:
            if connection is not refused:
                connection.sendall(whole[-1:])
                assert read_answer(connection).status == 200

    assert (answer.status, answer.error["code"], answer.fields["retry-after"]) == (503, "busy", "1")
    assert guard.send(whole).status == 200


def test_a_refused_load_is_a_503_with_the_figures_and_for_the_operator_with_the_holders(guard, stub):
    stub.fail(500, FAILED_LOAD)
    stub.log("tiny-text", REFUSAL)

    answer, operators = guard.post(QUESTION), guard.post(QUESTION, key="operator-key")

    assert (answer.status, answer.fields["retry-after"]) == (503, "30")
    assert answer.error == {
        "message": "The preflight refused the load: tiny-text needs 700 MiB, 90 MiB of 1000 MiB are free.",
        "type": "server_error",
        "code": "no-room",
        "need_mib": 700,
        "free_mib": 90,
        "total_mib": 1000,
    }
    assert operators.error["holders"] == ["immich_ml (pid 20311, 800 MiB)"]
    assert "immich_ml (pid 20311, 800 MiB)" in operators.error["message"]
    assert [guard.next_record()["code"] for _ in range(2)] == ["no-room", "no-room"]


@pytest.mark.parametrize(
    "log",
    [
        "",
        "no record\n",
        f"{REFUSAL}preflight: room model=tiny-text need_mib=1 free_mib=9 total_mib=9: room\nGGML: secret\n",
    ],
    ids=["nothing", "no record", "a start after it"],
)
def test_another_failed_load_is_a_503_without_figures_and_without_the_log(guard, stub, log):
    stub.fail(500, FAILED_LOAD)
    stub.log("tiny-text", log)

    answer = guard.post(QUESTION, key="operator-key")

    assert (answer.status, answer.fields["retry-after"]) == (503, "30")
    message = "The model tiny-text could not be loaded. See: corral why tiny-text"
    assert answer.error == {"message": message, "type": "server_error", "code": "load-failed"}


@pytest.mark.parametrize(
    "broken", [b"", b"HTTP/1.1 200 OK\r\n\r\n", b"SSH-2.0-x\r\n\r\n", b"HTTP/1.1 200 OK\r\n\r\nzz\r\n", b"x" * 200_000]
)
def test_a_log_that_cannot_be_read_is_no_other_answer(guard, stub, broken):
    stub.fail(500, FAILED_LOAD)
    stub.answer("/logs/stream/tiny-text", broken)

    assert guard.post(QUESTION).error["code"] == "load-failed"


TOO_LONG = "input (9 tokens) is too large to process. increase the physical batch size (current batch size: 8)"


@pytest.mark.parametrize(
    "error",
    [
        {"message": "image input is not supported", "type": "server_error", "code": 500},
        {"message": f"cannot parse: {TOO_LONG}", "type": "server_error", "code": 500},
        {"message": ["input"], "type": "server_error", "code": 500},
        TOO_LONG,
    ],
)
def test_an_error_of_the_engine_stays_as_it_is(guard, stub, error):
    error = {"error": error}
    stub.fail(500, error)

    answer = guard.post(QUESTION)

    assert (answer.status, json.loads(answer.body)) == (500, error)
    assert "retry-after" not in answer.fields


def test_an_engine_that_ended_is_named(guard, stub):
    stub.fail(502, None)

    answer = guard.post(QUESTION)

    assert (answer.status, answer.error["code"], answer.fields["retry-after"]) == (502, "engine-ended", "30")


@pytest.fixture
def engine():
    """The address of an engine that is there."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


def lists_engine(stub, address, state="ready"):
    """llama-swap lists the model's engine in *state*."""
    running(stub, ("tiny-text", state, address))


def fails_at_first(stub, times):
    """The first *times* requests get the bare 502 of a connection that the engine had closed."""
    left = iter([b"HTTP/1.1 502 x\r\nContent-Length: 0\r\n\r\n"] * times)
    stub.acts[CHAT] = lambda connection: connection.sendall(next(left, OK))


def forwarded(stub):
    return [one for one in stub.requests if one.startswith(b"POST")]


@pytest.mark.parametrize("times", [1, 3])
def test_a_request_that_never_reached_its_engine_is_forwarded_again(guard, stub, engine, times):
    lists_engine(stub, engine)
    fails_at_first(stub, times)

    assert guard.post(QUESTION).status == 200
    assert forwarded(stub) == [forwarded(stub)[0]] * (times + 1)
    assert guard.next_record()["retries"] == times


def test_it_is_forwarded_four_times_at_most(guard, stub, engine):
    lists_engine(stub, engine)
    fails_at_first(stub, 99)

    answer = guard.post(QUESTION)

    assert (answer.status, answer.error["code"]) == (502, "engine-ended")
    assert len(forwarded(stub)) == 4


@pytest.mark.parametrize("state", ["stopped", "starting", "stopping"])
def test_a_request_whose_engine_ended_is_forwarded_once(guard, stub, engine, state):
    """It may be what ended the engine."""
    lists_engine(stub, engine, state)
    fails_at_first(stub, 1)

    assert guard.post(QUESTION).error["code"] == "engine-ended"
    assert len(forwarded(stub)) == 1


def test_a_request_whose_engine_is_dead_and_still_listed_is_forwarded_once(guard, stub):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"http://127.0.0.1:{listener.getsockname()[1]}"
    lists_engine(stub, address)
    fails_at_first(stub, 1)

    assert guard.post(QUESTION).error["code"] == "engine-ended"
    assert len(forwarded(stub)) == 1


def test_a_body_for_which_there_is_no_room_is_forwarded_once(start, stub, engine):
    guard = start(body_mib=1)
    lists_engine(stub, engine)
    large = {"model": "gpt-4o", "prompt": "x" * 900_000}
    gate, reached = Gate(b"", OK), threading.Event()

    def held(connection):
        reached.set()
        gate(connection)

    with guard.connect() as first, guard.connect() as second:
        stub.acts[CHAT] = held
        first.sendall(post(large))
        assert reached.wait(guards.LIMIT_S)
        fails_at_first(stub, 1)
        second.sendall(post(large))
        assert read_answer(second).error["code"] == "engine-ended"
        gate.open.set()
        assert read_answer(first).status == 200
    fails_at_first(stub, 1)
    assert guard.post(large).status == 200


def test_a_client_that_leaves_is_counted_out_once(start, stub):
    """Its key may have one request at a time, however many have left before."""
    one = {**guards.CLIENTS, "first": {"models": None, "requests": 1, "role": "client"}}
    guard = start(clients=one)
    reached = queue.Queue()

    def act(connection):
        reached.put(connection)
        until_closed(connection)

    stub.acts[CHAT] = act
    for _ in range(3):
        with guard.connect() as leaving:
            leaving.sendall(post(QUESTION))
            reached.get(timeout=guards.LIMIT_S)
        assert guard.next_record()["code"] == "client-closed"
        stub.closed.get(timeout=guards.LIMIT_S)
    with guard.connect() as first:
        first.sendall(post(QUESTION))
        reached.get(timeout=guards.LIMIT_S)
        assert guard.post(QUESTION).status == 429
    assert guard.next_record()["code"] == "too-many-requests"
    assert guard.next_record()["code"] == "client-closed"
    assert not [one for one in guard.records if one.get("code") == "llama-swap-down"]


def test_a_client_that_leaves_in_the_pause_is_forwarded_no_more(guard, stub):
    listed = threading.Event()

    def list_running(connection):
        listed.set()
        until_closed(connection)

    stub.acts["/running"] = list_running
    fails_at_first(stub, 1)
    with guard.connect() as connection:
        connection.sendall(post(QUESTION))
        assert listed.wait(guards.LIMIT_S)
    assert guard.next_record()["code"] == "client-closed"
    assert stub.closed.get(timeout=guards.LIMIT_S) == "/running"
    assert len(forwarded(stub)) == 1


def test_a_key_that_llama_swap_refuses_is_not_the_clients_fault(guard, stub):
    stub.fail(401, {"src": "llama-swap", "error": "unauthorized"})

    answer = guard.post(QUESTION)

    assert (answer.status, answer.error["code"]) == (502, "internal-key")
    assert "www-authenticate" not in answer.fields


@pytest.mark.parametrize(
    "broken",
    [
        b"",
        b"HTTP/1.1 200 OK\r\nContent-Le",
        b"SSH-2.0-OpenSSH\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nA: b\r\n folded\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 101 + b"\r\n{}",
        b"HTTP/1.1 200 OK\r\nA: " + b"b" * 70_000 + b"\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nA: " + b"b" * 70_000,
    ],
    ids=range(9),
)
def test_an_answer_that_is_no_http_is_a_502(guard, stub, broken):
    stub.answer(CHAT, broken)

    answer = guard.post(QUESTION)

    assert (answer.status, answer.error["code"]) == (502, "llama-swap-down")


def test_without_llama_swap_every_path_is_a_502(tmp_path):
    with run_guard(tmp_path, free_port()) as guard:
        answers = [guard.get("/health"), guard.post(QUESTION), guard.get("/v1/models", "key-of-second")]

    assert [(one.status, one.error["code"]) for one in answers] == [(502, "llama-swap-down")] * 3


def test_a_llama_swap_that_does_not_answer_at_once_is_a_504_where_it_should(start, stub):
    guard = start(limits={"quick_answer": 0.05})
    stub.acts["/health"] = until_closed
    stub.acts[CHAT] = gate = Gate(b"", OK)

    with guard.connect() as loading:  # a load may take its time
        loading.sendall(post(QUESTION))
        assert (guard.get("/health").status, stub.closed.get(timeout=guards.LIMIT_S)) == (504, "/health")
        gate.open.set()
        assert read_answer(loading).status == 200


def test_a_pod_that_does_not_answer_is_a_503_without_its_address(guard, stub):
    error = b"peer proxy error: dial tcp 10.0.0.7:8000: connect: connection refused\n"
    head = b"HTTP/1.1 502 Bad Gateway\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n" % len(error)
    stub.answer(CHAT, head + error)

    answer = guard.post(QUESTION)

    assert (answer.status, answer.error["code"]) == (503, "pod-unreachable")
    assert (answer.fields["retry-after"], b"10.0.0.7" in answer.body) == ("30", False)


@pytest.mark.parametrize("framing", ["Content-Length: %d\r\n\r\n", "Transfer-Encoding: x\r\n\r\n"])
def test_a_client_sees_the_models_that_it_may_use(guard, stub, framing):
    names = ("gpt-4o", "tiny-text", "tiny-vision", "secret")  # an alias is listed of what vLLM serves
    models = json.dumps({"object": "list", "data": [{"id": name} for name in names]})
    stub.answer("/v1/models", f"HTTP/1.1 200 OK\r\n{framing.replace('%d', str(len(models)))}{models}".encode())

    second, first = guard.get("/v1/models", "key-of-second"), guard.get("/v1/models", "key-of-first")

    assert json.loads(second.body) == {"object": "list", "data": [{"id": "tiny-text"}]}
    assert json.loads(first.body) == {"object": "list", "data": [{"id": "tiny-text"}, {"id": "tiny-vision"}]}
    assert b"HTTP/1.0\r\n" in stub.requests[0]


@pytest.mark.parametrize("body", [b"", b"[]", b'{"data": 1}', b'{"data": [1]}', b'{"data": [{}]}', b"\xff"])
def test_a_malformed_list_of_models_is_a_502(guard, stub, body):
    stub.answer("/v1/models", b"HTTP/1.1 200 OK\r\n\r\n" + body)

    assert guard.get("/v1/models", "key-of-second").status == 502


def test_a_request_may_wait_for_permission_to_send_its_body(guard, stub):
    raw = post(QUESTION, Expect="100-continue")
    head, _, body = raw.partition(b"\r\n\r\n")
    with guard.connect() as connection:
        connection.sendall(head + b"\r\n\r\n")

        assert receive(connection, b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(body)
        assert read_answer(connection).status == 200
    assert b"Expect" not in stub.requests[0]


def test_a_large_body_arrives_whole(start, stub):
    guard = start(body_mib=48)
    body = json.dumps({**QUESTION, "image_url": "data:image/png;base64," + "QUJD" * (8 << 20)}).encode()

    assert guard.post(body).status == 200
    assert stub.requests[0].endswith(b"\r\n\r\n" + body)


def test_a_record_names_the_client_and_has_neither_keys_nor_prompts(guard, stub):
    guard.post(QUESTION)
    guard.get("/running?key=secret-in-a-query", "operator-key")
    guard.get("/nothing", "a-foreign-key")
    records = [guard.next_record() for _ in range(3)]

    names = ("client", "model", "method", "path", "status", "code")
    assert [[one[name] for name in names] for one in records] == [
        ["first", "tiny-text", "POST", CHAT, 200, None],
        ["operator", None, "GET", "/running", 200, None],
        [None, None, "GET", "/nothing", 401, "key-unknown"],
    ]
    assert records[0]["bytes"] > len(OK)
    assert 0 <= records[0]["first_byte_s"] <= records[0]["seconds"]
    text = json.dumps(guard.records)
    assert not [
        word for word in ("secret", "-key", "key-of", guards.INTERNAL_KEY) if word in text.replace("key-unknown", "")
    ]


def test_only_a_probe_that_fails_has_a_record(guard, stub):
    assert guard.get("/health").status == 200
    stub.fail(503, None, path="/health")
    assert guard.get("/health").status == 503

    assert guard.next_record()["status"] == 503


def test_keys_that_are_replaced_hold_without_a_restart_and_break_no_stream(guard, stub):
    stub.acts[CHAT] = gate = Gate(STREAM + FIRST, LAST)
    stub.fail(200, {"data": []}, path="/v1/models")
    with guard.connect() as connection:
        connection.sendall(post(QUESTION))
        receive(connection, FIRST)

        guard.set_keys(first=["new-key"])

        assert guard.post(QUESTION).status == 401
        assert guard.get("/v1/models", "new-key").status == 200
        gate.open.set()
        assert receive(connection, LAST) == LAST
    guard.keys.write_text("{")
    assert guard.get("/v1/models", "new-key").status == 200
    assert "is not used, the keys before it stay valid" in guard.next_record("keys-kept")["reason"]


def test_without_keys_every_request_is_the_operators(start, stub):
    guard = start(keys=None, clients={"local": {"models": None, "requests": None, "role": "operator"}})

    assert [guard.post(QUESTION, key="").status, guard.get("/running").status] == [200, 200]
    assert guard.next_record()["client"] == "local"


def test_a_unix_socket_is_its_users_alone(start, stub):
    with tempfile.TemporaryDirectory() as folder:  # tmp_path may be longer than a socket's path can be
        path = Path(folder) / "guard.sock"
        guard = start(listen={"unix": str(path)})

        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert guard.post(QUESTION).status == 200


def test_sigterm_lets_an_answer_end_and_accepts_nothing_new(guard, stub):
    stub.acts[CHAT] = gate = Gate(STREAM + FIRST, LAST)
    with guard.connect() as connection, guard.connect() as idle:
        connection.sendall(post(QUESTION))
        receive(connection, FIRST)

        guard.process.terminate()
        guard.next_record("stopping")

        assert idle.recv(1) == b""
        with pytest.raises(ConnectionRefusedError):
            wait_for(lambda: guard.connect().close())
        gate.open.set()
        assert receive(connection, LAST) == LAST
        assert guard.process.wait(guards.LIMIT_S) == 0


def test_sigterm_cuts_off_what_takes_longer_than_the_drain(start, stub):
    guard = start(drain_seconds=0)
    stub.acts[CHAT] = until_closed
    with guard.connect() as connection:
        connection.sendall(post(QUESTION))
        wait_for(lambda: stub.requests)

        assert guard.stop() == 0
        assert read_answer(connection).status == 0


@pytest.mark.parametrize(
    ("limits", "sent", "status"),
    [
        ({"head": 0.05}, b"", 408),
        ({"head": 0.05}, b"GET /health HTTP/1.1\r\nHost: x\r\n", 408),
        (
            {"body": 0.05},
            request("POST", CHAT, key="key-of-first", Content_Length="9", Content_Type="application/json"),
            408,
        ),
    ],
    ids=["nothing", "half a head", "no body"],
)
def test_a_request_that_does_not_come_is_ended(start, stub, limits, sent, status):
    answer = start(limits=limits).send(sent)

    assert (answer.status, answer.error["code"], stub.requests) == (status, "request-timeout", [])


def test_a_refusal_can_be_read_by_a_client_that_still_sends(start, stub):
    guard = start()
    with guard.connect() as connection:
        connection.sendall(
            request("POST", CHAT, key="wrong", Content_Length="60000000", Content_Type="application/json")
        )
        for _ in range(200):
            with contextlib.suppress(OSError):
                connection.sendall(b"x" * 65536)

        assert read_answer(connection).status == 401


def test_a_client_that_ignores_its_refusal_is_cut_off(start, stub):
    guard = start(limits={"linger": 0.05})
    with guard.connect() as connection:
        connection.sendall(request("GET", "/nothing", key="key-of-first"))
        assert read_answer(connection).status == 404
        with pytest.raises(OSError):  # noqa: PT012 - it takes a while until the kernel knows
            while True:
                connection.sendall(b"x" * 65536)


def run(*words, **environment):
    place = {"PYTHONPATH": str(Path(door.__file__).parents[1]), **environment}
    command = [sys.executable, "-S", "-s", "-W", "error", "-m", "door", *words]
    return subprocess.run(command, env=place, capture_output=True, text=True, timeout=guards.LIMIT_S, check=False)


def test_a_start_that_fails_says_why_in_one_line(tmp_path):
    config = tmp_path / "guard.json"
    missing = run(str(config))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        place = {"host": "127.0.0.1", "port": taken.getsockname()[1]}
        config.write_text(json.dumps(guards.settings(tmp_path, free_port(), listen=place)))
        occupied = run(str(config))
    config.write_text(json.dumps(guards.settings(tmp_path, free_port(), keys=str(tmp_path / "nothing"))))
    keyless = run(str(config))

    assert (missing.returncode, missing.stderr) == (2, f"door: {config} cannot be read: No such file or directory.\n")
    assert (occupied.returncode, occupied.stderr.count("\n")) == (3, 1)
    assert "Address already in use" in occupied.stderr
    assert (keyless.returncode, keyless.stderr.count("\n")) == (2, 1)
    assert f"{tmp_path}/nothing" in keyless.stderr


MONITOR = {"operator": CLIENTS["operator"], "first": {"models": [], "requests": None, "role": "monitor"}}


def running(stub, *models):
    """llama-swap has *models*, each with a state and the address of its engine."""
    listed = [{"model": model, "state": state, "proxy": proxy} for model, state, proxy in models]
    stub.answer("/running", b"HTTP/1.1 200 OK\r\n\r\n" + json.dumps({"running": listed}).encode())


@pytest.mark.parametrize(
    ("state", "proxy"),
    [
        ("starting", "http://127.0.0.1:%d"),
        ("ready", "http://127.0.0.2:%d"),
        ("ready", "http://127.0.0.1:%d/x"),
        ("ready", "http://x@127.0.0.1:%d"),
        ("ready", "https://127.0.0.1:%d"),
        ("ready", ""),
    ],
)
def test_an_engine_that_is_not_ready_or_not_of_this_machine_is_not_asked(start, stub, state, proxy):
    guard = start(clients=MONITOR)
    running(stub, ("tiny-text", state, proxy % stub.port if "%d" in proxy else proxy))
    answer = guard.get("/engine-metrics/tiny-text", "key-of-first")
    assert (answer.status, answer.error["code"]) == (404, "not-loaded")
    assert not [one for one in stub.requests if b"GET /metrics " in one]


@pytest.mark.parametrize(
    "broken",
    [
        b"HTTP/1.1 501 Not Implemented\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * (2 << 20),
        b"no HTTP\r\n\r\n",
        b"",
    ],
    ids=["status", "size", "head", "nothing"],
)
def test_an_engine_that_does_not_report_as_it_should_is_an_error_of_its_own(start, stub, broken):
    guard = start(clients=MONITOR)
    running(stub, ("tiny-text", "ready", f"http://127.0.0.1:{stub.port}"))
    stub.answer("/metrics", broken)
    answer = guard.get("/engine-metrics/tiny-text", "key-of-first")
    assert (answer.status, answer.error["code"]) == (502, "engine-silent")


def test_the_metrics_of_an_engine_are_found_by_each_name_of_its_model(start, stub):
    guard = start(clients=MONITOR)
    running(stub, ("tiny-text", "ready", f"http://127.0.0.1:{stub.port}"))
    stub.answer("/metrics", b"HTTP/1.1 200 OK\r\n\r\nllamacpp:requests_processing 1\n")
    assert guard.get("/engine-metrics/gpt-4o", "key-of-first").body == b"llamacpp:requests_processing 1\n"


def test_a_llama_swap_that_does_not_list_what_runs_is_down(start, stub):
    guard = start(clients=MONITOR)
    stub.answer("/running", b"HTTP/1.1 200 OK\r\n\r\nnothing")
    answer = guard.get("/engine-metrics/tiny-text", "key-of-first")
    assert (answer.status, answer.error["code"]) == (502, "llama-swap-down")


IDLE = b"HTTP/1.1 200 OK\r\n\r\nllamacpp:requests_processing 0\nllamacpp:requests_deferred 0\n"


def probed(guard):
    return guard.send(request("POST", "/engine-probe/tiny-text", key="key-of-first"))


@pytest.mark.parametrize("figures", [b"requests_processing 1", b"requests_processing 0\nllamacpp:requests_deferred 2"])
def test_an_engine_that_serves_others_is_not_probed(start, stub, figures):
    guard = start(clients=MONITOR)
    running(stub, ("tiny-text", "ready", f"http://127.0.0.1:{stub.port}"))
    stub.answer("/metrics", b"HTTP/1.1 200 OK\r\n\r\nllamacpp:" + figures + b"\n")
    assert (probed(guard).status, probed(guard).error["code"]) == (409, "engine-busy")
    assert not [one for one in stub.requests if one.startswith(b"POST ")]


@pytest.mark.parametrize("body", ['{"usage": {"completion_tokens": 0}}', "{}", "nothing", '{"usage": null}'])
def test_an_answer_without_a_token_is_none(start, stub, body):
    guard = start(clients=MONITOR)
    running(stub, ("tiny-text", "ready", f"http://127.0.0.1:{stub.port}"))
    stub.answer("/metrics", IDLE)
    stub.answer(CHAT, f"HTTP/1.1 200 OK\r\n\r\n{body}".encode())
    assert (probed(guard).status, probed(guard).error["code"]) == (502, "engine-silent")


def test_an_engine_that_was_unloaded_during_its_probe_is_no_fault(start, stub):
    guard = start(clients=MONITOR)
    running(stub, ("tiny-text", "ready", f"http://127.0.0.1:{stub.port}"))
    stub.answer("/metrics", IDLE)
    stub.acts[CHAT] = lambda _connection: running(stub)
    assert (probed(guard).status, probed(guard).error["code"]) == (404, "not-loaded")


def test_a_probe_has_its_tokens_and_asks_nothing_of_the_monitors(start, stub):
    guard = start(clients=MONITOR)
    running(stub, ("tiny-text", "ready", f"http://127.0.0.1:{stub.port}"))
    stub.answer("/metrics", IDLE)
    stub.answer(CHAT, b'HTTP/1.1 200 OK\r\n\r\n{"usage": {"completion_tokens": 4}}')
    body = b'{"messages": [{"role": "user", "content": "a long story"}]}'
    answer = guard.post(body, path="/engine-probe/tiny-text")
    assert json.loads(answer.body)["completion_tokens"] == 4
    (asked,) = [one for one in stub.requests if one.startswith(b"POST ")]
    assert b"a long story" not in asked
    assert b'"max_tokens": 4' in asked
