"""The JSON schemas that editors use, generated from the intent's and the lock's own classes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from corral.catalog import flags
from corral.catalog.card import Card
from corral.catalog.clients import Clients
from corral.catalog.golden import Golden
from corral.catalog.images import Images
from corral.catalog.intent import Model
from corral.catalog.ledger import Ledger
from corral.lock.lock import Lock

_DRAFT = "https://json-schema.org/draft/2020-12/schema"


def schemas() -> dict[str, str]:
    """File name to text of every schema."""
    return {
        "model.schema.json": _text(_model()),
        "card.schema.json": _text(_plain(Card, "One physical GPU and its tenants (cards/<card>.yaml)")),
        "clients.schema.json": _text(_plain(Clients, "The clients of the front door (clients.yaml)")),
        "golden.schema.json": _text(_plain(Golden, "The operator's golden questions (golden.yaml)")),
        "images.schema.json": _text(_plain(Images, "The container images of the cluster (images.yaml)")),
        "lock.schema.json": _text(_plain(Lock, "The facts that `corral lock` found (lock.json)", inputs=False)),
        "measured.schema.json": _text(_plain(Ledger, "What `corral measure` measured (measured.json)", inputs=False)),
    }


def drift(folder: Path) -> list[str]:
    """Names of the schemas in *folder* that are missing or not generated from these classes."""
    return [
        name for name, text in schemas().items() if not (folder / name).exists() or (folder / name).read_text() != text
    ]


def _model() -> dict[str, Any]:
    schema = _plain(Model, "One model of the catalog (models/<id>.yaml)")
    schema["properties"]["args"] |= {"properties": _flags(unsafe=False), "additionalProperties": False}
    schema["properties"]["unsafe"] |= {"propertyNames": {"enum": list(_flags(unsafe=True))}}
    return schema


def _flags(*, unsafe: bool) -> dict[str, Any]:
    """What ``args`` takes, or ``unsafe``, by name."""
    allowed: dict[str, Any] = {}
    for flag in flags.table():
        probe: flags.FlagValue = flag.choices[0] if flag.choices else "1"
        kind: dict[str, Any] = {"type": ["string", "number"], "description": flag.value}
        if flag.value is None:
            probe, kind = True, {"type": "boolean"} if flag.negated else {"const": True}
        elif flag.choices:
            kind = {"enum": list(flag.choices)}
        elif flag.group.text_flag:
            probe, kind = "files/name", {"type": "string", "pattern": flags.TEXT_FILE, "description": "files/NAME"}
        allowed |= {name: kind for name in flag.names if flags.problem_with(name, probe, unsafe=unsafe) is None}
    return dict(sorted(allowed.items()))


def _plain(kind: type[BaseModel], title: str, *, inputs: bool = True) -> dict[str, Any]:
    schema = kind.model_json_schema(mode="validation" if inputs else "serialization")
    return {"$schema": _DRAFT, **schema, "title": title}


def _text(schema: dict[str, Any]) -> str:
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"
