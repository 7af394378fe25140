"""The records of ``preflight.sh`` and ``holders.sh``: a code and fields for programs, a sentence for people.

One a line: ``preflight: CODE KEY=VALUE …: SENTENCE``; no value has a blank or a colon.  The sentence is never read:
corral writes its own from the fields.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

Code = Literal[
    "room", "no-room", "memory-unknown", "no-engine", "usage", "holder", "seat", "unattributed", "page-cache"
]

_LINE = re.compile(r"^preflight: (?P<code>[a-z-]+)(?P<fields>(?: [a-z_]+=[^\s:]+)*): .*$", re.MULTILINE)
_REQUIRED: dict[str, frozenset[str]] = {
    "room": frozenset({"model", "need_mib", "free_mib", "total_mib"}),
    "no-room": frozenset({"model", "need_mib", "free_mib", "total_mib"}),
    "memory-unknown": frozenset({"model", "need_mib", "reason"}),
    "no-engine": frozenset({"model", "program"}),
    "usage": frozenset(),
    "holder": frozenset({"for", "pid", "name"}),
    "seat": frozenset({"for", "pid", "seat_mib", "model", "on_card"}),
    "unattributed": frozenset({"for", "held_mib"}),
    "page-cache": frozenset({"model", "cached_bytes", "size_bytes"}),
}
_DECISIONS = ("room", "no-room", "memory-unknown", "no-engine", "usage")
_FIGURES = ("need_mib", "free_mib", "total_mib", "pid", "held_mib", "seat_mib", "cached_bytes", "size_bytes")
_TEXTS = ("model", "reason", "program", "name")


@dataclass(frozen=True)
class Record:
    """One line; a field that it does not have is empty, or None."""

    code: Code  # the first five are decisions, of which each start of an engine has one
    model: str = ""  # the one to be loaded; of a seat the one that has it
    need_mib: int | None = None
    free_mib: int | None = None  # on the card, as total_mib
    total_mib: int | None = None
    reason: str = ""  # of memory-unknown: a code
    program: str = ""  # of no-engine: the one that cannot be run
    refused: str = ""  # after no-room: the model whose load was refused
    pid: int | None = None  # the process that holds memory, or has a seat
    name: str = ""  # of a holder: a model's id, or a program
    held_mib: int | None = None  # None where the driver does not give it
    seat_mib: int | None = None  # what an engine may take
    on_card: bool = False  # whether the engine that has the seat uses a card
    cached_bytes: int | None = None  # of the model's files, in the page cache before the engine reads them
    size_bytes: int | None = None  # of these files

    @property
    def is_decision(self) -> bool:
        """Whether it begins the start of an engine, or ends it before there is one."""
        return self.code in _DECISIONS

    @property
    def is_refusal(self) -> bool:
        """Whether no engine is started after it."""
        return self.code in ("no-room", "no-engine", "usage")

    def concerns(self, model: str) -> bool:
        """Whether it belongs to the load of *model*."""
        return model == (self.model if self.is_decision else self.refused)


def parse(line: str) -> Record | None:
    """The record in *line*; None when it is none: another code, a field missing, a figure that is no number."""
    found = _LINE.fullmatch(line.rstrip("\r\n"))
    if found is None or (required := _REQUIRED.get(found["code"])) is None:
        return None
    fields = dict(word.split("=", 1) for word in found["fields"].split())
    if not required <= fields.keys() or not all(_is_number(fields[key]) for key in _FIGURES if key in fields):
        return None
    values: dict[str, Any] = {key: int(fields[key]) for key in _FIGURES if key in fields}
    values |= {key: fields[key] for key in _TEXTS if key in fields}
    return Record(
        cast(Code, found["code"]), refused=fields.get("for", ""), on_card=fields.get("on_card") == "yes", **values
    )


def read(log: str) -> list[Record]:
    """The records in *log*, in their order."""
    return [record for _, record in _located(log)]


def decisions(log: str) -> list[int]:
    """Where in *log* each decision begins: offsets into the text."""
    return [at for at, record in _located(log) if record.is_decision]


def refusal(log: str) -> tuple[Record, ...]:
    """The first refusal in *log* with the records of those who hold the card; empty when there is none."""
    records = read(log)
    decision = next((record for record in records if record.is_refusal), None)
    if decision is None:
        return ()
    return decision, *(one for one in records if not one.is_decision and one.refused == decision.model)


def sentence(refused: Sequence[Record]) -> str:
    """What the records of a refusal mean, in one sentence for people."""
    decision, *others = refused
    if decision.code == "no-engine":
        return f"The preflight of {decision.model} found no engine: {decision.program} is missing or not executable."
    if decision.code == "usage":
        return "The preflight refused its own arguments."
    parts = [
        f"{decision.model} needs {decision.need_mib} MiB, {decision.free_mib} MiB of {decision.total_mib} MiB are free"
    ]
    for title, code in (("held by", "holder"), ("seated", "seat")):
        if found := ", ".join(described(one) for one in others if one.code == code):
            parts.append(f"{title}: {found}")
    parts += [f"not visible from here: {one.held_mib} MiB" for one in others if one.code == "unattributed"]
    return f"The preflight refused the load: {'; '.join(parts)}."


def described(holder: Record) -> str:
    """A process that holds memory or has a seat, in words."""
    if holder.code == "seat":
        where = "" if holder.on_card else ", nothing on the card"
        return f"{holder.model} (pid {holder.pid}, seat of {holder.seat_mib} MiB{where})"
    held = "an unknown part" if holder.held_mib is None else f"{holder.held_mib} MiB"
    return f"{holder.name} (pid {holder.pid}, {held})"


def _located(log: str) -> Iterator[tuple[int, Record]]:
    for found in _LINE.finditer(log):
        if record := parse(found[0]):
            yield found.start(), record


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()
