"""Whether an engine responds.  The servers here are no engines: a real one cannot be made to answer like this."""

from __future__ import annotations

import socket
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

from corral.engine import engine_process
from corral.engine.engine_process import Engine, Probe


@contextmanager
def serving(status, slots=b"[]"):
    """A server whose /health has *status*, and whose /slots is *slots*; its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(status if self.path == "/health" else 200)
            self.end_headers()
            self.wfile.write(slots if self.path == "/slots" else b"{}")

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


def probed(address):
    return engine_process.probe(address, None, limit_s=0.5)


def test_an_engine_that_responds_and_is_idle_is_not_silent():
    with serving(200) as address:
        assert probed(address) == Probe()
    assert engine_process.trouble(Engine(7, is_stopped=False), Probe()) == ("", "")


@pytest.mark.parametrize(
    ("status", "slots", "problem"),
    [
        (503, b"[]", "its /health has the status 503"),
        (200, b"<html>", "as an engine does (JSONDecodeError)"),
        (200, b'{"a": 1}', "as an engine does (TypeError)"),
        (200, b"[{}]", "as an engine does (KeyError)"),
        (200, b"[" * 100_000, "as an engine does (RecursionError)"),
    ],
)
def test_an_engine_that_responds_as_none_does_is_silent(status, slots, problem):
    with serving(status, slots) as address:
        state, reason = engine_process.trouble(None, probed(address))
    assert (state, reason.endswith(problem)) == ("silent", True), reason


def test_an_engine_that_accepts_and_never_responds_is_silent_within_the_limit():
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        found = probed(f"http://127.0.0.1:{deaf.getsockname()[1]}")
    assert (found.progresses, found.problem) == (False, "")
    assert engine_process.trouble(None, found)[0] == "silent"


def test_an_engine_that_listens_no_more_is_silent():
    with socket.create_server(("127.0.0.1", 0)) as gone:
        address = f"http://127.0.0.1:{gone.getsockname()[1]}"
    assert engine_process.trouble(None, probed(address)) == (
        "silent",
        f"it does not respond at {address} as an engine does (ConnectError)",
    )


def test_an_engine_that_is_late_and_works_is_busy_and_not_silent():
    assert engine_process.trouble(Engine(7, is_stopped=False), Probe(late_s=5.0)) == ("", "")


def test_a_stopped_engine_hangs_whatever_its_probe_shows():
    hanging = ("hanging", "its engine (pid 7) is stopped (SIGSTOP)")
    assert engine_process.trouble(Engine(7, is_stopped=True), None) == hanging
