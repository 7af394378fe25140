"""Catalogs with a fresh lock, for tests that begin where `corral lock` ends."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from corral.catalog.digest import intent_sha256

from tests.support.seating import MIB, vram

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
        argv: the command of every model; a plain one by default.
    """
    (folder / "models").mkdir(parents=True)
    for model, intent in intents.items():
        (folder / "models" / f"{model}.yaml").write_text(json.dumps(intent, ensure_ascii=False), encoding="utf-8")
    (folder / "cards").mkdir()
    (folder / "cards" / "laptop.yaml").write_text("vram_mib: 8192\n", encoding="utf-8")
    words = list(argv or ["llama-server", "-m", "${STORE}/model.gguf", "--port", "${PORT}"])
    rows = vram(words, 100 * MIB, {})
    entries = {
        model: {"intent_sha256": intent_sha256(intent), "files": [], "argv": words, "vram": rows}
        for model, intent in intents.items()
    }
    (folder / "lock.json").write_text(json.dumps({"version": 1, "models": entries}, indent=2), encoding="utf-8")
    return folder
