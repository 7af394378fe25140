"""Lock files as far as the agent reads them, made from what a demo hub has; whole ones: ``locked_catalog``."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from corral.agent.lock_file import sealed
from corral.demo.hub import Hub


def locked_file(path: str, content: bytes, role: str = "model") -> dict:
    """The entry of one file."""
    return {"path": path, "role": role, "size": len(content), "sha256": hashlib.sha256(content).hexdigest()}


def hub_model(hub: Hub, repo: str, *paths: str, projector: str | None = None) -> dict:
    """The entry of a model: *paths* of *repo* as it is on main now."""
    commit = hub.repositories.commit(repo, "main")
    files = [(path, "model") for path in paths] + ([(projector, "projector")] if projector else [])
    return {
        "repo": repo,
        "revision": commit.id,
        "licence": "apache-2.0",
        "files": [
            {"path": path, "role": role, "size": commit.files[path].size, "sha256": commit.files[path].sha256}
            for path, role in files
        ],
        "argv": ["llama-server"],
    }


def write_lock(folder: Path, **models: dict) -> Path:
    """``lock.json`` in *folder* with *models*; underscores in their names become dashes."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "lock.json"
    entries = {name.replace("_", "-"): entry for name, entry in models.items()}
    return write_sealed(path, {"version": 2, "models": entries})


def write_sealed(path: Path, document: dict) -> Path:
    """Write *document* to *path* as `corral lock` writes a lock: a fact on each line, and with its seal."""
    path.write_text(sealed(json.dumps({"seal": "", **document}, indent=2) + "\n"), encoding="utf-8")
    return path
