"""One request and its streamed answer, with a time for each piece of it.

An answer counts only when it is whole.  A proxy whose engine was killed ends a stream with status 200 and a clean end
of the body: without a finish reason, ``[DONE]`` and a number of tokens, that is a failure, not a fast answer.
"""

from __future__ import annotations

import io
import json
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Self

import aiohttp

MOST_LINE_BYTES = 1 << 20
CONNECT_LIMIT_S = 10.0
_EXAMPLE_CHARACTERS = 200


class Outcome(StrEnum):
    """How a request ended.  Any other status than 200 is ``http-<status>``, and no member."""

    OK = "ok"
    NOT_CONNECTED = "not-connected"
    RESET = "connection-reset"
    STALLED = "stalled"
    TOO_LONG = "too-long"
    BROKEN_BODY = "broken-body"
    NOT_A_STREAM = "not-a-stream"
    BAD_JSON = "bad-json"
    ERROR_IN_STREAM = "error-in-stream"
    CUT = "cut"
    NO_FINISH_REASON = "no-finish-reason"
    EMPTY = "empty"
    NO_USAGE = "no-usage"


OUTCOMES: Mapping[str, str] = {
    Outcome.NOT_CONNECTED: "no connection could be made",
    Outcome.RESET: "the connection was closed before the answer began",
    Outcome.STALLED: "no byte came within the limit of --silence",
    Outcome.TOO_LONG: "the answer had not ended within the limit of --timeout",
    Outcome.BROKEN_BODY: "the connection was closed within the answer",
    Outcome.NOT_A_STREAM: "status 200, and no stream of events",
    Outcome.BAD_JSON: "a line of the stream that is no JSON",
    Outcome.ERROR_IN_STREAM: "status 200, and an error within the stream",
    Outcome.CUT: "the stream ended without [DONE]: the engine may have died",
    Outcome.NO_FINISH_REASON: "the stream has [DONE] and no finish_reason",
    Outcome.EMPTY: "the answer has no content",
    Outcome.NO_USAGE: "the stream has no number of tokens (usage, timings)",
}
"""Each but OK, as words."""


def described(outcome: str) -> str:
    """*outcome* with its meaning, for people."""
    return f"{outcome} ({OUTCOMES[outcome]})" if outcome in OUTCOMES else outcome


@dataclass(slots=True)
class Sample:
    """One request.  Times are seconds of ``time.perf_counter``, None: that did not happen.

    Attributes:
        scheduled: when it was to be sent; in a closed loop that is when it was sent.
        sent: when it was.
        outcome: an ``Outcome`` or ``http-<status>``.
        first, last: when the first and the last piece of content arrived.
        ended: when the answer, or the failure, was complete.
        chunks: pieces of content.
        gaps: seconds between them.
        prompt_tokens: of the prompt, by the server.
        cached_tokens: those of them that the server had in its cache.
        output_tokens: of the answer, by the server.
        server_prompt_s, server_output_s: what llama.cpp took for both, by its ``timings``.
        retry_after: of a refusal, as the server wrote it.
        example: what the server wrote about a failure.
    """

    scheduled: float
    sent: float = 0.0
    outcome: str = ""
    first: float | None = None
    last: float | None = None
    ended: float = 0.0
    chunks: int = 0
    gaps: list[float] = field(default_factory=list)
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    output_tokens: int | None = None
    server_prompt_s: float | None = None
    server_output_s: float | None = None
    retry_after: str = ""
    example: str = ""

    @property
    def is_ok(self) -> bool:
        """Whether the answer is whole."""
        return self.outcome == Outcome.OK


class Broken(Exception):
    """A stream that cannot be read further; the outcome, and what was received."""

    def __init__(self, outcome: Outcome, example: object) -> None:
        super().__init__(outcome)
        self.outcome, self.example = outcome, str(example)[:_EXAMPLE_CHARACTERS]


