"""The seam to HTTP: addresses, keys, and answers that never end."""

from __future__ import annotations

import asyncio
import contextlib
import socket

import pytest

from corral.errors import Refused
from corral.smoke import endpoint
from corral.smoke.endpoint import Arriving, CutOffError, Endpoint, TooLargeError, UnreachableError, root_of
from tests.support import stub_endpoint

QUESTION = {"model": "m", "stream": False, "messages": [{"content": "?"}]}


def ask(root, path="/v1/chat/completions", *, api_key="", limit_s=10.0, arriving=None, times=1):
    async def go():
        async with Endpoint(root, api_key=api_key) as api, asyncio.timeout(limit_s):
            for _ in range(times):
                reply = await api.request(path, QUESTION if path.endswith("completions") else None, arriving)
            return reply

    return asyncio.run(go())


@pytest.mark.parametrize(
    ("written", "root"),
    [
        ("http://127.0.0.1:8080", "http://127.0.0.1:8080"),
        ("http://127.0.0.1:8080/", "http://127.0.0.1:8080"),
        ("http://127.0.0.1:8080/v1", "http://127.0.0.1:8080"),
        ("http://127.0.0.1:8080/v1/", "http://127.0.0.1:8080"),
        ("https://gateway.lan/llm/v1/", "https://gateway.lan/llm"),
        ("https://gateway.lan/llm", "https://gateway.lan/llm"),
        ("http://[::1]:8080/v1", "http://[::1]:8080"),
    ],
)
def test_an_endpoint_is_the_same_with_and_without_v1(written, root):
    assert root_of(written) == root


@pytest.mark.parametrize(
    ("written", "what"),
    [
        ("127.0.0.1:8080", "must begin with http"),
        ("localhost:8080", "must begin with http"),
        ("ftp://host/", "must begin with http"),
        ("http://", "name a host"),
        ("http://host:99999/", "is no endpoint"),
        ("http://host:eighty/", "is no endpoint"),
        ("http://ho\x7fst/", "is no endpoint"),
        ("http://host/?key=1", "query"),
        ("http://host/#x", "fragment"),
    ],
)
def test_what_is_no_address_is_refused(written, what):
    with pytest.raises(Refused, match=what):
        root_of(written)


def test_a_password_in_the_address_is_refused_and_not_repeated():
    with pytest.raises(Refused) as refused:
        root_of("http://me:hunter2@host/")
    assert "hunter2" not in refused.value.message + refused.value.next_step
    assert "CORRAL_API_KEY" in refused.value.next_step


def test_a_key_that_no_header_can_carry_is_refused():
    with pytest.raises(Refused, match="CORRAL_API_KEY"):
        Endpoint("http://127.0.0.1:1", api_key="a\nb")


def test_the_key_is_sent_as_a_bearer_token():
    with stub_endpoint.serve("m", api_key="secret") as stub:
        assert ask(stub.root, "/v1/models", api_key="secret").status == 200
        assert ask(stub.root, "/v1/models", api_key="wrong").status == 401


def test_a_proxy_for_the_internet_is_not_used_for_this_machine(monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    with stub_endpoint.serve("m") as stub:
        assert ask(stub.root, "/health").status == 200


def test_every_question_has_a_connection_of_its_own():
    connections = []

    def count(exchange):
        connections.append(exchange.client_address)
        stub_endpoint.answers("OK")(exchange)

    with stub_endpoint.serve("m", acts={("m", "*"): count}) as stub:
        ask(stub.root, times=3)
    assert len(set(connections)) == 3


def test_an_address_without_a_server_has_its_own_error():
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        with pytest.raises(UnreachableError):
            ask(f"http://127.0.0.1:{unused.getsockname()[1]}")


def test_a_connection_closed_without_an_answer_has_its_own_error():
    with stub_endpoint.serve("m", acts={("m", "*"): stub_endpoint.hangs_up}) as stub, pytest.raises(CutOffError):
        ask(stub.root)


def test_an_answer_without_end_is_cut_off(monkeypatch):
    monkeypatch.setattr(endpoint, "MAX_REPLY_BYTES", 3 * 2**20)
    with (
        stub_endpoint.serve("m", acts={("m", "*"): stub_endpoint.floods}) as stub,
        pytest.raises(TooLargeError, match="larger than 3 MiB"),
    ):
        ask(stub.root)


def test_a_server_that_drips_bytes_cannot_outlast_the_limit():
    arriving = Arriving()
    with (
        stub_endpoint.serve("m", acts={("m", "*"): stub_endpoint.drips}) as stub,
        pytest.raises(TimeoutError),
    ):
        ask(stub.root, limit_s=0.3, arriving=arriving)
    assert len(arriving.body) > 2


def test_a_stream_is_over_with_its_done_even_when_the_connection_stays():
    def stays(exchange):
        exchange.begin("text/event-stream")
        with contextlib.suppress(OSError):
            exchange.wfile.write(b'data: {"content": "data: [DONE]"}\n\ndata: [DO')
            exchange.stub.closing.wait(0.05)
            exchange.wfile.write(b"NE]\n\n")
            exchange.stub.closing.wait()

    with stub_endpoint.serve("m", acts={("m", "*"): stays}) as stub:
        assert ask(stub.root).body.endswith(b"}\n\ndata: [DONE]\n\n")
