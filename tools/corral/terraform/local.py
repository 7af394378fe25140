"""A catalog and its lock become the llama-swap configuration of a machine: ``terraform/stacks/local``.

The stack needs no provider and no network.  Everything that Terraform writes lies in the state folder, so that the
repository stays clean and several users of it do not meet.
"""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from python_terraform import IsFlagged

from corral.errors import CannotRun, Refused
from corral.files import exclusive_lock
from corral.paths import REPOSITORY
from corral.terraform.program import find_terraform
from corral.terraform.runner import Finished, Terraform, refused

STACK = REPOSITORY / "terraform" / "stacks" / "local"
_PATIENCE = 60.0  # seconds to wait for another corral in the same state folder
_OTHER_STATE = "Stop it, or choose another state folder with: CORRAL_STATE=DIR"


def render_local(
    catalog: Path,
    store: Path,
    engine: Path,
    *,
    state: Path,
    start_port: int = 5800,
    preflight: Path | None = None,
) -> str:
    """Apply ``terraform/stacks/local`` and return the llama-swap configuration, as YAML.

    Args:
        catalog: folder with ``models/``, ``cards/`` and ``lock.json``.
        store: the model store, as llama-server will see it.
        engine: the llama-server to run.
        state: the state folder; ``terraform/`` below it is Terraform's, and can be deleted at any time.
        start_port: loopback port of the first model; each further one takes the next.
        preflight: the module's ``preflight.sh`` on a machine that does not have this clone; this clone's by default.

    Raises:
        Refused: a rule of the modules is broken (a stale lock, …): the rule's own words.
        ProgramMissing: Terraform is missing or too old.
        CannotRun: the state folder is not writable or busy, or Terraform failed for another reason.
    """
    with _stack(catalog, store, engine, state, start_port, preflight) as terraform:
        applied = terraform.run("apply", auto_approve=IsFlagged, **terraform.inputs)
        return str(applied.outputs["llama_swap_config"]["value"])


def plan_local(
    catalog: Path,
    store: Path,
    engine: Path,
    *,
    state: Path,
    start_port: int = 5800,
) -> str:
    """What ``render_local`` with the same arguments would change since it last ran, in Terraform's words.

    Raises:
        As ``render_local``.
    """
    with _stack(catalog, store, engine, state, start_port) as terraform:
        file = str(terraform.folder / "plan")
        terraform.run("plan", out=file, **terraform.inputs)
        return terraform.cmd("show", file).text


class _LocalStack(Terraform):
    """Terraform with its inputs, its state and everything else that it writes in *folder*."""

    def __init__(self, folder: Path, catalog: Path) -> None:
        environment = _environment(os.environ, data=folder / "data")
        super().__init__(find_terraform(), STACK, environment, lambda finished: _error(finished, catalog, folder))
        self.folder = folder
        self.inputs = {"var_file": str(folder / "inputs.tfvars.json"), "lock_timeout": f"{_PATIENCE:.0f}s"}


@contextmanager
def _stack(
    catalog: Path, store: Path, engine: Path, state: Path, start_port: int, preflight: Path | None = None
) -> Iterator[_LocalStack]:
    """Terraform in the local stack: initialised, its inputs written, nobody else in its folder."""
    inputs: dict[str, Any] = {
        "catalog": str(catalog.absolute()),
        "store": str(store.absolute()),
        "engine": str(engine),
        "start_port": start_port,
    }
    if preflight:
        inputs["preflight"] = str(preflight)
    folder = state.absolute() / "terraform"
    with exclusive_lock(folder, timeout_s=_PATIENCE, remedy=_OTHER_STATE):
        terraform = _LocalStack(folder, catalog)
        (folder / "inputs.tfvars.json").write_text(json.dumps(inputs, indent=2) + "\n", encoding="utf-8")
        terraform.run("init", reconfigure=IsFlagged, backend_config={"path": str(folder / "terraform.tfstate")})
        yield terraform


def _environment(outer: Mapping[str, str], *, data: Path) -> dict[str, str]:
    """*outer* without what would change a run behind our back, and with Terraform's folder at *data*."""
    kept = {
        name: value for name, value in outer.items() if not name.startswith(("TF_CLI_ARGS", "TF_VAR_", "TF_WORKSPACE"))
    }
    return kept | {"TF_DATA_DIR": str(data), "TF_IN_AUTOMATION": "1", "CHECKPOINT_DISABLE": "1"}


def _error(finished: Finished, catalog: Path, folder: Path) -> Refused | CannotRun:
    """What Terraform complained of, as one of our errors."""
    if (rules := finished.broken_rules) and rules == finished.errors:
        return refused(rules, catalog)
    return CannotRun(
        "\n".join(["Terraform failed.", *finished.words]),
        next_step=f"Check the catalog: corral validate --catalog {shlex.quote(str(catalog))}; "
        f"when the reason is in {folder}, delete that folder: the next run makes it again",
    )
