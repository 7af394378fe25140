"""The hub's client against a hub that means harm: each answer ends in one clear error, and none is read without end.

Stubs: no real hub gives such answers.
"""

import itertools
from contextlib import closing
from dataclasses import replace
from types import SimpleNamespace

import pytest

from corral.agent import connection, hub_client
from corral.agent.hub_client import RetryableError
from corral.agent.progress import Downloading, Planned
from corral.errors import CannotRun, CorralError
from tests.support import faulty_hub as faults
from tests.support.fetching import IMPATIENT, REPO, shop

MANY = 1000  # of something endless in one piece, so that it is sent at full speed
OK = b"HTTP/1.1 206 Partial Content\r\n"
CHUNKED = OK + b"Content-Range: bytes 0-9/4194304\r\nTransfer-Encoding: chunked\r\n\r\n"
BUSY = b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n"


@pytest.fixture
def one(tmp_path):
    with shop(tmp_path) as made:
        yield made
    assert {entry.name for entry in tmp_path.iterdir()} <= {"lock.json", "store"}


def read(one, **how):
    """The first ten bytes of the file."""
    source = hub_client.Hub(one.hub.endpoint, token="hf_secret", **how).file(REPO, "main", "a.gguf")
    buffer, found = memoryview(bytearray(10)), b""
    try:
        with closing(source.open(0, 10)) as body:
            while count := body.readinto(buffer[len(found) :]):
                found += buffer[len(found) : len(found) + count].tobytes()
    finally:
        source.abort()
    return found


def redirect(location):
    return b"HTTP/1.1 302 Found\r\nContent-Length: 0\r\nLocation: " + location + b"\r\n\r\n"


