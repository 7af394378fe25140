"""A catalog and its lock become the configuration of a machine's programs: ``terraform/stacks/local``.

The stack needs no provider and no network.  All that Terraform writes is in the state folder: the repository stays
clean, and its users do not disturb each other.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any

from python_terraform import IsFlagged

from corral.engine import environment
from corral.engine.door import Door
from corral.engine.stack import Configuration
from corral.engine.stack_folder import StackFolder
from corral.errors import CannotRun, Refused
from corral.files import OwnFolder, disk_full, write_atomically
from corral.paths import REPOSITORY
from corral.terraform.program import find_terraform
from corral.terraform.runner import Finished, Terraform, refused

STACK = REPOSITORY / "terraform" / "stacks" / "local"
_STATE, _NEXT_STATE = "terraform.tfstate", "next.tfstate"
_BUSY_LIMIT_S = 60.0
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
        state: the state folder; ``terraform/`` below it is Terraform's, and can be deleted at any time.
        start_port: loopback port of the first model; each further one takes the next.
        preflight: the module's ``preflight.sh`` on a machine that does not have this clone; this clone's by default.

    Raises:
        Refused: a rule of the modules is broken (a stale lock, …): the rule's own sentence.
        ProgramMissing: Terraform is missing or too old.
        CannotRun: the state folder is not writable or busy, or Terraform failed for another reason.
    """
    inputs = {"start_port": start_port, **({"preflight": str(preflight)} if preflight else {})}
    return str(_applied(catalog, store, engine, state, inputs)["llama_swap_config"])


def render_promises(catalog: Path, *, state: Path) -> str:
    """What the lock of *catalog* promises on each card, as the configuration of an exporter has it, as JSON.

    Raises as ``render_local``.
    """
    return str(_applied(catalog, Path("/models"), Path("llama-server"), state, {})["promises"])


def _applied(catalog: Path, store: Path, engine: Path, state: Path, more: Mapping[str, Any]) -> dict[str, Any]:
    with _stack(catalog, store, engine, state, more) as (terraform, folder, inputs):
        outputs = terraform.applied(**inputs)
        (folder / _NEXT_STATE).replace(folder / _STATE)
        return outputs


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
    with _stack(catalog, store, engine, state, more) as (terraform, folder, inputs):
        file = str(folder / "plan")
        terraform.run("plan", out=file, **inputs)
        return terraform.cmd("show", file).stdout


@contextmanager
def _stack(
    catalog: Path, store: Path, engine: Path, state: Path, more: Mapping[str, Any]
) -> Iterator[tuple[Terraform, Path, dict[str, str]]]:
    """Terraform in the local stack, initialised; the locked folder for all that it writes; its options for inputs."""
    inputs = {"catalog": str(catalog.absolute()), "store": str(store.absolute()), "engine": str(engine), **more}
    own = OwnFolder(state.absolute(), "CORRAL_STATE")
    folder = own.path / "terraform"
    with own.exclusive_lock(folder, timeout_s=_BUSY_LIMIT_S):
        file = folder / "inputs.tfvars.json"
        write_atomically(file, json.dumps(inputs, indent=2) + "\n", mode=0o600)
        # Terraform overwrites its state in place: a disk that fills meanwhile would leave half of it.
        (folder / _NEXT_STATE).unlink(missing_ok=True)
        with suppress(FileNotFoundError):
            write_atomically(folder / _NEXT_STATE, (folder / _STATE).read_bytes(), mode=0o600)
        variables = environment.allowed(environment.TERRAFORM, TF_DATA_DIR=str(folder / "data"))
        terraform = Terraform(find_terraform(), STACK, variables, lambda failed: _error(failed, catalog, folder))
        terraform.run("init", reconfigure=IsFlagged, backend_config={"path": str(folder / _NEXT_STATE)})
        yield terraform, folder, {"var_file": str(file), "lock_timeout": f"{_BUSY_LIMIT_S:.0f}s"}


def _error(failed: Finished, catalog: Path, folder: Path) -> Refused | CannotRun:
    if (rules := failed.broken_rules) and rules == failed.errors:
        return refused(rules, catalog)
    message, unsaved, _ = failed.message.partition("\nFailed to persist state to backend")
    if unsaved:  # Terraform then leaves the state in the stack's folder; this one holds nothing that a run needs
        (STACK / "errored.tfstate").unlink(missing_ok=True)
    if "no space left on device" in message and str(folder) in message:
        return disk_full(folder)
    return CannotRun(
        f"Terraform failed.\n{message}",
        next_step=f"Check the catalog: corral validate --catalog {shlex.quote(str(catalog))}; "
        f"when the reason is in {folder}, delete that folder: the next run makes it again",
    )