class StreamedAnswer:
    """Reads the bytes of a stream of events into a ``Sample``, as they arrive."""

    def __init__(self, sample: Sample) -> None:
        self._sample = sample
        self._rest = b""
        self._has_finished = self._is_done = False

    def feed(self, received: bytes, at: float) -> None:
        """Take the bytes that arrived *at* a time.

        Raises:
            Broken: they are no stream of a chat completion.
        """
        if self._is_done:
            return
        *lines, self._rest = (self._rest + received).split(b"\n")
        if len(self._rest) > MOST_LINE_BYTES:
            raise Broken(Outcome.BAD_JSON, f"a line of more than {MOST_LINE_BYTES} bytes")
        for line in lines:
            self._take(line.strip(), at)

    def outcome(self) -> Outcome:
        """How the answer ended, now that its body has."""
        sample = self._sample
        if not self._is_done:
            return Outcome.CUT
        if not self._has_finished:
            return Outcome.NO_FINISH_REASON
        if not sample.chunks:
            return Outcome.EMPTY
        return Outcome.OK if sample.output_tokens else Outcome.NO_USAGE

    def _take(self, line: bytes, at: float) -> None:
        name, _, value = line.partition(b":")
        value = value.strip()
        if name == b"data" and value == b"[DONE]":
            self._is_done = True
        elif name == b"data":
            self._chunk(_json(value), at)
        elif name not in (b"", b"event", b"id", b"retry"):  # llama-swap appends a bare error to a stream that it began
            raise Broken(Outcome.ERROR_IN_STREAM if line.startswith((b"{", b"error")) else Outcome.BAD_JSON, line)

    def _chunk(self, chunk: Any, at: float) -> None:
        if not isinstance(chunk, dict):
            raise Broken(Outcome.BAD_JSON, chunk)
        if chunk.get("error"):
            raise Broken(Outcome.ERROR_IN_STREAM, chunk["error"])
        for choice in _items(chunk.get("choices")):
            delta = choice.get("delta")
            if isinstance(delta, dict) and any(
                delta.get(key) for key in ("content", "reasoning_content", "tool_calls")
            ):
                self._content(at)
            self._has_finished |= isinstance(choice.get("finish_reason"), str)
        _read_usage(chunk.get("usage"), self._sample)
        _read_timings(chunk.get("timings"), self._sample)

    def _content(self, at: float) -> None:
        sample = self._sample
        if sample.last is None:
            sample.first = at
        else:
            sample.gaps.append(at - sample.last)
        sample.last = at
        sample.chunks += 1


def _json(text: bytes) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise Broken(Outcome.BAD_JSON, text) from None


