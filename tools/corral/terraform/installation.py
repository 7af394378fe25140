"""Which installation a state is of: of which namespace, which cards, in which workspace.

A state of one installation that is planned with the variables or the catalog of another one would move the first to the
place of the second: everything is destroyed, and made anew there.  Terraform itself takes any state for any variables.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from python_terraform import IsFlagged

from corral.errors import Refused
from corral.terraform.runner import Terraform

_WORKSPACE = "TF_WORKSPACE"
_DEFAULT, _APPLIED = "default", "terraform_data.applied_lock"


def workspace(environment: Mapping[str, str], data_folder: Path) -> str:
    """The workspace of a stack: of *environment*, else the one that was selected in its *data_folder*."""
    try:
        selected = (data_folder / "environment").read_text(encoding="utf-8").strip()
    except OSError:
        selected = ""
    return environment.get(_WORKSPACE) or selected or _DEFAULT


def require_same(document: Mapping[str, Any], namespace: str, name: str, typed: Callable[[str], str]) -> None:
    """Raise Refused when the plan *document* changes the state, of workspace *name*, of another installation.

    It is another one when its namespace is not *namespace*, or no card of the catalog's lock is in a node of its
    cards.  *typed* writes a command of Terraform in the stack.
    """
    was = _outputs(document).get("namespace", namespace)
    if was != namespace:
        raise Refused(
            f"The state of workspace {name} is that of namespace {was}, and the variables name {namespace}: "
            f"all of {was} would be destroyed.",
            next_step=f"{_another(namespace, typed)}; only to move the first one: corral destroy with namespace {was}",
        )
    had, has = (_nodes(_lock(document, side)) for side in ("before", "after"))
    if had and has and not had.keys() & has.keys():
        before, after = (", ".join(f"{card} in {node}" for node, card in sorted(one.items())) for one in (had, has))
        raise Refused(
            f"The state of workspace {name} is that of another catalog, with card {before}; this catalog has {after}.",
            next_step=f"{_another(namespace, typed)}; where the card moved from {min(had)}, declare it in cards/ for "
            f"this apply once more, as a card without models: node: {min(had)}",
        )


def require_owned(terraform: Terraform, document: Mapping[str, Any], namespace: str, name: str) -> None:
    """Raise Refused when the state, of workspace *name*, is empty and another workspace has *namespace*.

    Raises:
        Refused: it is so.
        CannotRun, ProgramMissing: the states of the other workspaces cannot be read.
    """
    if _outputs(document):
        return
    listed = terraform.judged(terraform.cmd("workspace list")).stdout
    others = [one for one in listed.replace("*", " ").split() if one != name]
    for other in others:
        beside = Terraform(
            terraform.terraform_bin_path,
            Path(terraform.working_dir),
            terraform.environment | {_WORKSPACE: other},
            terraform.explain,
        )
        found = beside.values(beside.cmd("output", json=IsFlagged))
        if found.get("namespace") == namespace:
            raise Refused(
                f"The state of workspace {name} has nothing, and namespace {namespace} is that of workspace {other}.",
                next_step=f"export {_WORKSPACE}={other}; for another installation: namespace and catalog of its own in "
                f"a file, then: corral plan --var-file FILE",
            )


def _another(namespace: str, typed: Callable[[str], str]) -> str:
    return f"Give it a state of its own: {typed(f'workspace new {namespace}')}; then: export {_WORKSPACE}={namespace}"


def _outputs(document: Mapping[str, Any]) -> dict[str, Any]:
    """The values of the outputs of the state before the plan."""
    changes = {name: one.get("before") for name, one in (document.get("output_changes") or {}).items()}
    return {name: value for name, value in changes.items() if value is not None}


def _lock(document: Mapping[str, Any], side: str) -> Any:
    """The lock of the state (``before``), or of the catalog (``after``); None where there is none."""
    changes = (one["change"] for one in document.get("resource_changes", ()) if one["address"] == _APPLIED)
    return next(((change.get(side) or {}).get("input") for change in changes), None)


def _nodes(lock: Any) -> dict[str, str]:
    """The nodes of the cards of *lock*, each with the name of a card in it."""
    cards = (lock or {}).get("cards") or {}
    return {str(card["node"]): name for name, card in cards.items() if card.get("node")}
