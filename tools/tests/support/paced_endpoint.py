"""An endpoint that streams at a fixed pace, and misbehaves by the name of the model.

A stub, because its pace is the known answer of a benchmark's client, and because an engine cannot be made to end in the
middle of each of these pieces.  Each answer has the endpoint's own times, as llama.cpp's ``timings``.

    python -m tests.support.paced_endpoint FIRST_MS TOKEN_MS TOKENS [SLOTS]        prints its address
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
LAST = b"0\r\n\r\n"
DONE = b"data: [DONE]\n\n"

FAULTS = {
    "cut": "cut",
    "drop": "broken-body",
    "reset-within": "broken-body",
    "reset-before": "connection-reset",
    "stall-before": "stalled",
    "stall-within": "stalled",
    "drip": "too-long",
    "http-429": "http-429",
    "http-500": "http-500",
    "http-502-empty": "http-502",
    "http-503": "http-503",
    "redirect": "http-302",
    "bad-json": "bad-json",
    "no-protocol": "bad-json",
    "no-object": "bad-json",
    "endless-line": "bad-json",
    "error-in-stream": "error-in-stream",
    "bare-error": "error-in-stream",
    "no-stream": "not-a-stream",
    "empty": "empty",
    "nothing": "cut",
    "no-finish-reason": "no-finish-reason",
    "no-usage": "no-usage",
    "no-tokens": "no-usage",
}
"""The model that misbehaves so, and the outcome that a client must see."""


BEFORE_LATER = 3
"""Requests before a model that is called ``later-<fault>`` misbehaves."""


@dataclass
class Pace:
    """How it answers: seconds to the first token and between two, tokens, and how many of them a piece has.

    Attributes:
        slots: answers at a time; the others wait.
        heads: the head of each request, in order.
        bodies: the body of each.
    """

    first_s: float = 0.0
    token_s: float = 0.0
    tokens: int = 16
    piece: int = 1
    slots: int = 1 << 30
    heads: list[bytes] = field(default_factory=list)
    bodies: list[dict[str, Any]] = field(default_factory=list)


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def _event(document: Any) -> bytes:
    return b"data: " + json.dumps(document).encode() + b"\n\n"


def _content(text: str, finish: str | None = None) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": {"content": text} if text else {}, "finish_reason": finish}]}


BAD = {
    "cut": LAST,
    "bad-json": _chunk(b"data: {broken\n\n"),
    "no-protocol": _chunk(b"hello\n"),
    "no-object": _chunk(b"data: [1]\n\n"),
    "endless-line": _chunk(b"data: " + b"x" * (2 << 20)),
    "error-in-stream": _chunk(_event({"error": {"message": "no memory"}})),
    "bare-error": _chunk(b'{"error":{"message":"no memory"}}\n'),
}
"""What a model writes in place of the second half of its answer."""


def _behaviour(pace: Pace, asked: dict[str, Any]) -> str:
    """The model, whose ``later-`` is for the requests after ``BEFORE_LATER``."""
    name = str(asked.get("model", ""))
    behaves = len(pace.bodies) <= BEFORE_LATER
    return ("honest" if behaves else name.removeprefix("later-")) if name.startswith("later-") else name


async def _answer(pace: Pace, asked: dict[str, Any], writer: asyncio.StreamWriter) -> None:
    """Every fault is in the place where the honest answer would be otherwise."""
    now, model = asyncio.get_running_loop().time, _behaviour(pace, asked)
    received = now()
    if model.startswith("http-") or model == "redirect":
        status = 302 if model == "redirect" else int(model.split("-")[1])
        body = b"" if model.endswith("empty") else b'{"error": {"message": "no"}}'
        head = f"HTTP/1.1 {status} X\r\nRetry-After: 3\r\nLocation: /else\r\nContent-Length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)
        return
    if model == "no-stream":
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 2\r\n\r\nhi")
        return
    if model == "reset-before":
        writer.transport.abort()
        return
    if model == "stall-before":
        await asyncio.sleep(3600)
    writer.write(HEAD)
    if model == "nothing":
        writer.write(LAST)
        return
    writer.write(_chunk(_event({"choices": [{"index": 0, "delta": {"role": "assistant"}, "finish_reason": None}]})))
    first = last = received
    for number in range(pace.piece - 1, pace.tokens, pace.piece):
        wait = received + pace.first_s + number * pace.token_s - now()
        if wait > 0:
            await asyncio.sleep(wait)
        last = now()
        first = last if number < pace.piece else first
        if number >= pace.tokens // 2 and await _misbehaved(model, writer):
            return
        if model != "empty":
            writer.write(_chunk(_event(_content("word " * pace.piece))))
    if model != "no-finish-reason":
        writer.write(_chunk(_event(_content("", "length"))))
    tokens = 0 if model == "no-tokens" else pace.tokens
    if model != "no-usage":
        usage = {"prompt_tokens": 20, "completion_tokens": tokens, "prompt_tokens_details": {"cached_tokens": 4}}
        timings = {"prompt_n": 16, "cache_n": 4, "prompt_ms": 1000 * (first - received), "predicted_n": tokens}
        timings["predicted_ms"] = 1000 * (last - first)
        writer.write(_chunk(_event({"choices": [], "usage": usage, "timings": timings})))
    writer.write(_chunk(DONE) + LAST)


async def _misbehaved(model: str, writer: asyncio.StreamWriter) -> bool:
    """Whether the answer of *model* ends here."""
    if model in BAD:
        writer.write(BAD[model])
        return True
    if model == "drop":
        writer.close()
    elif model == "reset-within":
        await writer.drain()
        writer.transport.abort()
    elif model == "stall-within":
        await asyncio.sleep(3600)
    elif model == "drip":
        while not writer.transport.is_closing():
            writer.write(_chunk(b": still here\n\n"))
            await asyncio.sleep(0.02)
    else:
        return False
    return True


@asynccontextmanager
async def paced(pace: Pace) -> AsyncIterator[str]:
    """The address of an endpoint with that *pace*, while the block lasts."""
    slots = asyncio.Semaphore(pace.slots)
    open_ones: set[asyncio.Task[Any]] = set()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task
        open_ones.add(task)
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
                asked = json.loads(await reader.readexactly(int(length.partition(b":")[2])))
                pace.heads.append(head)
                pace.bodies.append(asked)
                async with slots:
                    await _answer(pace, asked, writer)
                    await writer.drain()
        except (OSError, EOFError, asyncio.CancelledError):
            pass
        finally:
            open_ones.discard(task)
            writer.close()

    server = await asyncio.start_server(connected, "127.0.0.1", 0, backlog=1024)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for task in tuple(open_ones):
            task.cancel()
        await asyncio.gather(*open_ones, return_exceptions=True)


@contextmanager
def serving(pace: Pace) -> Iterator[str]:
    """As ``paced``, from a thread of its own."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    endpoint = paced(pace)
    try:
        yield asyncio.run_coroutine_threadsafe(endpoint.__aenter__(), loop).result()
        asyncio.run_coroutine_threadsafe(endpoint.__aexit__(None, None, None), loop).result()
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def _serve(pace: Pace) -> None:
    async with paced(pace) as address:
        print(address, flush=True)  # noqa: T201 - a program of its own
        await asyncio.Event().wait()


if __name__ == "__main__":
    first_ms, token_ms, tokens, *slots = map(float, sys.argv[1:])
    asyncio.run(_serve(Pace(first_ms / 1000, token_ms / 1000, int(tokens), slots=int(slots[0]) if slots else 1 << 30)))
