"""A catalog and its lock become the configuration of a machine's programs: ``terraform/stacks/local``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from corral.engine.binaries import find_vllm
from corral.engine.door import Door
from corral.engine.stack import Configuration
from corral.engine.stack_folder import StackFolder
from corral.paths import REPOSITORY
from corral.terraform import without_provider

STACK = REPOSITORY / "terraform" / "stacks" / "local"
_NO_MODEL: Mapping[str, str] = MappingProxyType({})


def render_stack(
    catalog: Path,
    store: Path,
    engine: Path,
    *,
    state: Path,
    start_port: int,
    door: Door,
    on_cpu: Mapping[str, str] = _NO_MODEL,
) -> Configuration:
    """Apply ``terraform/stacks/local`` and return what its programs are configured with, behind *door*.

    *on_cpu* has the models whose engines get no card, each with the reason.  The other arguments, and what it raises,
    are those of ``render_local``.
    """
    inputs = {
        "start_port": start_port,
        "door": door.inputs(StackFolder(state.absolute()).run),
        "on_cpu": dict(on_cpu),
    }
    outputs = _applied(catalog, store, engine, state, inputs)
    return Configuration(*(str(outputs[f"{name}_config"]) for name in ("llama_swap", "guard", "caddy")))


def render_local(
    catalog: Path,
    store: Path,
    engine: Path,
    *,
    state: Path,
    start_port: int = 5800,
    preflight: Path | None = None,
) -> str:
    """Apply ``terraform/stacks/local`` and return the configuration of a llama-swap without a door, as YAML.

    Args:
        catalog: folder with ``models/``, ``cards/`` and ``lock.json``.
        store: the model store, as llama-server will see it.
        engine: the llama-server to run.
        state: the state folder.
        start_port: loopback port of the first model; each further one takes the next.
        preflight: the module's ``preflight.sh`` on a machine that does not have this clone; this clone's by default.

    Raises:
        CorralError: as ``without_provider.stack``.
    """
    inputs = {"start_port": start_port, **({"preflight": str(preflight)} if preflight else {})}
    return str(_applied(catalog, store, engine, state, inputs)["llama_swap_config"])


def render_promises(catalog: Path, *, state: Path) -> str:
    """What the lock of *catalog* promises on each card, as the configuration of an exporter has it, as JSON.

    Raises as ``render_local``.
    """
    return str(_applied(catalog, Path("/models"), Path("llama-server"), state, {})["promises"])


def _applied(catalog: Path, store: Path, engine: Path, state: Path, more: Mapping[str, Any]) -> dict[str, Any]:
    return without_provider.applied(STACK, catalog, _inputs(store, engine, more), state)


def _inputs(store: Path, engine: Path, more: Mapping[str, Any]) -> dict[str, Any]:
    vllm = find_vllm()
    return {"store": str(store.absolute()), "engine": str(engine), **({"vllm": str(vllm)} if vllm else {}), **more}


def plan_local(
    catalog: Path,
    store: Path,
    engine: Path,
    *,
    state: Path,
    start_port: int = 5800,
    door: Door | None = None,
    on_cpu: Mapping[str, str] = _NO_MODEL,
) -> str:
    """What an apply with these arguments would change, in Terraform's words; raises as ``render_local``."""
    inputs = door and door.inputs(StackFolder(state.absolute()).run)
    more = {"start_port": start_port, "door": inputs, "on_cpu": dict(on_cpu)}
    with without_provider.stack(STACK, catalog, _inputs(store, engine, more), state) as (terraform, folder, inputs):
        file = str(folder / "plan")
        terraform.run("plan", out=file, **inputs)
        return terraform.cmd("show", file).stdout
