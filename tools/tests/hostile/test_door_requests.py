"""Requests that no honest client sends: each is refused or cut off, and no byte of it reaches llama-swap."""

from __future__ import annotations

import contextlib
import gzip
import json
import select

import pytest

from tests.support.engine_process import wait_for
from tests.support.guard_process import post, read_answer, request, run_guard, stub_llama_swap
from tests.support.hostile import limited

CHAT = "/v1/chat/completions"
KEY = "Authorization: Bearer key-of-first\r\n"
JSON = "Content-Type: application/json\r\n"
BODY = '{"model": "tiny-text", "prompt": "x"}'
SECOND = "GET /unload HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer operator-key\r\n\r\n"
CLEAN = {400, 401, 403, 404, 405, 411, 413, 415, 431, 505}


def raw(*fields: str, body: str = BODY, line: str = f"POST {CHAT} HTTP/1.1", host: str = "Host: x\r\n") -> bytes:
    """A POST with a client's key and *fields*, none of which this function corrects."""
    return f"{line}\r\n{host}{KEY}{JSON}{''.join(fields)}\r\n{body}".encode("latin-1")


def length(value: object) -> str:
    return f"Content-Length: {value}\r\n"


CHUNKED = "Transfer-Encoding: chunked\r\n"
CHUNKS = f"{len(BODY):x}\r\n{BODY}\r\n0\r\n\r\n"
RIGHT = length(len(BODY))

