"""A streamed chat completion, read from its bytes."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Stream:
    """What a stream said.

    Attributes:
        content: all content, put together.
        reasoning: all reasoning content, put together.
        finish_reason: the last one seen.
        done: whether ``[DONE]`` was seen.
        error: the JSON value of the first error object, in an event or bare between two events.
        malformed: the first line that is neither JSON nor a part of the protocol.
        events: how many data events came.
    """

    content: str = ""
    reasoning: str = ""
    finish_reason: str | None = None
    done: bool = False
    error: Any = None
    malformed: str | None = None
    events: int = 0


def read(body: bytes) -> Stream:
    """Read *body*, which may end anywhere; nothing is raised, what is wrong is told in the result.

    An error may come as an event (llama-server), under ``error:`` (older builds), or as a bare JSON line: llama-swap
    appends one to a stream that it began before the model was there.
    """
    content: list[str] = []
    reasoning: list[str] = []
    finish_reason, error, malformed = None, None, None
    events = 0
    lines = body.decode("utf-8", errors="replace").replace("\r\n", "\n").replace("\r", "\n").split("\n")
    for number, line in enumerate(lines, start=1):
        name, colon, value = line.partition(":")
        value = value.removeprefix(" ")
        if not line or line.startswith(":") or (colon and name in {"event", "id", "retry"}):
            continue
        if name == "data" and value.strip() == "[DONE]":
            return Stream("".join(content), "".join(reasoning), finish_reason, True, error, malformed, events)
        try:
            chunk = json.loads(value if colon and name in {"data", "error"} else line)
        except (ValueError, RecursionError):
            if number < len(lines):  # the last line may be the half of one that was cut
                malformed = malformed or line
            continue
        if name == "error":
            error = error or chunk
            continue
        if not isinstance(chunk, dict):
            malformed = malformed or line
            continue
        if chunk.get("error"):
            error = error or chunk
            continue
        events += 1
        for choice in _dicts(chunk.get("choices")):
            delta = choice.get("delta")
            if isinstance(delta, dict):
                content.append(_text(delta.get("content")))
                reasoning.append(_text(delta.get("reasoning_content")))
            finish_reason = _text(choice.get("finish_reason")) or finish_reason
    return Stream("".join(content), "".join(reasoning), finish_reason, False, error, malformed, events)


def _dicts(value: Any) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
