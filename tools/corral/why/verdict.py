"""The verdict on one model: the reason, the culprit, the evidence, and the next commands."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class Reason(StrEnum):
    """Why a request fails or is slow; the worst first."""

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
    SLOW = "slow"
    UNKNOWN = "unknown"
    HEALTHY = "healthy"


@dataclass(frozen=True)
class Verdict:
    """The verdict on one model."""

    model: str  # the id or alias that was given
    reason: Reason
    culprit: str = ""  # the cause in a few words; empty when nothing is wrong, or the cause is not known
    evidence: tuple[str, ...] = ()  # a sentence each, the most telling first
    next_steps: tuple[str, ...] = ()  # commands to be typed as they are

    def as_json(self) -> dict[str, Any]:
        """The shape that ``--json`` prints."""
        return {
            "model": self.model,
            "class": self.reason.value,
            "culprit": self.culprit or None,
            "evidence": list(self.evidence),
            "next": list(self.next_steps),
        }


def worst_first(verdicts: Iterable[Verdict]) -> list[Verdict]:
    """*verdicts* in the order of their reasons, then of their models."""
    return sorted(verdicts, key=lambda one: (list(Reason).index(one.reason), one.model))


def one_line(text: str) -> str:
    """*text*, which may be untrusted, as one line without control characters."""
    return "".join(character if character.isprintable() else " " for character in text).strip()
