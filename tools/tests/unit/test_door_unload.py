"""A model that serves no request is unloaded for its neighbours, and no request is cut by that.

The engine and llama-swap are one stub: what they report at one moment, and an unloading that lasts, the real ones
cannot be made to show.  The real ones are in tests/stack.
"""

from __future__ import annotations

import json

import pytest

from tests.support.engine_process import wait_for
from tests.support.guard_process import CLIENTS, OK, Gate, post, read_answer, request, run_guard, stub_llama_swap

CHAT = "/v1/chat/completions"
WATCHING = {name: {"models": [], "requests": None, "role": name} for name in ("monitor", "steward")}
UNLOAD = "/api/models/unload/tiny-text"


def yielded(guard, name="tiny-text", key="key-of-steward"):
    return guard.send(request("POST", f"/engine-yield/{name}", key=key))


@pytest.fixture
def stub():
    """A llama-swap with an idle engine of tiny-text."""
    with stub_llama_swap() as stub:
        running(stub, "ready")
        reports(stub, b"requests_processing 0\nllamacpp:requests_deferred 0")
        yield stub


@pytest.fixture
def guard(stub, tmp_path):
    with run_guard(tmp_path, stub.port, clients=CLIENTS | WATCHING) as guard:
        keys = {name: [f"key-of-{name}"] for name in ("first", "monitor", "steward")}
        guard.set_keys(operator=["operator-key"], **keys)
        yield guard


def running(stub, state):
    listed = [{"model": "tiny-text", "state": state, "proxy": f"http://127.0.0.1:{stub.port}"}]
    stub.answer("/running", b"HTTP/1.1 200 OK\r\n\r\n" + json.dumps({"running": listed}).encode())


def reports(stub, figures):
    """The engine has these *figures*."""
    stub.answer("/metrics", b"HTTP/1.1 200 OK\r\n\r\nllamacpp:" + figures + b"\n")


def sent(stub, path):
    return [one for one in stub.requests if one.split(b" ")[1] == path.encode()]


def test_an_idle_model_is_unloaded_by_each_of_its_names_and_the_log_has_it(guard, stub):
    for name in ("tiny-text", "gpt-4o"):
        answer = yielded(guard, name)
        assert (answer.status, json.loads(answer.body)["model"]) == (200, "tiny-text")
        record = guard.next_record()
        assert (record["client"], record["path"], record["status"]) == ("steward", f"/engine-yield/{name}", 200)
    assert all(b"\r\nUser-Agent: corral-yield\r\n" in one for one in sent(stub, UNLOAD))
    assert [one.split(b"\r\n")[0] for one in sent(stub, UNLOAD)] == [f"POST {UNLOAD} HTTP/1.0".encode()] * 2


@pytest.mark.parametrize("client", ["first", "monitor"])
def test_a_client_and_a_monitor_may_not_have_a_model_unloaded_and_an_operator_may(guard, stub, client):
    refused = yielded(guard, key=f"key-of-{client}")
    assert (refused.status, refused.error["code"], sent(stub, UNLOAD)) == (403, "operator-only", [])
    assert yielded(guard, key="operator-key").status == 200


@pytest.mark.parametrize("path", [CHAT, "/upstream/tiny-text/props", "/unload", "/logs", UNLOAD])
def test_a_steward_may_nothing_else_beyond_a_monitor(guard, stub, path):
    answers = [guard.post({"model": "tiny-text"}, path=path, key=f"key-of-{one}") for one in ("steward", "monitor")]
    assert answers[0] == answers[1]
    assert answers[0].status in (403, 404, 405)
    assert sent(stub, path) == []


@pytest.mark.parametrize(
    ("figures", "status", "code"),
    [
        (b"requests_processing 1\nllamacpp:requests_deferred 0", 409, "engine-busy"),
        (b"requests_processing 0\nllamacpp:requests_deferred 2", 409, "engine-busy"),
        (b"requests_processing 0", 502, "engine-silent"),
        (b"requests_deferred 0", 502, "engine-silent"),
        (b"requests_processing nan\nllamacpp:requests_deferred 0", 502, "engine-silent"),
    ],
)
def test_an_engine_that_serves_or_does_not_say_so_is_not_unloaded(guard, stub, figures, status, code):
    reports(stub, figures)
    answer = yielded(guard)
    assert (answer.status, answer.error["code"], sent(stub, UNLOAD)) == (status, code, [])


