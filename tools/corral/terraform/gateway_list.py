"""A catalog and its lock become the models of a LiteLLM that is elsewhere: ``terraform/stacks/gateway``."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from corral.paths import REPOSITORY
from corral.terraform import without_provider

STACK = REPOSITORY / "terraform" / "stacks" / "gateway"


@dataclass(frozen=True)
class GatewayList:
    """What a gateway is configured with.

    Attributes:
        models: LiteLLM's ``model_list``: every id, every alias and every adapter (MODEL:NAME).
        fallbacks: those of its router, each from a name to a list of one id.
        yaml: the complete configuration of its proxy.
    """

    models: Sequence[Mapping[str, Any]]
    fallbacks: Sequence[Mapping[str, Sequence[str]]]
    yaml: str


def render(catalog: Path, api_base: str, *, api_key_env: str | None = None, **limits: int | None) -> GatewayList:
    """The list for the lock of *catalog*, whose models are all at *api_base* (with ``/v1``).

    Args:
        catalog: folder with ``models/``, ``cards/`` and ``lock.json``.
        api_base: the endpoint of llama-swap or its door.
        api_key_env: the variable of LiteLLM's environment with the key for it; None where it requires none.
        limits: ``load_seconds`` and ``answer_seconds``, where they are others than the stack's.

    Raises:
        CorralError: as ``without_provider.stack``.
    """
    inputs = {
        "api_base": api_base,
        "api_key_env": api_key_env,
        **{name: value for name, value in limits.items() if value},
    }
    with tempfile.TemporaryDirectory(prefix="corral-") as state:
        outputs = without_provider.applied(STACK, catalog, inputs, Path(state))
    return GatewayList(outputs["model_list"], outputs["fallbacks"], str(outputs["yaml"]))
