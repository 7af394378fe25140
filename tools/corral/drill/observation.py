"""When a layer knew of a fault, and what it knew."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Observation:
    """What one layer reported.

    Attributes:
        layer: its name.
        after_s: seconds from the first failure that a client notices; None: it did not know.
        text: what it knew, in its own words, or why it did not.
        is_required: it is installed, so that not knowing is a failure.
    """

    layer: str
    after_s: float | None
    text: str
    is_required: bool = True

    def as_json(self) -> dict[str, Any]:
        """The shape that ``--json`` prints."""
        after = None if self.after_s is None else round(self.after_s, 1)
        return {"layer": self.layer, "after_seconds": after, "text": self.text, "required": self.is_required}