def test_a_model_that_is_not_loaded_or_not_known_is_not_unloaded(guard, stub):
    assert yielded(guard, "nothing").error["code"] == "not-loaded"
    running(stub, "starting")
    assert (yielded(guard).status, yielded(guard).error["code"], sent(stub, UNLOAD)) == (404, "not-loaded", [])


@pytest.mark.parametrize("path", [CHAT, "/upstream/tiny-text/props", "/upstream/gpt-4o/v1/chat/completions"])
def test_a_model_with_a_request_under_way_is_not_unloaded_whatever_its_engine_reports(guard, stub, path):
    gate = stub.acts[path] = Gate(OK[:-2], OK[-2:])
    with guard.connect() as connection:
        connection.sendall(post({"model": "tiny-text"}, path=path, key="operator-key"))
        assert connection.recv(1)
        assert (yielded(guard).status, yielded(guard).error["code"]) == (409, "engine-busy")
        gate.open.set()
        assert read_answer(connection).status == 0  # its first byte was read above
    assert yielded(guard).status == 200


def test_a_request_that_comes_during_the_unloading_waits_for_its_end(guard, stub):
    """Also where the client that had it unloaded is gone, and where it has failed."""
    gate = Gate(b"", OK)
    stub.acts[UNLOAD] = gate
    with guard.connect() as leaving, guard.connect() as connection:
        leaving.sendall(request("POST", "/engine-yield/tiny-text", key="key-of-steward"))
        wait_for(lambda: sent(stub, UNLOAD), what="the unloading")
        leaving.close()
        connection.sendall(post({"model": "tiny-text"}))
        assert guard.next_record()["code"] == "client-closed"
        assert yielded(guard).error["code"] == "engine-busy"
        assert guard.post({"model": "tiny-vision"}).status == 200  # another model does not wait
        assert not [one for one in sent(stub, CHAT) if b"tiny-text" in one]
        gate.open.set()
        assert read_answer(connection).status == 200
    stub.fail(500, {}, path=UNLOAD)
    assert (yielded(guard).status, yielded(guard).error["code"]) == (502, "llama-swap-down")
    assert guard.post({"model": "tiny-text"}).status == 200


def test_a_client_that_leaves_while_room_is_made_for_it_cuts_no_request_of_the_model_that_is_unloaded(stub, tmp_path):
    failed = {"src": "llama-swap", "error": "upstream command exited prematurely"}
    stub.fail(500, failed)
    refusal = "preflight: no-room model=tiny-vision need_mib=700 free_mib=90 total_mib=1000: a sentence\n"
    stub.log("tiny-vision", refusal)
    gate = stub.acts[UNLOAD] = Gate(b"", OK)
    groups = {"tiny-text": "main", "tiny-vision": "main"}
    with run_guard(tmp_path, stub.port, groups=groups) as guard, guard.connect() as connection:
        with guard.connect() as leaving:
            leaving.sendall(post({"model": "tiny-vision"}))
            wait_for(lambda: sent(stub, UNLOAD), what="the unloading")
        assert guard.next_record()["code"] == "client-closed"
        connection.sendall(post({"model": "tiny-text"}))
        assert guard.post({"model": "tiny-vision"}).error["code"] == "no-room"  # the only other model is being unloaded
        assert not [one for one in sent(stub, CHAT) if b"tiny-text" in one]
        stub.answer(CHAT, OK)
        gate.open.set()
        assert read_answer(connection).status == 200
    assert len(sent(stub, CHAT)) == 3  # none is sent again for the client that is gone


def test_a_client_that_leaves_while_it_waits_is_no_request_of_the_model(guard, stub):
    gate = Gate(b"", OK)
    stub.acts[UNLOAD] = gate
    with guard.connect() as first:
        first.sendall(request("POST", "/engine-yield/tiny-text", key="key-of-steward"))
        wait_for(lambda: sent(stub, UNLOAD), what="the unloading")
        with guard.connect() as waiting:
            waiting.sendall(post({"model": "tiny-text"}))
            assert guard.post({"model": "tiny-vision"}).status == 200
        wait_for(lambda: "client-closed" in [one.get("code") for one in guard.records], what="its end")
        gate.open.set()
        assert read_answer(first).status == 200
    assert not [one for one in sent(stub, CHAT) if b"tiny-text" in one]
    assert yielded(guard).status == 200
