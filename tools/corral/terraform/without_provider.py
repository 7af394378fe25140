"""Runs a stack that needs no provider and no network, and returns its outputs.

All that Terraform writes is in the state folder: the repository stays clean, and its users do not disturb each other.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from python_terraform import IsFlagged

from corral.engine import environment
from corral.errors import CannotRun, Refused
from corral.files import OwnFolder, disk_full, write_atomically
from corral.terraform.program import find_terraform
from corral.terraform.runner import Finished, Terraform, refused

_STATE, _NEXT_STATE = "terraform.tfstate", "next.tfstate"
_BUSY_LIMIT_S = 60.0


def applied(root: Path, catalog: Path, inputs: Mapping[str, Any], state: Path) -> dict[str, Any]:
    """The outputs of the stack in *root*; arguments and errors are those of ``stack``."""
    with stack(root, catalog, inputs, state) as (terraform, folder, options):
        outputs = terraform.applied(**options)
        (folder / _NEXT_STATE).replace(folder / _STATE)
        return outputs


@contextmanager
def stack(
    root: Path, catalog: Path, inputs: Mapping[str, Any], state: Path
) -> Iterator[tuple[Terraform, Path, dict[str, str]]]:
    """Terraform in *root*, initialised; the locked folder for all that it writes; its options for the inputs.

    Args:
        root: the folder of the stack, below terraform/stacks.
        catalog: the catalog's folder, which every such stack has as an input.
        inputs: the other inputs.
        state: the state folder; ``terraform/`` below it is Terraform's, and can be deleted at any time.

    Raises:
        Refused: a rule of the modules is broken (a stale lock, …): the rule's own sentence.
        ProgramMissing: Terraform is missing or too old.
        CannotRun: the state folder is not writable or busy, or Terraform failed for another reason.
    """
    own = OwnFolder(state.absolute(), "CORRAL_STATE")
    folder = own.path / "terraform"
    with own.exclusive_lock(folder, timeout_s=_BUSY_LIMIT_S):
        file = folder / "inputs.tfvars.json"
        write_atomically(file, json.dumps({"catalog": str(catalog.absolute()), **inputs}, indent=2) + "\n", mode=0o600)
        # Terraform overwrites its state in place: a disk that fills meanwhile would leave half of it.
        (folder / _NEXT_STATE).unlink(missing_ok=True)
        with suppress(FileNotFoundError):
            write_atomically(folder / _NEXT_STATE, (folder / _STATE).read_bytes(), mode=0o600)
        variables = environment.allowed(environment.TERRAFORM, TF_DATA_DIR=str(folder / "data"))
        terraform = Terraform(find_terraform(), root, variables, lambda failed: _error(failed, root, catalog, folder))
        terraform.run("init", reconfigure=IsFlagged, backend_config={"path": str(folder / _NEXT_STATE)})
        yield terraform, folder, {"var_file": str(file), "lock_timeout": f"{_BUSY_LIMIT_S:.0f}s"}


def _error(failed: Finished, root: Path, catalog: Path, folder: Path) -> Refused | CannotRun:
    if (rules := failed.broken_rules) and rules == failed.errors:
        return refused(rules, catalog)
    message, unsaved, _ = failed.message.partition("\nFailed to persist state to backend")
    if unsaved:  # Terraform then leaves the state in the stack's folder; this one holds nothing that a run needs
        (root / "errored.tfstate").unlink(missing_ok=True)
    if "no space left on device" in message and str(folder) in message:
        return disk_full(folder)
    return CannotRun(
        f"Terraform failed.\n{message}",
        next_step=f"Check the catalog: corral validate --catalog {shlex.quote(str(catalog))}; "
        f"when the reason is in {folder}, delete that folder: the next run makes it again",
    )
