"""The guard as a process, raw requests to it, and a llama-swap that a test controls.

The stub in place of llama-swap records every byte that it gets and answers what the test sets, byte for byte: nothing
less shows that a request did not reach it, or how a broken answer is relayed.  The real one is in tests/stack.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import queue
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from http.client import BadStatusLine, HTTPResponse, IncompleteRead
from pathlib import Path
from typing import Any, cast

from corral import door

LIMIT_S = 60
"""No test waits for it: it ends one that would hang."""

INTERNAL_KEY = "internal-key-of-llama-swap"
KEYS = {"operator": "operator-key", "first": "key-of-first", "second": "key-of-second"}
CLIENTS = {
    "operator": {"models": None, "requests": None, "role": "operator"},
    "first": {"models": None, "requests": 2, "role": "client"},
    "second": {"models": ["tiny-text"], "requests": None, "role": "client"},
}
MODELS = {"tiny-text": "tiny-text", "gpt-4o": "tiny-text", "tiny-vision": "tiny-vision"}
_LIMITED = """
import asyncio, sys
from pathlib import Path
from door import __main__, config, guard, server
limits = guard.Limits(**%r)
asyncio.run(server.serve(config.read_config(Path(sys.argv[1])), __main__._write, limits=limits))
"""
OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"


@dataclass(frozen=True)
class Answer:
    """An answer, up to the end of the connection; status 0: the connection ended without one."""

    status: int
    fields: dict[str, str]
    body: bytes

    @property
    def error(self) -> dict[str, Any]:
        return json.loads(self.body)["error"]


@dataclass
class Guard:
    """A running guard.

    Attributes:
        records: what it wrote to stdout, as far as it was read.
    """

    process: subprocess.Popen[bytes]
    address: list[Any] | str
    keys: Path
    records: list[dict[str, Any]]
    _lines: queue.Queue[dict[str, Any]]

    def next_record(self, event: str = "request") -> dict[str, Any]:
        """Wait for the next record of *event*."""
        while True:
            record = self._lines.get(timeout=LIMIT_S)
            if record["event"] == event:
                return record

    def connect(self) -> socket.socket:
        if not isinstance(self.address, str):
            return socket.create_connection(tuple(self.address), LIMIT_S)
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(LIMIT_S)
        connection.connect(self.address)
        return connection

    def send(self, raw: bytes) -> Answer:
        """Send *raw*, and read until the guard ends the connection."""
        with self.connect() as connection:
            with contextlib.suppress(OSError):  # a refusal may come before the end of *raw*
                connection.sendall(raw)
            return read_answer(connection)

    def post(self, body: object, *, path: str = "/v1/chat/completions", key: str = "key-of-first", **fields) -> Answer:
        return self.send(post(body, path=path, key=key, **fields))

    def get(self, path: str, key: str = "", **fields) -> Answer:
        return self.send(request("GET", path, key=key, **fields))

    def set_keys(self, **keys: Sequence[str]) -> None:
        """Replace keys.json as `corral keys` does."""
        write_keys(self.keys, **keys)

    def errors(self) -> str:
        """What it wrote to stderr: nothing, unless it has a defect."""
        defects = [record for record in self.records if record["event"] == "defect"]
        return self.keys.with_name("guard.err").read_text() + "".join(map(str, defects))

    def stop(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(LIMIT_S)


def request(method: str, path: str, body: bytes = b"", *, key: str = "", **fields) -> bytes:
    """A request as a client sends it; *fields* are further ones, ``_`` for ``-``."""
    given = {"Host": "127.0.0.1", **({"Authorization": f"Bearer {key}"} if key else {})}
    if body:
        given |= {"Content-Type": "application/json", "Content-Length": str(len(body))}
    given |= {name.replace("_", "-"): value for name, value in fields.items()}
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in given.items())]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


def post(body: object, *, path: str = "/v1/chat/completions", key: str = "key-of-first", **fields) -> bytes:
    """A request with *body* as JSON, or as it is when it is bytes."""
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return request("POST", path, raw, key=key, **fields)


def read_answer(connection: socket.socket) -> Answer:
    """Read until the connection ends; what arrived of the body is without its chunks, which end anywhere."""
    received = b""
    with contextlib.suppress(ConnectionResetError):
        while data := connection.recv(1 << 16):
            received += data
    response = HTTPResponse(cast(socket.socket, _Received(received)))
    try:
        response.begin()
    except BadStatusLine:
        return Answer(0, {}, b"")
    try:
        body = response.read()
    except IncompleteRead as error:
        body = error.partial
    return Answer(response.status, {name.lower(): value for name, value in response.getheaders()}, body)


class _Received:
    """What ``HTTPResponse`` takes for a socket."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def makefile(self, _mode: str) -> io.BytesIO:
        return io.BytesIO(self._data)


def write_keys(path: Path, **keys: Sequence[str]) -> None:
    """keys.json with the hashes of *keys*, in one step."""
    clients = {name: [sha256(one.encode()).hexdigest() for one in given] for name, given in keys.items()}
    new = path.with_suffix(".new")
    new.write_text(json.dumps({"version": 1, "clients": clients}))
    new.replace(path)


def settings(folder: Path, upstream: int, **changes: object) -> dict[str, Any]:
    """A configuration of the guard, with *changes*, and the files that it names."""
    (folder / "internal").write_text(INTERNAL_KEY)
    write_keys(folder / "keys.json", **{name: [key] for name, key in KEYS.items()})
    return {
        "version": 1,
        "listen": {"host": "127.0.0.1", "port": 0},
        "upstream": {"host": "127.0.0.1", "port": upstream},
        "internal_key_file": str(folder / "internal"),
        "keys": str(folder / "keys.json"),
        "clients": CLIENTS,
        "models": MODELS,
        "adapters": {},
        "chosen_versions": None,
        "groups": {},
        "tasks": {},
        "peers": {},
        "image_hosts": [],
        "body_mib": 1,
        "retry_after_seconds": 30,
        "drain_seconds": 60,
    } | changes


