"""Which models the local stack keeps off the card of this machine, and why."""

from __future__ import annotations

from collections.abc import Mapping

from corral import output
from corral.engine import apple
from corral.lock.lock import Lock


def here(locked: Lock) -> dict[str, str]:
    """The models of *locked* that this machine computes on its CPU, each with the reason."""
    return apple.on_cpu(
        apple.processor(), {model_id: entry.predicted.projector_type for model_id, entry in locked.models.items()}
    )


def show(found: Mapping[str, str]) -> None:
    """Print a line for each on stderr."""
    for model, reason in found.items():
        output.info(f"{model}: CPU, 0 layers on the card of this machine ({reason})")
