"""The tables of docs/architecture/scale.md, made from speeds that were measured once."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from scale_support.table import TABLE_USERS, table

from corral.catalog.ledger import Speed

PAGE = Path(__file__).parents[3] / "docs" / "architecture" / "scale.md"
SPEEDS = Path(__file__).with_name("speeds.json")
TURNS = (1, 4)
"""Models in turns on each card, a table each."""
_TABLE = re.compile(r"(<!-- models: (\d+) -->\n\n)(.*?)(\n\n<!-- end -->)", re.DOTALL)


def save(speed: Speed, slots: int, origin: str) -> None:
    """Keep *speed*, measured with so many *slots*; *origin* is where, when and beside what."""
    text = json.dumps({"origin": origin, "slots": slots, "speed": speed.model_dump(mode="json")}, indent=2)
    SPEEDS.write_text(text + "\n", encoding="utf-8")


def saved() -> tuple[Speed, int]:
    """The kept speed, and its slots."""
    document = json.loads(SPEEDS.read_text(encoding="utf-8"))
    return Speed.model_validate(document["speed"]), document["slots"]


def tables(users: Sequence[int] = TABLE_USERS) -> Iterator[tuple[int, str]]:
    """For each number of models in turns, the table for *users*."""
    speed, slots = saved()
    for turns in TURNS:
        yield turns, table(speed, slots, users, turns=turns)


def made_again(text: str) -> str:
    """The page *text* with its tables made again.

    Raises:
        KeyError: it has a table of another number of models.
    """
    fresh = dict(tables())
    return _TABLE.sub(lambda found: f"{found[1]}{fresh[int(found[2])]}{found[4]}", text)


def of_page(text: str) -> dict[int, str]:
    """The tables of the page *text*, by the number of models."""
    return {int(found[2]): found[3] for found in _TABLE.finditer(text)}


def write() -> int:
    """Write the tables into the page; the exit code."""
    PAGE.write_text(made_again(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    return 0


def compare() -> int:
    """Compare the page with its tables made again; exit code 1 where they differ."""
    text = PAGE.read_text(encoding="utf-8")
    if made_again(text) == text:
        return 0
    sys.stderr.write(f"The tables of {PAGE} are others: python tools/benchmarks/scale.py --page\n")
    return 1