@contextlib.contextmanager
def run_guard(
    folder: Path,
    upstream: int,
    *,
    limits: dict[str, float] | None = None,
    wrap: Callable[[list[str]], list[str]] = list,
    **changes: object,
) -> Iterator[Guard]:
    """A guard in front of the port *upstream*, until the block ends; it must not write a word to stderr.

    Args:
        folder: for its files.
        upstream: the port of llama-swap.
        limits: of time, in place of those that a person would not notice.
        wrap: makes its command another one.
        changes: of its configuration.
    """
    document = settings(folder, upstream, **changes)
    config = folder / "guard.json"
    config.write_text(json.dumps(document))
    program = ["-c", _LIMITED % limits] if limits else ["-m", "door"]
    command = [sys.executable, "-S", "-s", "-W", "error", *program, str(config)]  # with the standard library alone
    environment = {**os.environ, "PYTHONPATH": str(Path(door.__file__).parents[1])}
    with (folder / "guard.err").open("wb") as errors:
        process = subprocess.Popen(wrap(command), stdout=subprocess.PIPE, stderr=errors, env=environment)
        lines: queue.Queue[dict[str, Any]] = queue.Queue()
        records: list[dict[str, Any]] = []
        reader = threading.Thread(target=_read, args=(process, lines, records))
        reader.start()
        guard = Guard(process, "", folder / "keys.json", records, lines)
        try:
            guard.address = guard.next_record("listening")["at"]
            yield guard
        finally:
            process.kill()
            process.wait()
            reader.join()
            assert process.stdout is not None
            process.stdout.close()
            assert guard.errors() == ""


def _read(process: subprocess.Popen[bytes], lines: queue.Queue[dict[str, Any]], records: list[dict[str, Any]]) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        records.append(json.loads(line))
        lines.put(records[-1])
    lines.put({"event": "listening", "at": ""})  # an end before that is in stderr


Act = Callable[[socket.socket], None]


class StubLlamaSwap:
    """Records what it gets.

    Attributes:
        port: where it listens, on loopback.
        requests: the bytes of each request.
        acts: by path; else what the connection gets is ``OK``.
        closed: the path of each request whose connection the guard closed before the act was over.
    """

    def __init__(self) -> None:
        self.requests: list[bytes] = []
        self.acts: dict[str, Act] = {}
        self.closed: queue.Queue[str] = queue.Queue()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = int(self._listener.getsockname()[1])
        self._threads: list[threading.Thread] = []
        self._thread = threading.Thread(target=self._accept)
        self._thread.start()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listener.close()
        for thread in self._threads:
            thread.join()

    def answer(self, path: str, raw: bytes) -> None:
        """Answer *path* with *raw*, then close."""
        self.acts[path] = lambda connection: connection.sendall(raw)

    def fail(self, status: int, body: object, *, path: str = "/v1/chat/completions") -> None:
        """Answer *path* with *status* and *body*."""
        raw = json.dumps(body).encode() if body else b""
        head = f"HTTP/1.1 {status} x\r\nContent-Type: application/json\r\nContent-Length: {len(raw)}\r\n\r\n"
        self.answer(path, head.encode() + raw)

    def log(self, model: str, text: str) -> None:
        """Answer for the log of *model*: *text* as the first chunk, then no more until the guard closes."""

        def act(connection: socket.socket) -> None:
            chunk = f"{len(text.encode()):x}\r\n{text}\r\n"
            connection.sendall(f"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{chunk}".encode())
            until_closed(connection)

        self.acts[f"/logs/stream/{model}"] = act

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            connection.settimeout(LIMIT_S)
            thread = threading.Thread(target=self._serve, args=(connection,))
            self._threads.append(thread)
            thread.start()

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            received = b""
            while b"\r\n\r\n" not in received and (data := connection.recv(1 << 16)):
                received += data
            if not received:  # a guard that ends may have connected, and no more
                return
            head, _, rest = received.partition(b"\r\n\r\n")
            body = bytearray(rest)
            length = int((re.search(rb"Content-Length: (\d+)", head) or [b"", b"0"])[1])
            while len(body) < length and (data := connection.recv(1 << 20)):
                body += data
            self.requests.append(head + b"\r\n\r\n" + body)
            path = head.split(b" ")[1].decode()
            try:
                self.acts.get(path, lambda one: one.sendall(OK))(connection)
            except OSError:
                self.closed.put(path)


def until_closed(connection: socket.socket) -> None:
    """An act: answer nothing more, until the guard closes the connection."""
    while connection.recv(1 << 16):
        pass
    raise ConnectionResetError


@contextlib.contextmanager
def stub_llama_swap() -> Iterator[StubLlamaSwap]:
    """A stub that listens until the block ends; the guard in front of it must have ended before."""
    stub = StubLlamaSwap()
    try:
        yield stub
    finally:
        stub.close()


class Gate:
    """An act that answers with *first*, then waits until the test opens it, and ends with *last*."""

    def __init__(self, first: bytes, last: bytes) -> None:
        self._first, self._last, self.open = first, last, threading.Event()

    def __call__(self, connection: socket.socket) -> None:
        connection.sendall(self._first)
        assert self.open.wait(LIMIT_S)
        connection.sendall(self._last)
