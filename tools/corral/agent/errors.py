"""The root of every error that a user may see, and the exit code it ends with.

``CorralError`` names what is wrong with which thing, and the next command to run.  Its three branches are the exit
codes ``Failed`` (1), ``Refused`` (2) and ``CannotRun`` (3).  ``corral.errors`` extends them.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class Code(StrEnum):
    """Why the agent ended without a result; other programs read this code, and no sentence."""

    STORE_FULL = "store-full"
    STORE_UNUSABLE = "store-unusable"
    STORE_MISSING = "store-missing"
    STORE_OCCUPIED = "store-occupied"
    NOT_ON_HUB = "not-on-hub"
    NOT_PERMITTED = "not-permitted"
    CONTENT_DIFFERS = "content-differs"
    HUB_ADDRESS = "hub-address"
    HUB_UNREACHABLE = "hub-unreachable"
    HUB_ANSWER = "hub-answer"
    TOKEN_UNUSABLE = "token-unusable"  # noqa: S105
    LOCK_UNUSABLE = "lock-unusable"
    MODEL_UNKNOWN = "model-unknown"
    SOURCE_MISSING = "source-missing"
    NOT_IN_STORE = "not-in-store"
    CACHE_UNREADABLE = "cache-unreadable"
    STOPPED = "stopped"
    OTHER = "other"


Fields = Mapping[str, str | int]


class CorralError(Exception):
    """Something a user can act on.

    Args:
        message: one or two sentences that name the offender and the rule.
        next_step: the command or change that helps; may be empty.
        code: the same for programs; each error of the agent has one.
        fields: the names and numbers that belong to the code.
    """

    exit_code = 1

    def __init__(
        self, message: str, *, next_step: str = "", code: Code = Code.OTHER, fields: Fields | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.next_step = next_step
        self.code = code
        self.fields = dict(fields or {})


class Failed(CorralError):
    """The work was done and its result is bad: a check failed, a hash never matched (exit 1)."""

    exit_code = 1


class Refused(CorralError):
    """The request or the configuration is wrong (exit 2)."""

    exit_code = 2


class CannotRun(CorralError):
    """The work could not be done here and now: no network, no room, a missing program (exit 3)."""

    exit_code = 3