def _items(value: Any) -> list[dict[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _read_usage(usage: Any, sample: Sample) -> None:
    """OpenAI's ``usage``; llama.cpp has the cached part as OpenAI has it."""
    if not isinstance(usage, dict):
        return
    sample.prompt_tokens = _count(usage.get("prompt_tokens"), sample.prompt_tokens)
    sample.output_tokens = _count(usage.get("completion_tokens"), sample.output_tokens)
    details = usage.get("prompt_tokens_details")
    if isinstance(details, dict):
        sample.cached_tokens = _count(details.get("cached_tokens"), sample.cached_tokens)


def _read_timings(timings: Any, sample: Sample) -> None:
    """llama.cpp's ``timings``: ``prompt_n`` tokens were read, and ``cache_n`` more were in its cache."""
    if not isinstance(timings, dict):
        return
    cached, read = _count(timings.get("cache_n"), None), _count(timings.get("prompt_n"), None)
    sample.cached_tokens = sample.cached_tokens if cached is None else cached
    if sample.prompt_tokens is None and read is not None:
        sample.prompt_tokens = read + (cached or 0)
    sample.output_tokens = _count(timings.get("predicted_n"), sample.output_tokens)
    sample.server_prompt_s = _seconds(timings.get("prompt_ms"), sample.server_prompt_s)
    sample.server_output_s = _seconds(timings.get("predicted_ms"), sample.server_output_s)


def _count(value: Any, before: int | None) -> int | None:
    return value if type(value) is int and value >= 0 else before


def _seconds(value: Any, before: float | None) -> float | None:
    return value / 1000 if isinstance(value, (int, float)) and value >= 0 else before


class Client:
    """Sends requests to the endpoint *root*, each on a connection of its own.

    llama-server promises to keep a connection after a streamed answer, and then closes it: a client that trusts that
    counts its own races as failures.

    Args:
        root: the address, without ``/v1``.
        api_key: sent as a bearer token; empty: none.
        trust: what the certificate must belong to; None: any authority of this machine.
        silence_s: an answer without a byte for so long has failed.
        timeout_s: so has one that has not ended by then.
    """

    def __init__(
        self, root: str, *, api_key: str = "", trust: ssl.SSLContext | None = None, silence_s: float, timeout_s: float
    ) -> None:
        self._url = f"{root}/v1/chat/completions"
        headers = {
            "Accept": "text/event-stream",
            "Accept-Encoding": "identity",
            "Content-Type": "application/json",
        }
        headers |= {"Authorization": f"Bearer {api_key}"} if api_key else {}
        # limit=0: the default of 100 connections would be a queue of the client.
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, force_close=True, ssl=trust or True),
            timeout=aiohttp.ClientTimeout(total=timeout_s, sock_connect=CONNECT_LIMIT_S, sock_read=silence_s),
            headers=headers,
            auto_decompress=False,
        )
        self._silence_s, self._timeout_s = silence_s, timeout_s

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    async def send(self, body: Mapping[str, Any], scheduled: float | None = None) -> Sample:
        """Send *body*, which was *scheduled* for a time (default: now), and read its answer to the end."""
        sent = time.perf_counter()
        sample = Sample(sent if scheduled is None else scheduled, sent)
        try:
            sample.outcome = await self._exchange(body, sample)
        except Broken as broken:
            sample.outcome, sample.example = broken.outcome, broken.example
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            sample.outcome, sample.example = self._failure(error, sample), repr(error)[:_EXAMPLE_CHARACTERS]
        sample.ended = time.perf_counter()
        return sample

    async def _exchange(self, body: Mapping[str, Any], sample: Sample) -> str:
        content = io.BytesIO(
            json.dumps(body).encode()
        )  # aiohttp sends it in pieces: a long prompt stops no other stream
        async with self._session.post(self._url, data=content, allow_redirects=False) as response:
            if response.status != 200:
                sample.retry_after = response.headers.get("Retry-After", "")[:_EXAMPLE_CHARACTERS]
                start = await response.content.read(_EXAMPLE_CHARACTERS)
                sample.example = start.decode("utf-8", errors="replace")
                return f"http-{response.status}"
            if response.content_type != "text/event-stream":
                sample.example = response.content_type[:_EXAMPLE_CHARACTERS]
                return Outcome.NOT_A_STREAM
            answer = StreamedAnswer(sample)
            async for received in response.content.iter_any():
                answer.feed(received, time.perf_counter())
            return answer.outcome()

    def _failure(self, error: Exception, sample: Sample) -> Outcome:
        if isinstance(error, TimeoutError):  # aiohttp's own are, too
            if isinstance(error, aiohttp.ConnectionTimeoutError):
                return Outcome.NOT_CONNECTED
            is_over = time.perf_counter() - sample.sent >= self._timeout_s
            return Outcome.TOO_LONG if is_over else Outcome.STALLED
        if isinstance(error, aiohttp.ClientConnectorError):
            return Outcome.NOT_CONNECTED
        if isinstance(error, aiohttp.ClientPayloadError) or sample.chunks:
            return Outcome.BROKEN_BODY
        return Outcome.RESET
