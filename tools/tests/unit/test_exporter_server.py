"""The exporter's server: whom it answers, what it sends whole, and its end at a signal, whenever that comes."""

from __future__ import annotations

import signal
import socket
from contextlib import ExitStack, closing, suppress
from http.client import HTTPConnection
from urllib.request import urlopen

import pytest
from prometheus_client.registry import Collector

from corral.exporter import recorder
from corral.exporter import server as server_module
from corral.exporter.server import serve_until_signal, serving
from tests.support.engine_process import wait_for
from tests.support.recorded import Scene, reading


class NoMetrics(Collector):
    def collect(self):
        return []


@pytest.mark.timeout(60)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_that_comes_before_it_waits_for_one_ends_it(number):
    handler, mask = signal.getsignal(number), signal.pthread_sigmask(signal.SIG_BLOCK, [])
    answers = []

    def announce(port):
        with urlopen(f"http://127.0.0.1:{port}/health") as answer:
            answers.append(answer.read())
        signal.raise_signal(number)

    serve_until_signal(("127.0.0.1", 0), NoMetrics(), dict, announce, ())

    assert answers == [b"OK\n"]
    assert (signal.getsignal(number), signal.pthread_sigmask(signal.SIG_BLOCK, [])) == (handler, mask)


def ask(server, path, **headers):
    """The status and the body of a GET of *path*."""
    connection = HTTPConnection("127.0.0.1", server.server_port, timeout=30)
    try:
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


@pytest.fixture
def recording(tmp_path):
    """A server with records of more than one piece."""
    with closing(Scene(tmp_path / "records")) as scene:
        for at in range(400):
            scene.sample(reading(immich_ml=at))
        with serving(("127.0.0.1", 0), NoMetrics(), dict, scene.recorder) as server:
            yield scene, server


def exchange(server, method, path):
    """All that is answered to *method* and *path*: the status line, the fields but the date, and the body."""
    with socket.create_connection(("127.0.0.1", server.server_port), 30) as connection:
        connection.sendall(f"{method} {path} HTTP/1.0\r\nHost: localhost\r\n\r\n".encode())
        with connection.makefile("rb") as answer:
            head, _, body = answer.read().partition(b"\r\n\r\n")
    return [line for line in head.split(b"\r\n") if not line.startswith(b"Date:")], body


@pytest.mark.parametrize("path", ["/", "/card.json", "/records?since=0", "/records", "/metrics", "/health", "/nothing"])
def test_a_head_is_the_answer_to_a_get_without_its_body(recording, path):
    _, server = recording
    head, body = exchange(server, "GET", path)
    assert exchange(server, "HEAD", path) == (head, b"")
    assert b"Content-Length: %d" % len(body) in head


@pytest.mark.parametrize("path", ["/", "/card.json", "/records?since=0"])
def test_a_page_of_another_name_gets_nothing(recording, path):
    _, server = recording
    port = server.server_port
    for host in ("evil.example", f"evil.example:{port}", "127.0.0.1.evil.example", "[::1].evil.example"):
        assert ask(server, path, Host=host)[0] in (400, 421)
    for host in (f"127.0.0.1:{port}", "localhost", "[::1]:9460", "10.0.0.7:9460"):
        assert ask(server, path, Host=host)[0] == 200
    assert ask(server, "/metrics", Host="card-exporter.corral-exporter.svc:9460")[0] == 200


def test_it_listens_on_an_address_of_ipv6():
    with (
        serving(("::1", 0), NoMetrics(), dict) as server,
        urlopen(f"http://[::1]:{server.server_port}/health") as answer,
    ):
        assert answer.read() == b"OK\n"


def test_records_come_whole_while_the_recorder_goes_on(recording):
    scene, server = recording
    expected = b"".join(path.read_bytes() for path in recorder.segments(scene.folder))
    assert len(expected) > 64 << 10
    assert ask(server, "/records?since=0") == (200, expected)


def test_readers_of_records_that_do_not_read_leave_the_metrics_alone(recording):
    _, server = recording
    with ExitStack() as opened:
        for _ in range(8):
            one = opened.enter_context(socket.create_connection(("127.0.0.1", server.server_port)))
            one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 10)
            one.sendall(b"GET /records?since=0 HTTP/1.0\r\n\r\n")
        assert {ask(server, "/metrics")[0] for _ in range(4)} == {200}


def test_a_request_that_comes_byte_by_byte_is_ended_in_time(monkeypatch):
    monkeypatch.setattr(server_module, "_CLIENT_S", 0.5)
    with (
        serving(("127.0.0.1", 0), NoMetrics(), dict) as server,
        socket.create_connection(("127.0.0.1", server.server_port)) as slow,
    ):
        slow.sendall(b"GET /metrics HTTP/1.0\r\nX: ")
        slow.settimeout(0.05)

        def is_ended():
            try:
                slow.sendall(b"x")
                return slow.recv(1) == b""
            except TimeoutError:
                return False
            except OSError:
                return True

        wait_for(is_ended, what="the end of the connection")


def test_a_connection_too_many_gets_503_until_another_has_ended(monkeypatch):
    monkeypatch.setattr(server_module, "_CONNECTIONS", 4)
    with serving(("127.0.0.1", 0), NoMetrics(), dict) as server:
        with ExitStack() as opened:
            for _ in range(4):
                opened.enter_context(socket.create_connection(("127.0.0.1", server.server_port)))
            late = opened.enter_context(socket.create_connection(("127.0.0.1", server.server_port), timeout=30))
            assert late.recv(12) == b"HTTP/1.0 503"

        def status():
            with suppress(OSError):
                return ask(server, "/health")[0]

        wait_for(lambda: status() == 200, what="a free place")
