"""When a layer detected a fault, and what it reported."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Observation:
    """What one layer reported.

    Attributes:
        layer: its name.
        after_s: seconds from the first failure that a client notices; None: it did not detect the fault.
        text: what it reported, in its own words, or why it did not detect the fault.
        is_required: it is installed, so that a fault it does not detect is a failure.
    """

    layer: str
    after_s: float | None
    text: str
    is_required: bool = True

    def as_json(self) -> dict[str, Any]:
        """The shape that ``--json`` prints."""
        after = None if self.after_s is None else round(self.after_s, 1)
        return {"layer": self.layer, "after_seconds": after, "text": self.text, "required": self.is_required}
