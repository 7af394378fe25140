"""The names that a catalog's models go by.

Read past the rules of the catalog: an intent that is just being edited is still the intent of a model that was started.
"""

from __future__ import annotations

from pathlib import Path

import yaml

from corral.errors import Refused


def read(catalog: Path) -> dict[str, str]:
    """Every id and alias of the models in *catalog*, with the id that it stands for.

    Raises:
        Refused: there is no model.
    """
    found = {path.stem: path for path in sorted((catalog / "models").glob("*.yaml"))}
    if not found:
        raise Refused(f"The catalog {catalog} has no model.", next_step="Name another with: --catalog DIR")
    aliases = {alias: model for model, path in found.items() for alias in _aliases(path)}
    return aliases | {model: model for model in found}


def _aliases(intent: Path) -> list[str]:
    try:
        document = yaml.load(intent.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)
        return [alias for alias in document.get("aliases", ()) if isinstance(alias, str)]
    except (OSError, ValueError, yaml.YAMLError, AttributeError, TypeError):
        return []