BOUNDARIES = {
    "a length and chunks": raw(RIGHT, CHUNKED, body=CHUNKS),
    "chunks and a length": raw(CHUNKED, RIGHT, body=CHUNKS),
    "chunks": raw(CHUNKED, body=CHUNKS),
    "chunks, then a request": raw(CHUNKED, body="0\r\n\r\n" + SECOND),
    "chunks with an extension": raw(CHUNKED, body=CHUNKS.replace("\r\n", ";a=b\r\n", 1)),
    "chunks of more than 64 bits": raw(CHUNKED, body="fffffffffffffffff\r\n" + BODY),
    "chunks that are negative": raw(CHUNKED, body="-1\r\n" + BODY),
    "chunks with line feeds": raw(CHUNKED, body=CHUNKS.replace("\r\n", "\n")),
    "chunks, in capitals": raw("TRANSFER-ENCODING: CHUNKED\r\n", body=CHUNKS),
    "chunks after a tab": raw("Transfer-Encoding:\tchunked\r\n", RIGHT, body=CHUNKS),
    "chunks before a colon with a space": raw("Transfer-Encoding : chunked\r\n", RIGHT, body=CHUNKS),
    "chunks of another coding": raw("Transfer-Encoding: xchunked\r\n", RIGHT, body=CHUNKS),
    "chunks and identity": raw(CHUNKED, "Transfer-Encoding: identity\r\n", RIGHT, body=CHUNKS),
    "chunks behind a vertical tab": raw("Transfer-Encoding:\x0bchunked\r\n", RIGHT, body=CHUNKS),
    "chunks behind a line feed": raw("X: y\nTransfer-Encoding: chunked\r\n", RIGHT, body=CHUNKS),
    "chunks behind a carriage return": raw("X: y\rTransfer-Encoding: chunked\r\n", RIGHT, body=CHUNKS),
    "chunks in a folded line": raw("Transfer-Encoding:\r\n chunked\r\n", RIGHT, body=CHUNKS),
    "two lengths": raw(RIGHT, length(0)),
    "two lengths that agree": raw(RIGHT, RIGHT),
    "a list of lengths": raw(length(f"{len(BODY)}, {len(BODY)}")),
    "a length with a sign": raw(length(f"+{len(BODY)}")),
    "a negative length": raw(length(-1)),
    "a hexadecimal length": raw(length(hex(len(BODY)))),
    "an octal length": raw(length(oct(len(BODY)))),
    "a length with a space in it": raw(length("3 7")),
    "a length with a dot": raw(length(f"{len(BODY)}.0")),
    "a length of other digits": raw(length("\xb2\xb9")),
    "a length without digits": raw(length("")),
    "a length of more than 64 bits": raw(length("1" * 30)),
    "a length that is folded": raw(f"Content-Length:\r\n {len(BODY)}\r\n"),
    "a length before a colon with a space": raw(f"Content-Length : {len(BODY)}\r\n"),
    "a length with a NUL": raw(f"Content-Length\0: {len(BODY)}\r\n"),
    "a request behind the body": raw(RIGHT, body=BODY + SECOND),
    "a request behind a body without length": raw(body=SECOND),
    "a request behind a request": request("GET", "/health") + SECOND.encode(),
    "a request in the body of a GET": request("GET", "/v1/models", SECOND.encode(), key="key-of-first"),
    "line feeds": raw(RIGHT).replace(b"\r\n", b"\n"),
    "carriage returns": raw(RIGHT).replace(b"\r\n", b"\r"),
    "a line feed after the request line": raw(RIGHT).replace(b"HTTP/1.1\r\n", b"HTTP/1.1\n"),
    "a line feed at the end of the head": raw(RIGHT).replace(b"\r\n\r\n", b"\r\n\n"),
    "an empty line before the request": b"\r\n" + raw(RIGHT),
    "a folded field": raw("X: y\r\n z\r\n", RIGHT),
    "a folded first field": raw(RIGHT, host=" Host: x\r\nHost: x\r\n"),
}
HEADS = {
    "no version": raw(RIGHT, line=f"POST {CHAT}"),
    "version 0.9": raw(RIGHT, line=f"POST {CHAT} HTTP/0.9"),
    "version 1.0": raw(RIGHT, line=f"POST {CHAT} HTTP/1.0"),
    "version 1.2": raw(RIGHT, line=f"POST {CHAT} HTTP/1.2"),
    "version 11": raw(RIGHT, line=f"POST {CHAT} HTTP/11"),
    "another protocol": raw(RIGHT, line=f"POST {CHAT} ICAP/1.1"),
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(range(256)) * 2,
    "SSH": b"SSH-2.0-OpenSSH_9.2\r\n\r\n",
    "bytes": bytes(range(256)) * 64,
    "empty lines": b"\r\n" * 20_000,
    "a method in small letters": raw(RIGHT, line=f"post {CHAT} HTTP/1.1"),
    "a method without end": b"A" * 40_000,
    "a target without end": b"GET /" + b"a" * 40_000,
    "two spaces": raw(RIGHT, line=f"POST  {CHAT} HTTP/1.1"),
    "tabs": raw(RIGHT, line=f"POST\t{CHAT}\tHTTP/1.1"),
    "a space at the end": raw(RIGHT, line=f"POST {CHAT} HTTP/1.1 "),
    "a no-break space": raw(RIGHT, line=f"POST {CHAT}\xa0HTTP/1.1"),
    "a tunnel": b"CONNECT 127.0.0.1:22 HTTP/1.1\r\nHost: x\r\n\r\n",
    "an absolute address": raw(RIGHT, line=f"POST http://127.0.0.1:22{CHAT} HTTP/1.1"),
    "an asterisk": b"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n",
    "a trace": request("TRACE", "/v1/models", key="key-of-first"),
    "a preflight of a page": request(
        "OPTIONS", CHAT, Origin="http://evil.example", Access_Control_Request_Method="POST"
    ),
    "another method": request("DELETE", CHAT, key="key-of-first"),
    "no host": raw(RIGHT, host=""),
    "two hosts": raw(RIGHT, "Host: y\r\n"),
    "two keys": raw(RIGHT, "Authorization: Bearer operator-key\r\n"),
    "two keys in two fields": raw(RIGHT, "X-Api-Key: operator-key\r\n"),
    "a field without colon": raw(RIGHT, "X\r\n"),
    "a field without name": raw(RIGHT, ": x\r\n"),
    "a field with NUL": raw(RIGHT, "X: a\0b\r\n"),
    "a field with ESC": raw(RIGHT, "X: a\x1b[2Jb\r\n"),
    "a field with DEL": raw(RIGHT, "X: a\x7fb\r\n"),
    "a name in brackets": raw(RIGHT, "(X): y\r\n"),
    "101 fields": raw(RIGHT, *("X: y\r\n" for _ in range(101))),
    "100,000 fields": raw(RIGHT, *("X: y\r\n" for _ in range(100_000))),
    "a field of 33 KiB": raw(RIGHT, f"X: {'y' * (33 << 10)}\r\n"),
    "a field without end": raw(RIGHT).partition(b"\r\n\r\n")[0] + b"y" * (1 << 20),
    "a key of 20 KiB": raw(RIGHT).replace(b"key-of-first", b"k" * (20 << 10)),
    "no content-type": raw(RIGHT).replace(JSON.encode(), b""),
    "a form": raw(RIGHT).replace(b"application/json", b"application/x-www-form-urlencoded"),
    "a form with files": raw(RIGHT).replace(b"application/json", b"multipart/form-data; boundary=x"),
    "plain text": raw(RIGHT).replace(b"application/json", b"text/plain;application/json"),
    "two content-types": raw(RIGHT, "Content-Type: text/plain\r\n"),
    "a list of content-types": raw(RIGHT).replace(b"application/json", b"text/plain, application/json"),
}
PATHS = {
    path: post(json.loads(BODY), path=path)
    for path in (
        *("//upstream/tiny-text/tools", "/%75pstream/tiny-text/tools", "/v1/../upstream/tiny-text/tools"),
        *("/v1/chat/completions/../../../unload", "/./unload", "/health/../api/models/unload", "/upstream%2ftiny-text"),
        *("/v1/chat/completions;x", "/v1/chat/completions%00", "/v1/chat/completions%0d%0aX:%20y", "/v1\\..\\unload"),
        *("/v1/chat/completions/", "/V1/chat/completions", "/v1/chat/completions#x", "/v1/chat/completions?x=\x7f"),
        *(
            "/upstream/tiny-text/tools",
            "/upstream/tiny-text/v1/chat/completions",
            "/api/models/unload",
            "/sdapi/v1/txt2img",
        ),
        *("/v1/audio/transcriptions", "/v/chat/completions", "/v1/images/edits", "/tools", "/slots", "/lora-adapters"),
    )
} | {
    f"GET {path} of a client": request("GET", path, key="key-of-first")
    for path in (
        "/unload",
        "/running",
        "/model-changes",
        "/logs",
        "/logs/stream/tiny-text",
        "/api/events",
        "/ui/",
        "/upstream/tiny-text/props",
    )
}
BODIES = {
    "nothing": post(b"", Content_Length="0", Content_Type="application/json"),
    "no JSON": post(b"model=tiny-text"),
    "a list": post(b"[]"),
    "two documents": post(BODY.encode() * 2),
    "another encoding": post(BODY.encode("utf-16")),
    "a byte order mark": post(b"\xef\xbb\xbf" + BODY.encode()),
    "no UTF-8": post(b'{"model": "tiny-text", "prompt": "\xff"}'),
    "compressed": post(gzip.compress(BODY.encode()), Content_Encoding="gzip"),
    "NaN": post(b'{"model": "tiny-text", "temperature": NaN}'),
    "two models": post(b'{"model": "tiny-text", "model": "tiny-vision"}'),
    "two models, one escaped": post(b'{"model": "tiny-text", "mod\\u0065l": "tiny-vision"}'),
    "no model": post({"prompt": "x"}),
    "a model that is none": post({"model": "../../etc/passwd"}),
    "a model of another client": post({"model": "tiny-vision"}, key="key-of-second"),
    "a model with NUL": post({"model": "tiny-text\0"}),
    "100,000 lists": post(b'{"model": "tiny-text", "a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"),
    "100,000 objects": post(b'{"a":' * 100_000 + b"1" + b"}" * 100_000),
    "300,000 values": post(b'{"model": "tiny-text", "a": [' + b"{}," * 300_000 + b"0]}"),
    "a number of 100,000 digits": post(b'{"model": "tiny-text", "a": ' + b"1" * 100_000 + b"}"),
    "too much": post({"model": "tiny-text", "prompt": "x" * (1 << 20)}),
    "a length that is too much": post(b"{", Content_Length=str(1 << 40)),
    "a remote image": post({"model": "tiny-text", "image_url": "http://169.254.169.254/latest/meta-data"}),
    "a remote image in an object": post({"model": "tiny-text", "image_url": {"url": "http://127.0.0.1/"}}),
    "a remote image behind escapes": post(b'{"model": "tiny-text", "image\\u005furl": "http:\\u002f\\u002f127.0.0.1"}'),
    "a file": post({"model": "tiny-text", "image_url": {"url": "file:///etc/passwd"}}),
    "a remote image of Anthropic's form": post(
        {"model": "tiny-text", "messages": [{"content": [{"source": {"type": "url", "url": "https://[::1]/"}}]}]}
    ),
    "a remote image behind data": post(
        b'{"model": "tiny-text", "a": "data:' + b"A" * 5000 + b'\\"", "image_url": "http://127.0.0.1"}'
    ),
}
REQUESTS = BOUNDARIES | HEADS | PATHS | BODIES


@pytest.fixture(scope="module")
def stub():
    with stub_llama_swap() as stub:
        yield stub


@pytest.fixture(scope="module")
def guard(stub, tmp_path_factory):
    def wrap(command):
        return limited(command, memory_mib=512, cpu_seconds=60)

    with run_guard(tmp_path_factory.mktemp("guard"), stub.port, wrap=wrap) as guard:
        yield guard


def test_there_are_enough_of_them():
    assert len(REQUESTS) == len(BOUNDARIES) + len(HEADS) + len(PATHS) + len(BODIES) > 120


@pytest.mark.parametrize("case", REQUESTS)
def test_a_hostile_request_is_refused_and_does_not_reach_llama_swap(guard, stub, case):
    before = len(stub.requests)

    answer = guard.send(REQUESTS[case])

    assert answer.status in CLEAN, answer
    assert set(answer.error) == {"message", "type", "code"}
    assert "access-control-allow-origin" not in answer.fields
    assert guard.get("/health").status == 200
    assert [one for one in stub.requests[before:] if not one.startswith(b"GET /health ")] == []
    assert guard.errors() == ""


def test_what_differs_only_in_what_is_wrong_with_it_is_accepted(guard):
    """The requests above are refused for their one fault, not for what they have in common."""
    assert guard.send(raw(RIGHT)).status == 200
    assert guard.send(post(json.loads(BODY))).status == 200
    assert guard.send(raw(RIGHT, *("X: y\r\n" for _ in range(90)), f"Y: {'y' * (20 << 10)}\r\n")).status == 200


def test_a_head_that_comes_byte_by_byte_is_ended_in_time(stub, tmp_path):
    with run_guard(tmp_path, stub.port, limits={"head": 0.2}) as guard, guard.connect() as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\nX: ")
        for _ in range(2000):  # each byte is new, and no byte renews the limit
            if select.select([connection], (), (), 0.01)[0]:
                break
            with contextlib.suppress(OSError):
                connection.sendall(b"y")

        assert read_answer(connection).status == 408


def test_more_connections_than_there_are_files_for_are_refused_until_there_is_room(stub, tmp_path):
    def wrap(command):
        return ["sh", "-c", 'ulimit -n 512 && exec "$@"', "sh", *command]  # a quarter of them: 128 connections

    with run_guard(tmp_path, stub.port, wrap=wrap, limits={"head": 600}) as guard:
        with contextlib.ExitStack() as stack:
            idle = [stack.enter_context(guard.connect()) for _ in range(160)]
            assert [read_answer(one).status for one in idle[128:]] == [503] * 32
        wait_for(lambda: guard.get("/health").status == 200, what="room")