ANSWERS = {
    "endless-100-continue": (b"", b"HTTP/1.1 100 Continue\r\n\r\n" * MANY, "head .* is too long"),
    "endless-100-continue-with-fields": (
        b"",
        b"HTTP/1.1 100 C\r\n" + b"a: b\r\n" * 90 + b"\r\n",
        "head .* is too long",
    ),
    "endless-status-line": (b"HTTP/1.1 206 ", b"a" * MANY, "head .* is too long"),
    "endless-field": (OK + b"A: ", b"a" * MANY, "head .* is too long"),
    "endless-fields": (OK, b"a: b\r\n", "more than 100 headers"),
    "endless-folded-field": (OK + b"a: b\r\n", b" c\r\n", "more than 100 headers"),
    "field-of-64-kib": (OK + b"A: " + b"a" * 65536 + b"\r\n\r\n", b"", "head .* is too long"),
    "fields-of-64-kib": (OK + (b"A: " + b"a" * 8000 + b"\r\n") * 9 + b"\r\n", b"", "head .* is too long"),
    "nothing": (b"", b"", "connection was reset"),
    "no-http": (b"\x1b[2J\xe2\x80\xae\x00hello\r\n\r\n", b"", r"\\x1b\[2J"),
    "page-of-a-captive-portal": (b"<html>\r\n<body>Log in</body></html>\r\n", b"", "<html>"),
    "empty-status": (b"HTTP/1.1 \r\n\r\n", b"", "HTTP/1.1"),
    "status-without-digits": (b"HTTP/1.1 2\xb20 OK\r\n\r\n", b"", "HTTP/1.1"),
    "status-of-5000-digits": (b"HTTP/1.1 " + b"2" * 5000 + b" OK\r\n\r\n", b"", "HTTP/1.1"),
    "status-below-100": (b"HTTP/1.1 -206 OK\r\n\r\n", b"", "HTTP/1.1"),
    "other-protocol": (b"HTTP/\x1b]0;9 206 OK\r\n\r\n", b"", r"HTTP/\\x1b\]0;9"),
    "switching-protocols": (b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\n\r\n", b"", "answered 101"),
    "hidden-reason": (b"HTTP/1.1 418 \x1b[2J\r\nContent-Length: 0\r\n\r\n", b"", "answered 418"),
    "range-of-5000-digits": (OK + b"Content-Range: bytes 0-9/" + b"9" * 5000 + b"\r\n\r\n", b"", "another range"),
    "start-of-5000-digits": (OK + b"Content-Range: bytes " + b"0" * 5000 + b"-9/9\r\n\r\n", b"", "another range"),
    "range-without-digits": (OK + b"Content-Range: bytes \xb2-9/9\r\n\r\n", b"", "another range"),
    "range-of-several-parts": (OK + b"Content-Type: multipart/byteranges; boundary=x\r\n\r\n--x", b"", "another range"),
    "length-of-5000-digits": (OK + b"Content-Length: " + b"9" * 5000 + b"\r\n\r\n", b"", "another range"),
    "negative-length": (OK + b"Content-Length: -10\r\n\r\n", b"", "another range"),
    "compressed": (OK + b"Content-Encoding: gzip\r\nContent-Range: bytes 0-9/10\r\n\r\n", b"", "is compressed"),
    "compressed-in-transfer": (
        OK + b"Transfer-Encoding: gzip, chunked\r\nContent-Range: bytes 0-9/10\r\n\r\n",
        b"",
        "is compressed",
    ),
    "retry-after-without-digits": (BUSY + b"Retry-After: \xb2\r\n\r\n", b"", "answered 503"),
    "retry-after-of-5000-digits": (BUSY + b"Retry-After: " + b"9" * 5000 + b"\r\n\r\n", b"", "answered 503"),
    "retry-after-no-number": (BUSY + b"Retry-After: nan\r\n\r\n", b"", "answered 503"),
    "retry-after-no-date": (BUSY + b"Retry-After: Mon, 99 Abc 0000 99:99:99 GMT\r\n\r\n", b"", "answered 503"),
    "redirect-to-half-an-address": (redirect(b"http://[::1/x"), b"", "redirects to .* no address of a file"),
    "redirect-to-a-file": (redirect(b"file:///etc/passwd"), b"", "redirects to .* no address of a file"),
    "redirect-to-a-long-name": (redirect(b"https://" + b"a" * 70 + b".example/"), b"", "no address of a file"),
    "redirect-with-a-password": (redirect(b"http://user:hunter2@localhost/"), b"", "an address with a user name"),
    "redirect-to-controls": (redirect(b"https://\x1b[2J\xe2\x80\xae/"), b"", "no address of a file"),
    "redirect-to-bytes": (redirect(b"/caf\xe9\xff\x00\x1b"), b"", "/caf%E9%FF%00%1B answered 404"),
    "redirect-to-nowhere": (b"HTTP/1.1 302 Found\r\nContent-Length: 0\r\n\r\n", b"", "answered 302"),
    "negative-chunk": (CHUNKED + b"-a\r\n0123456789", b"", "has no size"),
    "chunk-with-underscore": (CHUNKED + b"0_a\r\n0123456789", b"", "has no size"),
    "chunk-with-prefix": (CHUNKED + b"0xa\r\n0123456789", b"", "has no size"),
    "chunk-of-other-size": (CHUNKED + b"5\r\n0123456789", b"", "has no size"),
    "chunk-size-without-end": (CHUNKED, b"1" * MANY, "is too long"),
    "chunk-extension-without-end": (CHUNKED + b"1;", b"a" * MANY, "is too long"),
}


@pytest.mark.parametrize(("content", "endless", "expected"), ANSWERS.values(), ids=ANSWERS)
def test_a_malformed_answer_is_one_error_in_one_line(one, content, endless, expected):
    one.hub.faults = [faults.Raw(on=faults.RESOLVE, content=content, endless=endless)]
    with pytest.raises((RetryableError, CorralError), match=expected) as caught:
        read(one)
    text = str(vars(caught.value))
    assert text.isprintable()
    assert len(text) < 2000
    assert "hunter2" not in text


def test_a_trailer_without_end_is_not_read(one):
    one.hub.faults = [
        faults.Raw(on=faults.RESOLVE, content=CHUNKED + b"A\r\n0123456789\r\n0\r\n", endless=b"a: b\r\n" * MANY)
    ]
    assert read(one) == b"0123456789"


def test_chunks_bring_what_has_arrived_and_not_only_full_buffers(one):
    """The second chunk never comes."""
    one.hub.faults = [faults.Raw(on=faults.RESOLVE, content=CHUNKED + b"3\r\nabc\r\n4\r\n", endless=b"d", pause=0.01)]
    source, buffer = one.client.file(REPO, "main", "a.gguf"), memoryview(bytearray(10))
    with closing(source.open(0, 10)) as body:
        assert body.readinto(buffer) == 3
        assert body.readinto(buffer) >= 1


@pytest.mark.parametrize("content", [b"", OK, OK + b"A: b", b"HTTP/1.1 100 C\r\n\r\n"])
def test_a_head_that_comes_byte_by_byte_is_not_waited_for_without_end(one, content, monkeypatch):
    seconds = itertools.count()
    monkeypatch.setattr(connection, "time", SimpleNamespace(monotonic=lambda: next(seconds)))
    one.hub.faults = [faults.Raw(on=faults.RESOLVE, content=content, endless=b"a", pause=0.001)]
    with pytest.raises(RetryableError, match="takes too long"):
        read(one)
    assert next(seconds) < 100


def test_a_redirect_that_sends_its_body_byte_by_byte_is_not_waited_for(one, monkeypatch):
    monkeypatch.setattr(hub_client, "_REST_SECONDS", 0.1)
    target = f"/cdn/{one.hub.repositories.commit(REPO, 'main').files['a.gguf'].sha256}"
    content = b"HTTP/1.1 302 Found\r\nContent-Length: 16000\r\nLocation: " + target.encode() + b"\r\n\r\n"
    one.hub.faults = [faults.Raw(on=faults.RESOLVE, content=content, endless=b"a", pause=0.02)]
    assert read(one) == one.content[:10]


def test_a_circle_over_two_hubs_ends(one):
    with faults.FaultyHub({}) as other:
        other.faults = [faults.Raw(on="", content=redirect(f"{one.hub.endpoint}/{REPO}/resolve/x".encode()))]
        one.hub.faults = [faults.Raw(on="", content=redirect(f"{other.endpoint}/y".encode()))]
        with pytest.raises(CannotRun, match="redirects more than 10 times"):
            read(one)
        assert [entry.headers.get("authorization") for entry in other.log] == [None] * 5
        assert [entry.headers.get("authorization") for entry in one.hub.log] == ["Bearer hf_secret"] + [None] * 4


def test_cookies_are_not_kept(one):
    field = {"Set-Cookie": "session=1; Domain=localhost; Path=/"}
    one.hub.faults = [faults.Change(on="", times=None, fields=field)]
    one.fetch(token="hf_secret")
    assert [entry for entry in one.hub.log if "cookie" in entry.headers] == []


ENDLESS = {
    "one-byte-at-a-time": faults.Drip(),
    "one-byte-for-each-request": faults.Truncate(to=1, times=None),
    "head-without-end": faults.Raw(on=faults.DATA, content=OK, endless=b"a", pause=0.02),
    "100-continue": faults.Raw(on=faults.DATA, endless=b"HTTP/1.1 100 Continue\r\n\r\n", pause=0.02),
    "100-continue-at-full-speed": faults.Raw(on=faults.DATA, endless=b"HTTP/1.1 100 Continue\r\n\r\n" * MANY),
    "range-ignored-and-one-byte-at-a-time": faults.Drip(),
}


@pytest.mark.parametrize("name", ENDLESS)
def test_a_transfer_that_would_never_end_ends_with_a_reason_and_is_resumed(one, name):
    one.settings = replace(IMPATIENT, connections=1)
    first = [faults.IgnoreRange(times=2)] if name.startswith("range") else [faults.HangUp(times=1)]  # a sound part
    one.hub.faults = [*first, replace(ENDLESS[name])]
    with pytest.raises(CannotRun, match=r"m/a\.gguf could not be fetched: ") as caught:
        one.fetch()
    assert caught.value.code == "hub-unreachable"
    assert caught.value.exit_code == 3
    kept = max(event.done for event in one.events if isinstance(event, Downloading))
    one.hub.faults = []
    one.fetch()
    assert one.published.read_bytes() == one.content
    planned = [event for event in one.events if isinstance(event, Planned)]
    assert planned[-1].bytes_missing <= len(one.content) - kept
