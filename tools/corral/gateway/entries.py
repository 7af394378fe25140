"""corral's models in a LiteLLM of others: which entries are corral's, and what differs from the catalog.

An entry is corral's where ``model_info.corral`` has the mark; its ``id`` follows from mark and name.  LiteLLM shows no
key, so that ``model_info.corral_sha256`` has the digest of the whole entry, its random key included.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from corral.errors import Refused

Entry = Mapping[str, Any]
"""An entry of LiteLLM's list: ``model_name``, ``litellm_params``, ``model_info``."""

_MARK, _DIGEST = "corral", "corral_sha256"
_HIDDEN = ("api_key",)  # LiteLLM never shows it


@dataclass(frozen=True)
class Change:
    """What is to be done with one entry.

    Attributes:
        kind: of the change.
        name: a name that requests use.
        entry: as it is to be; of one that is removed, as it is.
        details: the keys that differ, each with what was and what is to be.
    """

    kind: Literal["add", "change", "remove"]
    name: str
    entry: Entry
    details: tuple[str, ...] = ()

    def __str__(self) -> str:
        sign = {"add": "+", "remove": "-", "change": "~"}[self.kind]
        return f"{sign} {self.name}{': ' if self.details else ''}{', '.join(self.details)}"

    def as_json(self) -> dict[str, Any]:
        """The shape of ``--json``."""
        return {"change": self.kind, "model": self.name, "details": list(self.details)}


def marked(entry: Entry, mark: str, api_key: str) -> Entry:
    """*entry* of the catalog as it is written: with *mark*, its id, its digest, and *api_key* for the door."""
    params = {**entry["litellm_params"], "api_key": api_key}
    digest = hashlib.sha256(json.dumps([entry["model_info"], params], sort_keys=True).encode()).hexdigest()
    name = entry["model_name"]
    own = hashlib.sha256(f"{mark}/{name}".encode()).hexdigest()[:24]
    info = {**entry["model_info"], "id": f"corral-{own}", _MARK: mark, _DIGEST: digest}
    return {"model_name": name, "litellm_params": params, "model_info": info}


def changes(wanted: Sequence[Entry], present: Sequence[Entry], mark: str) -> tuple[Change, ...]:
    """What brings *present*, of which those with *mark* are corral's, to *wanted*; sorted by name.

    Raises:
        Refused: another entry has a name of the catalog, between which LiteLLM would share the requests; or one of
            corral's is in LiteLLM's own file, which its API does not change.
    """
    ours = {one["model_info"]["id"]: one for one in present if one["model_info"].get(_MARK) == mark}
    names = {one["model_name"] for one in wanted}
    if taken := sorted({one["model_name"] for one in present if one["model_info"].get("id") not in ours} & names):
        raise Refused(
            f"LiteLLM has other entries called {', '.join(taken)}, without the mark {mark}: it would share the "
            "requests between both.",
            next_step="Remove those, or give the models other names (docs/clients.md)",
        )
    if fixed := sorted(one["model_name"] for one in ours.values() if one["model_info"].get("db_model") is False):
        raise Refused(
            f"{', '.join(fixed)} have the mark {mark}, and stand in LiteLLM's own configuration, which its API cannot "
            "change.",
            next_step="Take them out of that file",
        )
    by_id = {one["model_info"]["id"]: one for one in wanted}
    found = [Change("add", one["model_name"], one) for own, one in by_id.items() if own not in ours]
    found += [Change("remove", one["model_name"], one) for own, one in ours.items() if own not in by_id]
    for own in by_id.keys() & ours.keys():
        if details := tuple(_differences(ours[own], by_id[own])):
            found.append(Change("change", by_id[own]["model_name"], by_id[own], details))
    return tuple(sorted(found, key=lambda one: (one.name, one.kind)))


def _differences(before: Entry, after: Entry) -> list[str]:
    found = []
    for part in ("litellm_params", "model_info"):
        for key, value in after[part].items():
            old = before[part].get(key)
            if key not in (*_HIDDEN, _DIGEST) and old != value:
                found.append(f"{key} {json.dumps(old)} → {json.dumps(value)}")
    if not found and before["model_info"].get(_DIGEST) != after["model_info"][_DIGEST]:
        found.append("another key")
    return found
