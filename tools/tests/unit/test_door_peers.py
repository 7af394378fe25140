"""Two guards with a llama-swap each: a request for a model of the other card is passed on, once."""

from __future__ import annotations

import contextlib
import json
import socket
import threading

import pytest

from tests.support.engine_process import free_port
from tests.support.guard_process import (
    CLIENTS,
    KEYS,
    LIMIT_S,
    OK,
    Gate,
    post,
    read_answer,
    run_guard,
    stub_llama_swap,
    until_closed,
)

CHAT = "/v1/chat/completions"
HERE = {"model": "gpt-4o", "messages": []}  # tiny-text, on the card of the first guard
THERE = {"model": "tiny-vision", "messages": []}
EXPORTER = {"models": [], "requests": None, "role": "monitor"}
STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


class Pair:
    """``here`` has tiny-text, ``there`` has tiny-vision; each knows the other."""

    def __init__(self, stack, tmp_path):
        self.stubs = {name: stack.enter_context(stub_llama_swap()) for name in ("here", "there")}
        port, self.folder, self._stack = free_port(), tmp_path, stack
        (tmp_path / "here").mkdir()
        (tmp_path / "there").mkdir()
        address = {"host": "127.0.0.1", "port": port}
        self.here = self.start("here", peers={"p40": address | {"models": ["tiny-vision"]}})
        back = {"t4": {"host": "127.0.0.1", "port": self.here.address[1], "models": ["tiny-text"]}}
        self.there = self.start("there", peers=back, listen=address)

    def start(self, name, **changes):
        changes = {"clients": {**CLIENTS, "exporter": EXPORTER}} | changes
        return self._stack.enter_context(run_guard(self.folder / name, self.stubs[name].port, **changes))


@pytest.fixture
def pair(tmp_path):
    with contextlib.ExitStack() as stack:
        yield Pair(stack, tmp_path)


def models(*ids):
    return answer_of({"object": "list", "data": [{"id": one} for one in ids]})


def running(**of_models):
    """As llama-swap lists what runs, by its states."""
    listed = [{"model": one.replace("_", "-"), "state": state, "ttl": 60} for one, state in of_models.items()]
    return answer_of({"running": listed})


def answer_of(document):
    raw = json.dumps(document).encode()
    return b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (len(raw), raw)


def test_a_request_reaches_the_card_that_has_the_model_through_either_door(pair):
    for guard in (pair.here, pair.there):
        assert guard.post(HERE).status == guard.post(THERE).status == 200

    assert [b"gpt-4o" in one for one in pair.stubs["here"].requests] == [True, True]
    assert [b"tiny-vision" in one for one in pair.stubs["there"].requests] == [True, True]
    assert [pair.here.next_record()["card"] for _ in range(2)] == [None, "p40"]


def test_the_other_door_gets_the_clients_own_key_and_llama_swap_none_of_it(pair):
    assert pair.here.post(THERE, key="", x_api_key=KEYS["first"]).status == 200
    assert pair.there.next_record()["client"] == "first"
    assert KEYS["first"].encode() not in pair.stubs["there"].requests[0]


def test_the_other_door_decides_about_the_key_again(pair):
    pair.there.set_keys(operator=[KEYS["operator"]])

    answer = pair.here.post(THERE)

    assert (answer.status, answer.error["code"], pair.stubs["there"].requests) == (401, "key-unknown", [])


def test_a_stream_comes_as_it_is_made(pair):
    gate = Gate(STREAM + b"6\r\nfirst\n\r\n", b"5\r\nlast\n\r\n0\r\n\r\n")
    pair.stubs["there"].acts[CHAT] = gate
    with pair.here.connect() as connection:
        connection.sendall(post(THERE))
        received = b""
        while b"first" not in received:
            received += connection.recv(1 << 16)
        gate.open.set()
        while b"last" not in received:
            received += connection.recv(1 << 16)


def test_a_request_is_passed_on_when_the_other_door_listens_a_moment_later(tmp_path):
    """As behind a Service whose pod has just become ready."""
    address = {"host": "127.0.0.1", "port": free_port()}
    peers = {"p40": address | {"models": ["tiny-vision"]}}
    with stub_llama_swap() as stub, run_guard(tmp_path, stub.port, peers=peers) as guard, guard.connect() as connection:
        connection.sendall(post(THERE))
        assert guard.get("/health").status == 200
        with socket.create_server((address["host"], address["port"])) as listener:
            other, _ = listener.accept()
            with other:
                assert other.recv(1 << 16)
                other.sendall(OK)
        assert read_answer(connection).status == 200


def test_a_client_that_leaves_ends_the_request_on_the_other_card(pair):
    begun = threading.Event()

    def act(connection):
        connection.sendall(STREAM)
        begun.set()
        until_closed(connection)

    pair.stubs["there"].acts[CHAT] = act
    with pair.here.connect() as connection:
        connection.sendall(post(THERE))
        assert begun.wait(LIMIT_S)

    assert pair.stubs["there"].closed.get(timeout=LIMIT_S) == CHAT


def test_a_door_that_is_not_there_is_named_by_its_card_and_what_is_here_is_answered(pair):
    pair.there.stop()

    answer = pair.here.post(THERE)

    assert (answer.status, answer.fields["retry-after"]) == (503, "30")
    assert (answer.error["code"], answer.error["card"]) == ("card-unreachable", "p40")
    assert "tiny-vision is on card p40, whose server does not answer" in answer.error["message"]
    assert pair.here.post(HERE).status == 200


