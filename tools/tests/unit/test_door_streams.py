"""A stream that ends without its end mark is broken off, so that no client takes it for whole."""

from __future__ import annotations

import json

import pytest

from corral.door.streams import StreamEnd
from tests.support.guard_process import post, run_guard, stub_llama_swap

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
WORD, MARK, LAST = b'data: {"choices":[]}\n\n', b"data: [DONE]\n\n", b"0\r\n\r\n"
BODY = {"model": "tiny-text", "stream": True, "messages": [{"role": "user", "content": "Hello."}]}


def chunk(data):
    return b"%x\r\n%s\r\n" % (len(data), data)


@pytest.fixture
def llama_swap():
    with stub_llama_swap() as stub:
        yield stub


@pytest.fixture
def guard(llama_swap, tmp_path):
    with run_guard(tmp_path, llama_swap.port) as running:
        yield running


def raw_answer(guard, path="/v1/chat/completions"):
    """All bytes of the answer."""
    with guard.connect() as connection:
        connection.sendall(post(BODY, path=path))
        received = b""
        while data := connection.recv(1 << 16):
            received += data
    return received


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
def test_a_stream_without_its_end_mark_gets_no_last_chunk(guard, llama_swap, path):
    llama_swap.answer(path, HEAD + chunk(WORD) + LAST)
    received = raw_answer(guard, path)
    assert received.endswith(chunk(WORD))
    assert guard.next_record("request")["code"] == "engine-ended"


def test_a_stream_with_its_end_mark_arrives_as_it_is(guard, llama_swap):
    llama_swap.answer("/v1/chat/completions", HEAD + chunk(WORD) + chunk(MARK) + LAST)
    assert raw_answer(guard).endswith(chunk(WORD) + chunk(MARK) + LAST)


def test_what_is_no_stream_has_no_end_mark(guard, llama_swap):
    plain = HEAD.replace(b"text/event-stream", b"application/json") + chunk(json.dumps({}).encode()) + LAST
    llama_swap.answer("/v1/chat/completions", plain)
    assert raw_answer(guard).endswith(LAST)


def test_the_stream_of_another_api_ends_without_that_mark(guard, llama_swap):
    llama_swap.answer("/v1/messages", HEAD + chunk(b"event: message_stop\n\n") + LAST)
    assert raw_answer(guard, "/v1/messages").endswith(LAST)


WHOLE = chunk(WORD) + chunk(MARK) + LAST
CUT = chunk(WORD) + LAST


@pytest.mark.parametrize("at", range(1, len(WHOLE)))
def test_wherever_a_whole_stream_is_divided_it_arrives_as_it_is(at):
    end = StreamEnd()
    assert end.passed(WHOLE[:at]) + end.passed(WHOLE[at:]) == WHOLE
    assert not end.is_cut


@pytest.mark.parametrize("at", range(1, len(CUT) - len(LAST) + 1))
def test_wherever_a_cut_stream_is_divided_before_its_last_chunk_that_is_taken_off(at):
    end = StreamEnd()
    assert end.passed(CUT[:at]) + end.passed(CUT[at:]) == chunk(WORD)
    assert end.is_cut
