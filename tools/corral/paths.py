"""Finds corral's own files, and the folders for what it makes; creates none of them."""

from __future__ import annotations

import os
from pathlib import Path

from corral.errors import Refused

REPOSITORY = Path(__file__).resolve().parents[2]
"""The clone that this package runs from (it is installed editable)."""


def state_dir() -> Path:
    """The folder of the local stack: Terraform state, rendered config, logs, process records, the local store.

    ``CORRAL_STATE``, else ``.corral`` in the clone (ignored by git).
    """
    chosen = os.environ.get("CORRAL_STATE")
    return Path(chosen).expanduser().absolute() if chosen else REPOSITORY / ".corral"


def cache_dir() -> Path:
    """The user's cache for what is built once per version: ``$XDG_CACHE_HOME/corral`` or ``~/.cache/corral``."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "corral"


def default_store() -> Path:
    """The model store of the local stack."""
    return state_dir() / "store"


def records_dir() -> Path:
    """What `corral exporter` recorded on this machine."""
    return state_dir() / "records"


def find_catalog(start: Path | None = None) -> Path:
    """The nearest ``terraform/catalog`` in *start* (default: the working directory) or above it.

    Raises:
        Refused: there is none.
    """
    here = (start or Path.cwd()).resolve()
    for folder in (here, *here.parents):
        candidate = folder / "terraform" / "catalog"
        if candidate.is_dir():
            return candidate
    raise Refused(
        f"No catalog: neither {here} nor any folder above it holds terraform/catalog.",
        next_step="Run corral inside the repository, or name one with: --catalog DIR",
    )
