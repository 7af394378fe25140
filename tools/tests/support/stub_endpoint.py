"""A llama-swap that misbehaves on demand.

Why a stub, when the real llama-swap and llama.cpp run everywhere else in these tests: the faults below cannot be had
from the real ones when a test wants them.  A process would have to die in the right millisecond, a load to hang, a
proxy to drip bytes, a model to think up a wrong colour.  Statuses and bodies are those that llama-swap
v0.1.6-0.20260708034905 and llama-server b11549 were observed to send.

By default the stub is honest: it loads one model at a time and logs each load, answers ``OK``, and names
the colours of images by their pixels.
"""

from __future__ import annotations

import base64
import contextlib
import json
import struct
import threading
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Act = Callable[["Exchange"], None]
COLOURS = {
    (255, 0, 0): "red",
    (0, 0, 255): "blue",
    (0, 255, 0): "green",
    (255, 255, 0): "yellow",
    (255, 255, 255): "white",
    (0, 0, 0): "black",
}


@dataclass
class Stub:
    """The state of the endpoint, which a test sets up before and reads after.

    Attributes:
        models: what /v1/models lists.
        running: model → state, the content of /running; None: there is no /running (a plain llama-server, LiteLLM).
        loads: each load that a request caused, in order.
        asked: (model, kind of question) of each request, in order.
        acts: (model, kind) or (model, "*") or a path → what happens in place of the honest answer.
        health: the status of /health.
        api_key: what requests must carry; empty: nothing.
    """

    models: list[str]
    running: dict[str, str] | None = field(default_factory=dict)
    loads: list[str] = field(default_factory=list)
    asked: list[tuple[str, str]] = field(default_factory=list)
    acts: dict[Any, Act] = field(default_factory=dict)
    health: int = 200
    api_key: str = ""
    paths: list[str] = field(default_factory=list)
    port: int = 0
    closing: threading.Event = field(default_factory=threading.Event)

    @property
    def root(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def load(self, model: str) -> None:
        """What a request for a model does in llama-swap: load it unless it is there, and evict the one that was."""
        if self.running is None:
            return
        if model not in self.running:
            self.loads.append(model)
            self.running.clear()
        self.running[model] = "ready"


class Exchange(BaseHTTPRequestHandler):
    """One request and its answer."""

    protocol_version = "HTTP/1.1"
    stub: Stub
    question: dict[str, Any]

    def do_GET(self) -> None:
        self.stub.paths.append(self.path)
        path = self.path.removeprefix("/prefix")
        if self.path in self.stub.acts:
            self.stub.acts[self.path](self)
        elif path == "/health":
            self.reply(self.stub.health, "text/plain", b"OK")
        elif self.stub.api_key and self.headers["Authorization"] != f"Bearer {self.stub.api_key}":
            self.reply_json(401, {"error": "unauthorized: invalid or missing API key", "src": "llama-swap"})
        elif path == "/v1/models":
            self.reply_json(200, {"object": "list", "data": [{"id": model} for model in self.stub.models]})
        elif path == "/running" and self.stub.running is not None:
            states = self.stub.running.items()
            self.reply_json(200, {"running": [{"model": model, "state": state} for model, state in states]})
        elif path.startswith("/api/metrics/activity?") and self.stub.running is not None:
            self.reply_json(200, {"data": []})
        else:
            self.reply(404, "text/plain", b"404 page not found\n")

    def do_POST(self) -> None:
        self.stub.paths.append(self.path)
        self.question = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        model = self.question["model"]
        shown = self.shown()
        kind = "stream" if self.question.get("stream") else "-".join(["images", *shown]) if shown else "answer"
        self.stub.asked.append((model, kind))
        act = self.stub.acts.get((model, kind)) or self.stub.acts.get((model, "*"))
        if act:
            act(self)
            return
        self.stub.load(model)
        if kind == "stream":
            streamed("OK")(self)
        else:
            answers(", ".join(shown) or "OK")(self)

    def shown(self) -> list[str]:
        """The colours of the images in the question, in order, read from their pixels."""
        content = self.question["messages"][0]["content"]
        if isinstance(content, str):
            return []
        urls = [part["image_url"]["url"] for part in content if part["type"] == "image_url"]
        return [colour_of(base64.b64decode(url.removeprefix("data:image/png;base64,"))) for url in urls]

    def reply(self, status: int, content_type: str, body: bytes, **headers: str) -> None:
        self.send_response(status)
        if content_type:
            self.send_header("Content-Type", content_type)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def reply_json(self, status: int, value: Any) -> None:
        self.reply(status, "application/json", json.dumps(value).encode())

    def begin(self, content_type: str) -> None:
        """Send the head of an answer whose end is the end of the connection."""
        self.send_response(200)
        self.send_header("Content-Type", content_type)
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Write no log."""


@contextlib.contextmanager
def serve(*models: str, **state: Any) -> Iterator[Stub]:
    """A stub that lists *models* and listens on a port of its own until the block ends."""
    stub = Stub(models=list(models), **state)
    server = _Server(("127.0.0.1", 0), type("BoundExchange", (Exchange,), {"stub": stub}))
    stub.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield stub
    finally:
        stub.closing.set()
        server.shutdown()
        thread.join()
        server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = False  # server_close waits for them, so no test leaves a thread behind

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hangs up is what the time limits are about."""


def completion(content: Any, *, finish_reason: str | None = "stop", **message: Any) -> dict[str, Any]:
    """The body of a chat completion."""
    choice = {"index": 0, "message": {"role": "assistant", "content": content, **message}}
    return {"object": "chat.completion", "choices": [{**choice, "finish_reason": finish_reason}]}


def answers(content: Any, **message: Any) -> Act:
    """A chat completion with *content*."""
    return lambda exchange: exchange.reply_json(200, completion(content, **message))


def replies(
    status: int, body: bytes | str | dict[str, Any], content_type: str = "application/json", **headers: str
) -> Act:
    """An answer as it is."""
    raw = json.dumps(body).encode() if isinstance(body, dict) else body.encode() if isinstance(body, str) else body
    return lambda exchange: exchange.reply(status, content_type, raw, **headers)


def in_turn(*acts: Act) -> Act:
    """One act per request; the last one stays."""
    left = list(acts)

    def next_act(exchange: Exchange) -> None:
        act = left.pop(0) if len(left) > 1 else left[0]
        act(exchange)

    return next_act


def first_loads(act: Act) -> Act:
    """*act*, after the model was loaded as llama-swap would."""

    def load_and_act(exchange: Exchange) -> None:
        exchange.stub.load(exchange.question["model"])
        act(exchange)

    return load_and_act


def fails_to_load(exchange: Exchange) -> None:
    """What llama-swap does when the model's process exits before it is ready; the next request tries again."""
    exchange.stub.loads.append(exchange.question["model"])
    message = "unspecific error: upstream command exited prematurely"
    exchange.reply_json(500, {"error": message, "src": "llama-swap"})


def dies(exchange: Exchange) -> None:
    """What llama-swap does when the model's process dies over a request."""
    exchange.stub.load(exchange.question["model"])
    assert exchange.stub.running is not None
    del exchange.stub.running[exchange.question["model"]]
    exchange.reply(502, "", b"")


def stalls(exchange: Exchange) -> None:
    """Nothing, for ever."""
    exchange.close_connection = True
    exchange.stub.closing.wait()


def hangs_up(exchange: Exchange) -> None:
    """The connection is closed without an answer."""
    exchange.close_connection = True


def drips(exchange: Exchange) -> None:
    """A byte now and then: never silent for long, never done."""
    exchange.begin("text/event-stream")
    with contextlib.suppress(OSError):
        while not exchange.stub.closing.wait(0.02):
            exchange.wfile.write(b":")


def floods(exchange: Exchange) -> None:
    """An answer without end."""
    exchange.begin("application/json")
    with contextlib.suppress(OSError):
        while not exchange.stub.closing.is_set():
            exchange.wfile.write(b" " * 2**20)


def streamed(
    content: str,
    *,
    finish_reason: str | None = "stop",
    done: bool = True,
    reasoning: str = "",
    extra: bytes = b"",
) -> Act:
    """A stream in llama-server's shape: a role, one piece per character, a finish_reason, [DONE].

    Args:
        content: the answer.
        finish_reason: None leaves it out.
        done: whether [DONE] is sent; without it the connection just ends, cleanly.
        reasoning: thoughts before the content.
        extra: raw bytes between the content and the end.
    """

    def act(exchange: Exchange) -> None:
        exchange.begin("text/event-stream")
        deltas: list[dict[str, Any]] = [{"role": "assistant", "content": None}]
        deltas += [{"reasoning_content": piece} for piece in reasoning]
        deltas += [{"content": piece} for piece in content]
        for delta in deltas:
            exchange.wfile.write(event({"choices": [{"index": 0, "delta": delta, "finish_reason": None}]}))
        exchange.wfile.write(extra)
        if finish_reason:
            end = {"choices": [{"index": 0, "delta": {}, "finish_reason": finish_reason}]}
            exchange.wfile.write(event(end) + event({"choices": [], "usage": {"completion_tokens": len(content)}}))
        if done:
            exchange.wfile.write(b"data: [DONE]\n\n")

    return act


def event(value: Any) -> bytes:
    """*value* as one server-sent event."""
    return f"data: {json.dumps(value)}\n\n".encode()


def colour_of(png: bytes) -> str:
    """The name of the colour of a PNG's first pixel, after every chunk's checksum was checked."""
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    chunks: dict[bytes, bytes] = {}
    at = 8
    while at < len(png):
        (size,) = struct.unpack_from(">I", png, at)
        kind, payload = png[at + 4 : at + 8], png[at + 8 : at + 8 + size]
        assert struct.unpack_from(">I", png, at + 8 + size) == (zlib.crc32(kind + payload),)
        chunks[kind] = chunks.get(kind, b"") + payload
        at += 12 + size
    width, height = struct.unpack_from(">II", chunks[b"IHDR"])
    pixels = zlib.decompress(chunks[b"IDAT"])
    assert len(pixels) == height * (1 + 3 * width)
    return COLOURS[tuple(pixels[1:4])]
