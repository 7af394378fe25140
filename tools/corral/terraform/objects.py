"""The Kubernetes objects that a plan makes, changes or removes, in words; the catalog's own words are in changes.py."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

_WORDS = (  # of the paths that an operator knows by another name
    ("node_affinity", "values", "node"),
    ("ingress", "namespace_selector.match_labels.kubernetes.io/metadata.name", "admits namespaces"),
)
_ELSEWHERE = ("image", "config_map.name")  # each has a line of its own
_CONFIG_MAP = "kubernetes_config_map_v1"
_MOST_DETAILS = 4
_MOST_LENGTH = 60


def lines(moving: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """A line for each kind of object that is made or removed, and for each object that is changed.

    A ConfigMap is named for its content (modules/config-map): another content is one that is made and one that is
    removed, and one change here.
    """
    moving = list(_with_content_replaced(moving))
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


def _with_content_replaced(moving: Sequence[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """The objects of *moving*, where a ConfigMap and the one that it takes the place of are one."""
    made, removed = (
        {
            _without_key(one): one
            for one in moving
            if one["type"] == _CONFIG_MAP and one["change"]["actions"] == [action]
        }
        for action in ("create", "delete")
    )
    for one in moving:
        of = _without_key(one)
        if of not in made or of not in removed:
            yield one
        elif one is made[of]:
            yield {**one, "change": {**one["change"], "actions": ["update"], "before": removed[of]["change"]["before"]}}


def _without_key(one: Mapping[str, Any]) -> str:
    """The address of the resource that *one* is an instance of."""
    return str(one["address"]).partition("[")[0]


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
    if one["type"] == _CONFIG_MAP:
        yield from _files_that_change(before, after)
        return
    unknown = {path for path, value in _leaves(change.get("after_unknown")).items() if True in value}
    for path in sorted({*before, *after}):
        if path in unknown or path.endswith(_ELSEWHERE) or before.get(path) == after.get(path):
            continue
        yield f"{_word(path)} {_shown(before.get(path, ()))} → {_shown(after.get(path, ()))}"


def _files_that_change(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    """The files of a ConfigMap: their content is long, and Terraform's own output has it."""
    for path in sorted({*before, *after}):
        kind, _, file = path.partition(".")
        if kind in ("data", "binary_data") and before.get(path) != after.get(path):
            how = "added" if path not in before else "removed" if path not in after else "changed"
            yield f"{file} {how}"


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