def test_a_door_that_ends_before_its_answer_is_named_too(pair):
    arrived = threading.Event()

    def act(connection):
        arrived.set()
        until_closed(connection)

    pair.stubs["there"].acts[CHAT] = act
    with pair.here.connect() as connection:
        connection.sendall(post(THERE))
        assert arrived.wait(LIMIT_S)
        pair.there.process.kill()
        answer = read_answer(connection)

    assert (answer.status, answer.error["code"]) == (503, "card-unreachable")


def test_an_error_of_the_other_card_is_explained_there(pair):
    pair.stubs["there"].fail(500, {"src": "llama-swap", "error": "upstream command exited prematurely"})
    pair.stubs["there"].log(
        "tiny-vision", "preflight: no-room model=tiny-vision need_mib=9 free_mib=1 total_mib=9: x\n"
    )

    answer = pair.here.post(THERE)

    assert (answer.status, answer.error["code"], answer.error["need_mib"]) == (503, "no-room", 9)
    assert len(pair.stubs["here"].requests) == 0


def test_a_request_is_passed_on_once(pair):
    """As for a moment while a model changes its card: each of the two believes that the other has it."""
    (pair.folder / "third").mkdir()
    pair.stubs["third"] = pair.stubs["here"]
    first = {"host": "127.0.0.1", "port": pair.here.address[1], "models": ["tiny-vision"]}
    third = pair.start("third", peers={"p40": first})

    answer = third.post(THERE)

    assert (answer.status, answer.error["code"], answer.fields["retry-after"]) == (503, "card-changing", "5")
    assert not pair.stubs["there"].requests


def test_the_list_has_the_models_of_all_cards_that_answer(pair):
    for name, found in {"here": "tiny-text", "there": "tiny-vision"}.items():
        pair.stubs[name].answer("/v1/models", models(found))

    def listed(guard, key):
        return [one["id"] for one in json.loads(guard.get("/v1/models", key).body)["data"]]

    assert listed(pair.here, KEYS["operator"]) == listed(pair.there, KEYS["first"]) == ["tiny-text", "tiny-vision"]
    assert listed(pair.there, KEYS["second"]) == ["tiny-text"]

    pair.there.stop()
    assert listed(pair.here, KEYS["operator"]) == ["tiny-text"]


def states(guard, key="operator", **fields):
    answer = guard.get("/running", KEYS.get(key, key), **fields)
    assert answer.status == 200, answer
    return {one["model"]: (one["state"], one.get("card"), one["ttl"]) for one in json.loads(answer.body)["running"]}


def test_what_runs_on_all_cards_that_answer_is_listed_for_an_operator(pair):
    pair.stubs["here"].answer("/running", running(tiny_text="ready"))
    pair.stubs["there"].answer("/running", running(tiny_vision="starting"))

    both = {"tiny-text": ("ready", None, 60), "tiny-vision": ("starting", "p40", 60)}
    assert states(pair.here) == both
    assert states(pair.there) == {"tiny-vision": ("starting", None, 60), "tiny-text": ("ready", "t4", 60)}

    pair.there.stop()
    assert states(pair.here) == {"tiny-text": ("ready", None, 60)}


def test_of_what_runs_a_door_takes_from_another_one_only_what_that_has(pair):
    """As for a moment while a model changes its card."""
    pair.stubs["here"].answer("/running", running(tiny_text="ready"))
    pair.stubs["there"].answer("/running", running(tiny_text="stopping"))

    assert states(pair.here) == {"tiny-text": ("ready", None, 60)}


def test_what_runs_on_its_own_card_alone_is_listed_for_an_exporter_and_for_a_request_that_was_passed_on(pair):
    for guard in (pair.here, pair.there):
        guard.set_keys(operator=[KEYS["operator"]], exporter=["key-of-the-exporter"])
    pair.stubs["here"].answer("/running", running(tiny_text="ready"))
    pair.stubs["there"].answer("/running", running(tiny_vision="ready"))

    alone = {"tiny-text": ("ready", None, 60)}
    assert states(pair.here, "key-of-the-exporter") == states(pair.here, x_corral_passed="1") == alone
    assert pair.stubs["there"].requests == []


def test_a_llama_swap_that_does_not_list_what_runs_is_not_covered_by_the_other_card(pair):
    pair.stubs["here"].answer("/running", b"HTTP/1.1 500 x\r\nContent-Length: 2\r\n\r\n{}")
    pair.stubs["there"].answer("/running", running(tiny_vision="ready"))

    answer = pair.here.get("/running", KEYS["operator"])

    assert (answer.status, answer.error["code"]) == (502, "llama-swap-down")


def test_an_operators_path_of_a_model_leads_to_its_card(pair):
    assert pair.here.get("/upstream/tiny-vision/slots", KEYS["operator"]).status == 200
    assert pair.stubs["there"].requests[0].startswith(b"GET /upstream/tiny-vision/slots HTTP/1.1")
    assert pair.here.get("/upstream/tiny-vision/slots", KEYS["first"]).status == 403


def test_the_length_of_a_body_stays(pair):
    body = {**THERE, "messages": [{"role": "user", "content": "x" * 300_000}]}
    assert pair.here.post(body).status == 200
    assert pair.stubs["there"].requests[0].endswith(json.dumps(body).encode())
