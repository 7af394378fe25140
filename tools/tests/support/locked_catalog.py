"""Catalogs with a fresh lock, for tests that begin where `corral lock` ends.

Neither hub nor engine is asked: files, commits and predictions are invented.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from corral.agent.lock_file import LockedFile
from corral.catalog import catalog
from corral.catalog.argv import llama_server_argv
from corral.catalog.intent import Model
from corral.engine.embedded import ENGINE
from corral.lock.lock import Lock, LockEntry
from corral.vram.prediction import MIB, Bytes, Prediction, Rung
from corral.vram.rules import RULES_VERSION

SMALLEST_INTENT: dict[str, Any] = {
    "source": {"repo": "example/tiny-GGUF", "quant": "F16"},
    "card": "laptop",
    "context": 512,
    "modalities": ["text"],
}


def write_catalog(folder: Path, intents: Mapping[str, Any], argv: Sequence[str] | None = None) -> Path:
    """Write ``models/<id>.yaml``, a card and a lock that belongs to them; return *folder*.

    Args:
        folder: where; made when missing.
        intents: each model's intent by id (written as JSON, which is YAML).
        argv: the command of every model; the one that `corral lock` makes by default.
    """
    (folder / "models").mkdir(parents=True)
    for model, intent in intents.items():
        (folder / "models" / f"{model}.yaml").write_text(json.dumps(intent, ensure_ascii=False), encoding="utf-8")
    (folder / "cards").mkdir()
    (folder / "cards" / "laptop.yaml").write_text("vram_mib: 8192\n", encoding="utf-8")
    write_lock(folder, argv=argv)
    return folder


def write_lock(folder: Path, needs: Mapping[str, int] | None = None, argv: Sequence[str] | None = None) -> None:
    """Write the lock that belongs to the catalog in *folder*.

    Args:
        folder: with ``models/`` and ``cards/``.
        needs: MiB of models on their card; 100 where none is given.
        argv: as in ``write_catalog``.
    """
    (folder / "lock.json").write_text(lock_of(folder, needs or {}, argv).text(), encoding="utf-8")


def lock_of(folder: Path, needs: Mapping[str, int], argv: Sequence[str] | None = None) -> Lock:
    """See ``write_lock``."""
    found = catalog.load(folder)
    entries = {}
    for model_id, model in found.models.items():
        files = _files(model_id, model)
        words = tuple(argv or llama_server_argv(model_id, model, files))
        entries[model_id] = LockEntry(
            intent=model.normalised(),
            repo=model.source.repo,
            revision=_sha256(str(model.source.repo))[:40],
            licence="apache-2.0",
            files=files,
            argv=words,
            predicted=_predicted(needs.get(model_id, 100) * MIB),
            measured=found.measured.on_card(model_id, words),
        )
    images = {
        name: f"{image.name}:{image.tag}@{image.digest or f'sha256:{_sha256(image.name)}'}"
        for name, image in found.images.items()
    }
    return Lock(sources=dict(found.sources), images=images, cards=dict(found.cards), models=entries)


def _files(model_id: str, model: Model) -> tuple[LockedFile, ...]:
    roles = ("model", "projector") if "image" in model.modalities else ("model",)
    return tuple(
        LockedFile(path=f"{role}.gguf", role=role, size=1024, sha256=_sha256(f"{model_id} {role}")) for role in roles
    )


def _predicted(need: int) -> Prediction:
    host = Bytes(weights=MIB, context=0, compute=0, projector=0)
    return Prediction(
        engine=ENGINE,
        rules_version=RULES_VERSION,
        headers=(),
        context_trained=131072,
        gpu=Bytes(weights=need, context=0, compute=0, projector=0),
        host=host,
        gpu_bytes=need,
        ladder=(Rung(context=2048, gpu_bytes=need, host_bytes=host.total),),
    )


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
