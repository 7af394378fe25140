"""The Kubernetes objects that a plan makes, changes or removes, in words; the catalog's own words are in changes.py."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

_WORDS = (  # of the paths that an operator knows by another name
    ("node_affinity", "values", "node"),
    ("ingress", "namespace_selector.match_labels.kubernetes.io/metadata.name", "admits namespaces"),
)
_ELSEWHERE = (
    "image",
    "annotations.checksum/config",
)  # an image has a line of its own; the configuration is the catalog
_MOST_DETAILS = 4
_MOST_LENGTH = 60


def lines(moving: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """A line for each kind of object that is made or removed, and for each object that is changed."""
    for sign, actions in (("+", ["create"]), ("-", ["delete"])):
        names: dict[str, list[str]] = {}
        for one in moving:
            if one["change"]["actions"] == actions:
                names.setdefault(_kind(one), []).append(_name(one) + _notable(one))
        for kind, found in sorted(names.items()):
            yield f"{sign} {kind}: {', '.join(sorted(found))}"
    for one in moving:
        if one["change"]["actions"] not in (["create"], ["delete"]) and (details := list(_differences(one))):
            more = [f"and {len(details) - _MOST_DETAILS} more"] if len(details) > _MOST_DETAILS else []
            yield f"~ {_kind(one)} {_name(one)}: {', '.join(details[:_MOST_DETAILS] + more)}"


def _kind(one: Mapping[str, Any]) -> str:
    """``network policy`` of ``kubernetes_network_policy_v1``."""
    return str(one["type"]).removeprefix("kubernetes_").removesuffix("_v1").replace("_", " ")


def _name(one: Mapping[str, Any]) -> str:
    sides = (one["change"].get(side) or {} for side in ("after", "before"))
    return next((str(side["metadata"][0]["name"]) for side in sides if side.get("metadata")), str(one["name"]))


def _notable(one: Mapping[str, Any]) -> str:
    """What an operator chose of an object that is made."""
    leaves = _leaves(one["change"].get("after"))
    found = [f"{word} {_shown(value)}" for path, value in leaves.items() if (word := _word(path)) != path]
    return f" ({', '.join(found)})" if found else ""


def _differences(one: Mapping[str, Any]) -> Iterator[str]:
    change = one["change"]
    if len(change["actions"]) > 1:
        yield "is replaced"
    before, after = _leaves(change.get("before")), _leaves(change.get("after"))
    unknown = {path for path, value in _leaves(change.get("after_unknown")).items() if True in value}
    for path in sorted({*before, *after}):
        if path in unknown or path.endswith(_ELSEWHERE) or before.get(path) == after.get(path):
            continue
        yield f"{_word(path)} {_shown(before.get(path, ()))} → {_shown(after.get(path, ()))}"


def _word(path: str) -> str:
    return next((word for part, end, word in _WORDS if part in path and path.endswith(end)), path)


def _shown(values: Sequence[Any]) -> str:
    text = " ".join(", ".join(str(one) for one in values).split()) or "none"
    return text if len(text) <= _MOST_LENGTH else f"{text[:_MOST_LENGTH]}…"


def _leaves(value: Any, path: str = "") -> dict[str, tuple[Any, ...]]:
    """The values inside of *value* by their paths; Terraform has a block as a list, so that a path may have several."""
    if isinstance(value, list):
        found: dict[str, tuple[Any, ...]] = {}
        for one in value:
            for key, values in _leaves(one, path).items():
                found[key] = (*found.get(key, ()), *values)
        return found
    if isinstance(value, dict):
        found = {}
        for key, one in value.items():
            skips = key in ("spec", "metadata", "template")
            found |= _leaves(one, path if skips else f"{path}.{key}".lstrip("."))
        return found
    return {} if value is None or value == "" else {path: (value,)}
