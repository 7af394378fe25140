"""Reads a streamed chat completion from its bytes.

No library's reader of server-sent events fits: each drops the lines that are no events, and these are the evidence.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any


@dataclass
class Stream:
    """What a stream holds.

    Attributes:
        content: all content, put together.
        reasoning: all reasoning content, put together.
        finish_reason: the last one.
        done: whether it ends with ``[DONE]``.
        error: the JSON value of the first error object, in an event or bare between two events.
        malformed: the first line that is neither JSON nor a part of the protocol.
    """

    content: str = ""
    reasoning: str = ""
    finish_reason: str | None = None
    done: bool = False
    error: Any = None
    malformed: str | None = None


def read(body: bytes) -> Stream:
    """Read *body*, which may end anywhere; nothing is raised, the result names what is wrong.

    An error may be an event (llama-server), stand under ``error:`` (older builds), or be a bare JSON line: llama-swap
    appends one to a stream that it began before the model was there.
    """
    stream = Stream()
    lines = re.split(r"\r\n|\r|\n", body.decode("utf-8", errors="replace"))
    for number, line in enumerate(lines, start=1):
        name, _, value = line.partition(":")
        if name in {"", "event", "id", "retry"}:  # "": an empty line, or a comment
            continue
        if name == "data" and value.strip() == "[DONE]":
            stream.done = True
            break
        try:
            chunk = json.loads(value if name in {"data", "error"} else line)
        except (ValueError, RecursionError):
            if number < len(lines):  # the last line may be the half of one that was cut
                stream.malformed = stream.malformed or line
            continue
        if name == "error" or (isinstance(chunk, dict) and chunk.get("error")):
            stream.error = stream.error or chunk
        elif isinstance(chunk, dict):
            _add(stream, chunk)
        else:
            stream.malformed = stream.malformed or line
    return stream


def _add(stream: Stream, chunk: dict[str, Any]) -> None:
    choices = chunk.get("choices")
    for choice in choices if isinstance(choices, list) else ():
        if isinstance(choice, dict):
            delta = choice.get("delta")
            if isinstance(delta, dict):
                stream.content += _text(delta.get("content"))
                stream.reasoning += _text(delta.get("reasoning_content"))
            stream.finish_reason = _text(choice.get("finish_reason")) or stream.finish_reason


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
