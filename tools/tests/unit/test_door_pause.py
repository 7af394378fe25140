"""A pause: new requests of models wait in the guard as long as an operator reads its answer; llama-swap is a stub."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import socket
import tempfile
from pathlib import Path

import pytest

from corral.door import server
from tests.support.engine_process import free_port, wait_for
from tests.support.guard_process import OK, Gate, post, read_answer, request, run_guard, stub_llama_swap

CHAT = "/v1/chat/completions"


@pytest.fixture
def stub():
    with stub_llama_swap() as stub:
        yield stub


@pytest.fixture
def guard(stub, tmp_path):
    with run_guard(tmp_path, stub.port) as guard:
        yield guard


@contextlib.contextmanager
def paused(guard):
    with guard.connect() as connection:
        connection.sendall(request("POST", "/pause", key="operator-key"))
        received = b""
        while not received.endswith(b"\r\n\r\npaused\n"):
            more = connection.recv(1 << 10)
            assert more, received
            received += more
        assert received.startswith(b"HTTP/1.1 200 ")
        yield


def pause_of(guard):
    return json.loads(guard.get("/pause", key="operator-key").body)


def at_socket(scope, stub, folder, tmp_path, name):
    """A guard at the socket of *folder*, which it takes over where another one listens there."""
    (tmp_path / name).mkdir()
    listen = {"unix": str(Path(folder) / "guard.sock")}
    return scope.enter_context(run_guard(tmp_path / name, stub.port, listen=listen, drain_seconds=60))


def chats(stub):
    return [one for one in stub.requests if one.split(b" ")[1] == CHAT.encode()]


def test_a_request_of_any_model_waits_until_the_last_pause_ends_and_other_paths_answer(guard, stub):
    with guard.connect() as waiting, guard.connect() as other:
        with paused(guard):
            with paused(guard):
                waiting.sendall(post({"model": "tiny-text"}))
                other.sendall(post({"model": "tiny-vision"}))
                assert guard.get("/health").status == 200
            assert guard.get("/running", key="operator-key").status == 200
            assert guard.post({"model": "none"}, key="operator-key").status == 404
            assert chats(stub) == []
        assert [read_answer(one).status for one in (waiting, other)] == [200, 200]


def test_an_answer_under_way_ends_during_a_pause(guard, stub):
    gate = stub.acts[CHAT] = Gate(OK[:-2], OK[-2:])
    with guard.connect() as connection:
        connection.sendall(post({"model": "tiny-text"}))
        assert connection.recv(1)
        with paused(guard):
            gate.open.set()
            assert read_answer(connection).body == b""  # its first byte was read above
            assert guard.next_record()["status"] == 200


def test_a_client_that_leaves_while_it_waits_is_not_forwarded(guard, stub):
    with paused(guard):
        with guard.connect() as leaving:
            leaving.sendall(post({"model": "tiny-text"}))
            assert guard.get("/health").status == 200  # is read after the request before it
        assert guard.next_record()["code"] == "client-closed"
    assert guard.post({"model": "tiny-vision"}).status == 200
    assert len(chats(stub)) == 1


def test_a_pause_that_its_client_never_ends_has_a_limit(stub, tmp_path):
    with run_guard(tmp_path, stub.port, limits={"pause": 0.2}) as guard, guard.connect() as connection:
        connection.sendall(request("POST", "/pause", key="operator-key"))
        assert read_answer(connection).status == 200  # to the end of the connection
        assert guard.next_record()["code"] == "pause-over"
        assert guard.post({"model": "tiny-text"}).status == 200


def test_an_operator_can_read_how_long_a_pause_has_lasted_and_how_many_wait(guard):
    assert pause_of(guard) == {"seconds": None, "waiting": 0}
    with paused(guard), guard.connect() as waiting:
        waiting.sendall(post({"model": "tiny-text"}))
        wait_for(lambda: pause_of(guard)["waiting"], what="the request")
        found = pause_of(guard)
        assert found["waiting"] == 1
        assert found["seconds"] >= 0
        assert guard.get("/pause", key="key-of-first").status == 403
    wait_for(lambda: pause_of(guard) == {"seconds": None, "waiting": 0}, what="the end of the pause")


@pytest.mark.parametrize(("key", "status"), [("key-of-first", 403), ("", 401)])
def test_only_an_operator_may_pause_the_others(guard, key, status):
    assert guard.send(request("POST", "/pause", key=key)).status == status
    assert guard.post({"model": "tiny-text"}).status == 200


def test_a_guard_that_ends_forwards_what_waits_and_ends_the_pause(guard, stub):
    with guard.connect() as waiting, paused(guard):
        waiting.sendall(post({"model": "tiny-text"}))
        wait_for(lambda: guard.get("/health").status == 200)
        guard.process.terminate()
        assert read_answer(waiting).status == 200
        assert guard.process.wait(60) == 0


def test_what_waits_in_a_pause_when_the_stack_is_stopped_is_refused_with_that_reason(tmp_path):
    with run_guard(tmp_path, free_port()) as guard, guard.connect() as waiting, paused(guard):
        waiting.sendall(post({"model": "tiny-text"}))
        wait_for(lambda: pause_of(guard)["waiting"], what="the request")
        guard.process.terminate()
        answer = read_answer(waiting)
        assert (answer.status, answer.error["code"]) == (503, "stopping")
        assert answer.fields["retry-after"]
        assert guard.process.wait(60) == 0


def test_a_guard_takes_a_socket_over_and_the_one_before_ends_with_its_last_answer(stub, tmp_path):
    gate = Gate(OK[:-2], OK[-2:])
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as scope:
        before = at_socket(scope, stub, folder, tmp_path, "before")
        stub.acts[CHAT] = gate
        connection = scope.enter_context(before.connect())
        connection.sendall(post({"model": "tiny-text"}))
        assert connection.recv(1)
        stub.answer(CHAT, OK)
        after = at_socket(scope, stub, folder, tmp_path, "after")
        assert after.post({"model": "tiny-text"}).status == 200
        assert after.next_record()["status"] == 200
        before.process.terminate()
        before.next_record("stopping")
        gate.open.set()
        read_answer(connection)
        assert before.next_record()["status"] == 200
        assert before.process.wait(60) == 0
        assert after.post({"model": "tiny-text"}).status == 200
        assert sorted(Path(folder).iterdir()) == [Path(folder) / "guard.sock"]


@pytest.mark.parametrize("others", [True, False], ids=["beside others", "alone"])
def test_what_has_connected_to_a_guard_that_is_replaced_is_answered_by_it(stub, tmp_path, others):
    """A request waits to be accepted; others: one is unread, and one is sent when the guard ends already."""
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as scope:
        before = at_socket(scope, stub, folder, tmp_path, "before")
        unread = [scope.enter_context(before.connect())] * others
        assert before.get("/health").status == 200  # is accepted after it
        before.process.send_signal(signal.SIGSTOP)
        queued, *late = [scope.enter_context(before.connect()) for _ in range(1 + others)]
        for connection in (*unread, queued):
            connection.sendall(post({"model": "tiny-text"}))
        at_socket(scope, stub, folder, tmp_path, "after")
        before.process.terminate()
        before.process.send_signal(signal.SIGCONT)
        before.next_record("stopping")
        for connection in late:
            connection.sendall(post({"model": "tiny-text"}, key="operator-key"))
        answers = [read_answer(one).status for one in (*unread, queued, *late)]
        assert answers == [200] * (3 if others else 1)
        assert before.process.wait(60) == 0


def test_a_connection_that_nothing_has_accepted_is_accepted_before_the_socket_is_closed():
    async def made_by_the_end():
        made = []

        class Protocol(asyncio.Protocol):
            def connection_made(self, transport):
                made.append(transport)

        listener = socket.create_server(("127.0.0.1", 0))
        ending = await asyncio.get_running_loop().create_server(Protocol, sock=listener)
        with socket.create_connection(listener.getsockname()):
            await server._accept_queued(listener)
            ending.close()
            for transport in made:
                transport.abort()
        return len(made)

    assert asyncio.run(made_by_the_end()) == 1
