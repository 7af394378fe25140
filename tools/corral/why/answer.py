"""What `corral why` says: one reason, who or what is behind it, the evidence, and what to type next."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class Reason(StrEnum):
    """Why a request fails; the worst first."""

    STACK_DOWN = "stack-down"
    ENGINE_MISSING = "engine-missing"
    HUNG = "hung"
    CRASHED = "crashed"
    OUT_OF_MEMORY = "out-of-memory"
    FILE_DAMAGED = "file-damaged"
    FILE_MISSING = "file-missing"
    BAD_ARGUMENT = "bad-argument"
    PORT_IN_USE = "port-in-use"
    LOAD_TIMEOUT = "load-timeout"
    OVER_CONCURRENCY = "over-concurrency"
    NOT_IN_CATALOG = "not-in-catalog"
    UNKNOWN = "unknown"
    HEALTHY = "healthy"


@dataclass(frozen=True)
class Answer:
    """The answer for one model.

    Attributes:
        model: as it was asked for; an id, or an alias.
        reason: the class.
        culprit: who or what is behind it, in a few words; empty when nothing is wrong, or nobody can tell.
        evidence: what was seen, a sentence and a line each, the most telling first.
        next_steps: commands to type as they are.
    """

    model: str
    reason: Reason
    culprit: str = ""
    evidence: tuple[str, ...] = ()
    next_steps: tuple[str, ...] = ()

    @property
    def rank(self) -> int:
        """Its place among others: the worst has the lowest."""
        return list(Reason).index(self.reason)

    def as_json(self) -> dict[str, Any]:
        """The answer as plain data."""
        return {
            "model": self.model,
            "class": self.reason.value,
            "culprit": self.culprit or None,
            "evidence": list(self.evidence),
            "next": list(self.next_steps),
        }


def one_line(text: str) -> str:
    """*text*, which a stranger may have written, as one line that does nothing to a terminal."""
    return "".join(character if character.isprintable() else " " for character in text).strip()
