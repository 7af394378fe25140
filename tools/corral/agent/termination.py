"""How the agent ended, as a code and fields, for the program that reads the container's termination message.

Kubernetes keeps the first 4096 bytes of that file: a longer sentence is cut, code and fields are not.
https://kubernetes.io/docs/tasks/debug/debug-application/determine-reason-pod-failure/
"""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass
from pathlib import Path

from .errors import Code, CorralError, Fields

LIMIT = 4096  # bytes that Kubernetes keeps
_SENTENCE = 1000  # characters of at most four bytes each
_VALUE = 200


@dataclass(frozen=True)
class Termination:
    """Why the agent ended."""

    code: Code  # OTHER also for a code of another version of the agent
    fields: Fields  # the names and numbers that belong to the code
    sentence: str  # the same for people; no program reads it


def of_error(error: Exception) -> Termination:
    """The reason of *error*, without its next step, which is for a terminal; OTHER for a bug."""
    if isinstance(error, CorralError):
        return Termination(error.code, error.fields, error.message)
    return Termination(Code.OTHER, {"exception": type(error).__name__}, f"{type(error).__name__}: {error}")


def as_text(ended: Termination) -> str:
    """*ended* as one line of JSON of at most ``LIMIT`` bytes."""
    fields = {key: value[:_VALUE] if isinstance(value, str) else value for key, value in ended.fields.items()}
    for length in range(_SENTENCE, -1, -100):
        plain = {"code": ended.code.value, "fields": fields, "sentence": ended.sentence[:length]}
        text = json.dumps(plain, ensure_ascii=False)
        if len(text.encode(errors="replace")) <= LIMIT:
            return text
    return json.dumps({"code": ended.code.value, "fields": {}, "sentence": ""})


def write(path: Path, ended: Termination) -> None:
    """Write *ended* to *path*; where that fails only the exit code remains."""
    with contextlib.suppress(OSError):
        path.write_text(as_text(ended), encoding="utf-8", errors="replace")


def read(text: str) -> Termination | None:
    """The reason that ``write`` wrote as *text*; None for anything else."""
    try:
        plain = json.loads(text)
        code, fields, sentence = plain["code"], plain["fields"], plain["sentence"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    if not (isinstance(code, str) and isinstance(fields, dict) and isinstance(sentence, str)):
        return None
    known = {key: value for key, value in fields.items() if isinstance(value, str | int)}
    return Termination(Code(code) if code in set(Code) else Code.OTHER, known, sentence)
