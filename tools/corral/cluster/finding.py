"""What is wrong with one thing in the cluster, in a sentence, and what to type next."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any


class Cause(StrEnum):
    """What kind of trouble it is; for scripts, and for `corral why`."""

    ABSENT = "absent"
    CLAIM = "claim"
    VOLUME = "volume"
    NODE = "node"
    SCHEDULING = "scheduling"
    REFUSED = "refused"
    IMAGE = "image"
    CONFIGURATION = "configuration"
    RUNTIME = "runtime"
    MEMORY = "memory"
    EVICTED = "evicted"
    CRASH = "crash"
    DOWNLOAD = "download"
    PROBE = "probe"
    CARD = "card"
    UNSEEN = "unseen"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Finding:
    """Something that is wrong.

    Attributes:
        subject: as kubectl names it: ``pod/llama-swap-7d9f``.
        what: a sentence that begins with the subject's part in it, without its name.
        event: the message of Kubernetes, or of the container itself, word for word; empty when there is none.
        next_step: a command to be typed as it is.
        is_stuck: no waiting heals it: it requires operator action.
        cause: its kind.
    """

    subject: str
    what: str
    event: str
    next_step: str
    is_stuck: bool
    cause: Cause = Cause.UNKNOWN

    def as_json(self) -> dict[str, Any]:
        """The shape that ``--json`` prints."""
        return asdict(self)
