"""What would make a card fit, as the edit that an operator makes."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from corral.catalog.catalog import Catalog


def edits(card_name: str, card: Mapping[str, Any], catalog: Catalog) -> list[str]:
    """One line for each remedy of *card*: the file, the key, the value, and what is there now."""
    return [_edit(card_name, remedy, catalog) for remedy in card["remedies"]]


def afterwards(catalog: Path) -> str:
    """What to run after an edit."""
    again = shlex.quote(str(catalog))
    return f"Make one of these edits, then run: corral lock --catalog {again} && corral seat --catalog {again}"


def _edit(card_name: str, remedy: Mapping[str, Any], catalog: Catalog) -> str:
    value = remedy["value"]
    if remedy["action"] == "tenant_budget":
        tenant = remedy["tenant"]
        now = catalog.cards[card_name].tenants[tenant].budget_mib
        return f"lower the budget of {tenant}: in cards/{card_name}.yaml, {tenant}: {{budget_mib: {value}}} (now {now})"
    model_id = remedy["model"]
    model = catalog.models[model_id]
    if remedy["action"] == "context":
        return f"lower the context of {model_id}: in models/{model_id}.yaml, context: {value} (now {model.context})"
    return f"move {model_id} to slot {value}: in models/{model_id}.yaml, slot: {value} (now {model.slot})"
