"""Small catalogs for the checks of a running endpoint: no lock, nothing to download."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def write(folder: Path, models: dict[str, dict[str, Any]]) -> Path:
    """Write a catalog whose *models* are given by what matters to smoke; return *folder*."""
    (folder / "models").mkdir(parents=True)
    (folder / "cards").mkdir()
    (folder / "cards" / "laptop.yaml").write_text("vram_mib: 4096\n", encoding="utf-8")
    for model, intent in models.items():
        whole = {
            "source": {"repo": f"example/{model}-GGUF", "quant": "F16"},
            "card": "laptop",
            "context": 512,
            "modalities": ["text"],
            **intent,
        }
        (folder / "models" / f"{model}.yaml").write_text(json.dumps(whole), encoding="utf-8")
    return folder
