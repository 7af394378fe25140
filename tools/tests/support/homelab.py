"""The operator's own catalog with a lock, made without the hub: published shapes of its models, predicted for real."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from corral.agent.lock_file import LockedFile
from corral.catalog import catalog as catalogs
from corral.catalog.catalog import Catalog
from corral.catalog.intent import Model
from corral.hub.resolved import Resolved
from corral.lock import headers
from corral.lock import lock as locks
from corral.lock.predict import Predicted, Predictor
from corral.lock.relock import relock
from corral.paths import REPOSITORY
from corral.vram.gguf_header import canonical, parse
from tests.support import gguf_models

CATALOG = REPOSITORY / "terraform" / "catalog"
_FILES = {
    "Qwen/Qwen3-8B-GGUF": ["qwen3-8b-q4km"],
    "Qwen/Qwen3-VL-4B-Instruct-GGUF": ["qwen3vl-4b-q4km", "mmproj-qwen3vl-4b-f16"],
    "Qwen/Qwen3-VL-8B-Instruct-GGUF": ["qwen3vl-8b-q4km", "mmproj-qwen3vl-8b-f16"],
    "openbmb/MiniCPM-V-4_5-gguf": ["minicpm-v-4.5-q4km", "mmproj-minicpm-v-4.5-f16"],
}


def write_catalog(folder: Path) -> Path:
    """Copy the catalog to *folder* and lock it there, headers beside the lock; return *folder*.  Takes seconds."""
    for kind in ("models", "cards"):
        shutil.copytree(CATALOG / kind, folder / kind)
    fixtures = {name: _header(name, folder / f"{name}.gguf") for files in _FILES.values() for name in files}
    headers.write(folder, {headers.sha256_of(fixture): fixture for fixture in fixtures.values()})
    wanted = catalogs.load(folder)
    made = relock(wanted, None, _resolve, _Kept(wanted, fixtures))
    locks.write(wanted.lock_file, made.lock)
    return folder


def _header(name: str, file: Path) -> bytes:
    gguf_models.write(name, file)
    with file.open("rb") as stream:
        header = parse(stream.read(1 << 20), file_size=file.stat().st_size)
    file.unlink()
    return canonical(header)


def _resolve(model: Model, catalog_dir: Path, commit: str | None) -> Resolved:
    del catalog_dir, commit
    assert model.source.repo
    files = tuple(
        LockedFile(f"{name}.gguf", "projector" if name.startswith("mmproj") else "model", 1, _sha256(name))
        for name in _FILES[model.source.repo]
    )
    return Resolved(model.source.repo, hashlib.sha1(b"main").hexdigest(), "apache-2.0", files)


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


class _Kept(Predictor):
    """Knows the headers of every model from the start."""

    def __init__(self, catalog: Catalog, fixtures: dict[str, bytes]) -> None:
        super().__init__(catalog)
        self._fixtures = fixtures

    def predict(
        self,
        model_id: str,
        model: Model,
        resolved: Resolved,
        argv: Sequence[str],
        known: Sequence[str] = (),
        runs: str | None = None,
    ) -> Predicted:
        names: list[Any] = _FILES[str(model.source.repo)]
        return super().predict(
            model_id, model, resolved, argv, known or [headers.sha256_of(self._fixtures[name]) for name in names], runs
        )
