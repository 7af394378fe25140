"""The contract of a vision model as a file, and what differs from the committed one."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from corral.contract import document
from corral.contract.vision import Found

VERSION = 1
_MOST_LINES = 2000
_MOST_DEPTH = 8
_MOST_SECONDS = 1e9


def contract(model: str, made_of: Mapping[str, Any], found: Found, *, date: str, machine: str) -> dict[str, Any]:
    """The document.

    Args:
        model: its id.
        made_of: engine, files and command line: what the promises belong to.
        found: promises and times.
        date: of the times, as ISO 8601.
        machine: that took them.
    """
    return {
        "contract": "vision",
        "version": VERSION,
        "model": model,
        "promises": {**made_of, **found.promises},
        "measured": {"date": date, "machine": machine, **found.measured},
    }


def text(found: Mapping[str, Any]) -> str:
    """The file."""
    return json.dumps(found, indent=1, ensure_ascii=False) + "\n"


def read(committed: str, *, model: str) -> dict[str, Any]:
    """The committed document of *model*.

    Raises:
        ValueError: it is none.
    """
    try:
        found = json.loads(committed)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    expected = {"contract": "vision", "version": VERSION, "model": model}
    if not isinstance(found, dict) or {key: found.get(key) for key in expected} != expected:
        raise ValueError(f"it is no contract of the vision model {model}, version {VERSION}")
    if not all(isinstance(found.get(key), dict) for key in ("promises", "measured")):
        raise ValueError("it has no promises, or nothing measured")
    return found


def drift(committed: Mapping[str, Any], found: Mapping[str, Any]) -> list[str]:
    """The promises that differ: ``-`` of *committed*, ``+`` of *found*; what was measured is none of them."""
    return list(document.drift(*("\n".join(lines(one["promises"])) for one in (committed, found))))


def lines(value: Any, path: str = "") -> Iterator[str]:
    """Each value with its path, ``prompt_tokens.text: 24``; a list of plain values is one value."""
    if isinstance(value, Mapping) and value and path.count(".") < _MOST_DEPTH:
        for key, inner in list(value.items())[:_MOST_LINES]:
            yield from lines(inner, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list) and any(isinstance(one, Mapping) for one in value) and path.count(".") < _MOST_DEPTH:
        for number, inner in enumerate(value[:_MOST_LINES], start=1):
            yield from lines(inner, f"{path}.{number}")
    else:
        yield f"{path}: {json.dumps(value, ensure_ascii=False)}"


def promise_rows(found: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Each promise and its value."""
    split = (line.partition(": ") for line in lines(found["promises"]))
    return [(path, value) for path, _, value in split]


def times(found: Mapping[str, Any], committed: Mapping[str, Any] | None) -> list[tuple[str, str, str, str]]:
    """Name, median, how many it is of, and the median that *committed* has."""
    before = {name: median for name, median, _ in _medians(committed["measured"])} if committed else {}
    return [
        (name, f"{median:.3f} s", f"median of {n}", f"{before[name]:.3f} s" if name in before else "-")
        for name, median, n in _medians(found["measured"])
    ]


def _medians(measured: Mapping[str, Any]) -> Iterator[tuple[str, float, int]]:
    """Of each row its name, its median and n; of a file from outside, what has another form is left out."""
    answers = measured.get("answers")
    boot = measured.get("boot")
    rows = [("boot", boot)]
    rows += [
        (f"{one.get('kind')}, {one.get('images')} of {one.get('side_px')} px", one)
        for one in (answers[:_MOST_LINES] if isinstance(answers, list) else [])
        if isinstance(one, dict)
    ]
    for name, one in rows:
        median, n = (one.get("median_seconds"), one.get("n")) if isinstance(one, dict) else (None, None)
        if isinstance(n, bool) or isinstance(median, bool):
            continue
        if isinstance(median, (int, float)) and isinstance(n, int) and 0 <= median <= _MOST_SECONDS:
            yield name, float(median), n
