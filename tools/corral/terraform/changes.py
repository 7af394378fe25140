"""What a plan of the homelab means in the words of the catalog: models, images, the store, the server.

Before and after are read from the plan itself: the outputs ``models`` and ``seating``, the download's ConfigMap with
the lock, the server's with its configuration, the containers of the Job and the Deployment.  Outputs say what an apply
wanted, also when it failed; what is served is what the Deployment runs.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import yaml

_DEPLOYMENT, _JOB, _CONFIG_MAP = "kubernetes_deployment_v1", "kubernetes_job_v1", "kubernetes_config_map_v1"
_CLAIMS = ("kubernetes_persistent_volume_v1", "kubernetes_persistent_volume_claim_v1")
_IMAGES = {_DEPLOYMENT: "llama-swap", _JOB: "fetch"}
_SILENT = ("no-op", "read")
_TOLD = ("context", "parallel", "modalities", "reasoning", "aliases", "slot", "ttl")
_UNKNOWN = object()

Server = Literal["starts", "restarts", "stops", "stays", "absent"]


@dataclass(frozen=True)
class Change:
    """One thing of the catalog that is added, removed or changed.

    Attributes:
        kind: ``model``, ``image``, ``card``, ``store`` or ``download``.
        name: its id; empty for the store and the download.
        change: what happens to it.
        details: in words.
        fetch_bytes: what a model's files bring into the store that is not known to be there: at most, for only the
            download sees the store.
        seat_mib: a model's seat before and after; None where there is none.
    """

    kind: str
    name: str
    change: Literal["added", "removed", "changed"]
    details: tuple[str, ...] = ()
    fetch_bytes: int = 0
    seat_mib: tuple[int | None, int | None] = (None, None)

    def __str__(self) -> str:
        sign = {"added": "+", "removed": "-", "changed": "~"}[self.change]
        told = f": {', '.join(self.details)}" if self.details else ""
        return f"{sign} {self.kind}{f' {self.name}' if self.name else ''}{told}"


@dataclass(frozen=True)
class Changes:
    """All of a plan.

    Attributes:
        catalog: what changes in the catalog's own words.
        server: what happens to the running llama-swap.
        resources: how many of Terraform's resources are to add, change and destroy.
        outputs: names of outputs that change.
    """

    catalog: tuple[Change, ...]
    server: Server
    resources: Mapping[str, int]
    outputs: tuple[str, ...] = ()

    @property
    def none(self) -> bool:
        """Whether an apply would do nothing at all."""
        return not any(self.resources.values()) and not self.outputs

    def lines(self) -> list[str]:
        """The plan in words; one line when there is nothing to do."""
        if self.none:
            return ["No changes."]
        told = [str(change) for change in self.catalog]
        return [*(told or ["Models, images and cards stay as they are."]), _SERVER[self.server]]

    def as_json(self) -> dict[str, Any]:
        """The same for a program; MiB and bytes."""
        return {
            "changes": not self.none,
            "catalog": [
                {
                    "kind": one.kind,
                    "name": one.name,
                    "change": one.change,
                    "details": list(one.details),
                    **({"fetch_bytes": one.fetch_bytes} if one.kind == "model" else {}),
                    **(
                        {"seat_mib": {"before": one.seat_mib[0], "after": one.seat_mib[1]}} if any(one.seat_mib) else {}
                    ),
                }
                for one in self.catalog
            ],
            "server": self.server,
            "server_restarts": self.server == "restarts",
            "resources": dict(self.resources),
            "outputs": list(self.outputs),
        }


_SERVER = {
    "starts": "server restarts: no (it starts for the first time)",
    "restarts": "server restarts: yes",
    "stops": "server restarts: no (it stops for good)",
    "stays": "server restarts: no",
    "absent": "server restarts: no (there is none)",
}


def of_plan(document: Mapping[str, Any], lock: Mapping[str, Any] | None = None) -> Changes:
    """What the plan *document* (``terraform show -json``) means.

    Args:
        document: the plan.
        lock: the catalog's lock as JSON, for what the plan itself does not hold.
    """
    resources = [one for one in document.get("resource_changes", []) if one.get("mode") == "managed"]
    moving = [one for one in resources if one["change"]["actions"] not in ([word] for word in _SILENT)]
    outputs = document.get("output_changes", {})
    before, after = _side(resources, outputs, "before"), _side(resources, outputs, "after")
    if not after.lock_models and lock and _has_server(resources, "after"):
        after.lock_models.update(lock.get("models", {}))
    served = set(before.commands) if _has_server(resources, "before") else set()
    before.models = {name: model for name, model in before.models.items() if name in served}
    fetched = set() if _is_tainted(document.get("prior_state", {})) else _fetched(resources, before, after)
    catalog = [
        *_models(before, after, fetched),
        *_images(resources),
        *_cards(before, after),
        *_store(moving),
    ]
    if not any(one.fetch_bytes for one in catalog) and _runs_again(moving):
        catalog.append(Change("download", "", "changed", ("runs again, and finds what it needs in the store",)))
    if after.unknown:
        catalog.append(Change("model", "", "changed", ("known only after the apply",)))
    return Changes(
        catalog=tuple(catalog),
        server=_server(resources),
        resources=_count(moving),
        outputs=tuple(name for name, one in outputs.items() if one["actions"] != ["no-op"]),
    )


@dataclass
class _Side:
    """Everything that is known of one side of a plan."""

    models: dict[str, dict[str, Any]] = field(default_factory=dict)
    seats: dict[str, int] = field(default_factory=dict)
    cards: dict[str, dict[str, Any]] = field(default_factory=dict)
    lock_models: dict[str, dict[str, Any]] = field(default_factory=dict)
    store: str | None = None
    commands: dict[str, str] = field(default_factory=dict)
    unknown: bool = False

    def files(self, model: str) -> dict[str, int]:
        """Sizes in bytes of a model's files by sha256."""
        return {file["sha256"]: file["size"] for file in self.lock_models.get(model, {}).get("files", [])}

    def revision(self, model: str) -> str | None:
        found = self.lock_models.get(model, {}).get("revision")
        return str(found) if found else None


def _side(resources: Sequence[Mapping[str, Any]], outputs: Mapping[str, Any], which: str) -> _Side:
    side = _Side()
    models, chart = _value(outputs.get("models"), which), _value(outputs.get("seating"), which)
    side.unknown = models is _UNKNOWN or chart is _UNKNOWN
    for model in models if isinstance(models, list) else []:
        side.models[model["id"]] = model
    if isinstance(chart, dict):
        side.seats = {model: seat["mib"] for model, seat in chart.get("models", {}).items()}
        side.cards = chart.get("cards", {})
    for one in resources:
        data = ((one["change"].get(which) or {}).get("data") if one["type"] == _CONFIG_MAP else None) or {}
        for name, text in data.items():
            if name == "lock.json":
                side.lock_models = dict(json.loads(text).get("models", {}))
                side.store = data.get("store")
            elif name == "config.yaml":
                config = yaml.safe_load(text) or {}
                side.commands = {model: str(entry.get("cmd")) for model, entry in config.get("models", {}).items()}
    return side


def _value(output: Mapping[str, Any] | None, which: str) -> Any:
    if output is None:
        return None
    if which == "after" and output.get("after_unknown") is True:
        return _UNKNOWN
    return output.get(which)


def _fetched(resources: Sequence[Mapping[str, Any]], before: _Side, after: _Side) -> set[str]:
    """sha256 of what a finished Job has brought into the store that is used after too."""
    jobs = [one for one in resources if one["type"] == _JOB and one["change"].get("before")]
    if not jobs or (after.store != before.store and after.lock_models):
        return set()
    return {sha256 for model in before.lock_models for sha256 in before.files(model)}


def _models(before: _Side, after: _Side, fetched: set[str]) -> Iterator[Change]:
    for name in sorted(before.models.keys() | after.models.keys()):
        files = after.files(name)
        missing = sum(size for sha256, size in files.items() if sha256 not in fetched)
        seats = (before.seats.get(name), after.seats.get(name))
        if name not in after.models:
            if not after.unknown:
                yield Change("model", name, "removed", _gone(before, name), seat_mib=seats)
        elif name not in before.models:
            fetch = f"fetch {_size(missing)}" if missing else "nothing to fetch"
            seat = () if seats[1] is None else (f"seat {seats[1]} MiB",)
            yield Change("model", name, "added", (fetch, *seat), missing, seats)
        else:
            details = _differences(before, after, name)
            if missing and set(files) - fetched:
                details = (*details, f"fetch {_size(missing)}")
            if details:
                yield Change("model", name, "changed", details, missing, seats)


def _gone(before: _Side, name: str) -> tuple[str, ...]:
    seat = before.seats.get(name)
    freed = () if seat is None else (f"seat {seat} MiB",)
    return (*freed, "its files stay in the store until: corral prune")


def _differences(before: _Side, after: _Side, name: str) -> tuple[str, ...]:
    was, now = before.models[name], after.models[name]
    details = []
    old, new = before.revision(name), after.revision(name)
    if new and old and old != new:
        details.append(f"new revision {new[:12]}")
    elif new and old is not None and set(before.files(name)) != set(after.files(name)):
        details.append("other files")
    details += [
        f"{key} {_shown(was.get(key))} → {_shown(now.get(key))}"
        for key in dict.fromkeys((*_TOLD, *was, *now))
        if was.get(key) != now.get(key)
    ]
    if before.seats.get(name) != after.seats.get(name):
        details.append(f"seat {_shown(before.seats.get(name))} → {_shown(after.seats.get(name))} MiB")
    cmd = before.commands.get(name), after.commands.get(name)
    if not details and cmd[0] and cmd[1] and cmd[0] != cmd[1]:
        details.append(f"command line {_other_words(cmd[0].split(), cmd[1].split())}")
    return tuple(details)


def _other_words(old: list[str], new: list[str]) -> str:
    """What differs between two command lines, each with the word before it: the flag of a value."""
    parts = []
    for kind, a, b, c, d in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if kind == "replace":
            parts.append(f"{' '.join(old[max(0, a - 1) : b])} → {' '.join(new[max(0, c - 1) : d])}")
        elif kind != "equal":
            parts.append(f"{' '.join(old[a:b]) or 'nothing'} → {' '.join(new[c:d]) or 'nothing'}")
    return ", ".join(parts)


def _images(resources: Sequence[Mapping[str, Any]]) -> Iterator[Change]:
    for one in resources:
        name, change = _IMAGES.get(one["type"]), one["change"]
        if name is None:
            continue
        was, now = _image(change.get("before")), _image(change.get("after"))
        if was == now:
            continue
        if was and now:
            yield Change("image", name, "changed", (f"{_short(was)} → {_short(now)}",))
        elif now:
            yield Change("image", name, "added", (_short(now),))
        elif was:
            yield Change("image", name, "removed", (_short(was),))


def _image(value: Any) -> str | None:
    """The image of the first container that a workload starts with."""
    pod = _block(_block(_block(_block(value, "spec"), "template"), "spec"), None)
    for kind in ("init_container", "container"):
        for container in pod.get(kind) or []:
            if image := container.get("image"):
                return str(image)
    return None


def _block(value: Any, key: str | None) -> dict[str, Any]:
    """The one block *key* of *value*, or *value* itself; empty when there is none."""
    found = value if key is None else (value or {}).get(key)
    if isinstance(found, list):
        found = found[0] if found else None
    return found if isinstance(found, dict) else {}


def _cards(before: _Side, after: _Side) -> Iterator[Change]:
    """Cards on which something other than a model's own seat changes."""
    for name in sorted(before.cards.keys() & after.cards.keys()):
        was, now = before.cards[name], after.cards[name]
        details = [
            f"{key} {_shown(was.get(field))} → {_shown(now.get(field))} MiB"
            for key, field in (("memory", "vram_mib"), ("reserve", "reserve_mib"))
            if was.get(field) != now.get(field)
        ]
        old, new = was.get("tenants") or {}, now.get("tenants") or {}
        details += [
            f"{tenant} {_shown(_mib(old.get(tenant)))} → {_shown(_mib(new.get(tenant)))} MiB"
            for tenant in sorted(old.keys() | new.keys())
            if old.get(tenant) != new.get(tenant)
        ]
        if details:
            yield Change("card", name, "changed", (*details, f"{_shown(now.get('free_mib'))} MiB left"))


def _mib(tenant: Any) -> Any:
    return tenant.get("budget_mib") if isinstance(tenant, dict) else tenant


def _store(moving: Sequence[Mapping[str, Any]]) -> Iterator[Change]:
    actions = {action for one in moving if one["type"] in _CLAIMS for action in one["change"]["actions"]}
    if not actions:
        return
    if actions == {"create"}:
        yield Change("store", "", "added")
    elif actions == {"delete"}:
        yield Change("store", "", "removed", ("what lies in it stays",))
    else:
        yield Change("store", "", "changed")


def _runs_again(moving: Sequence[Mapping[str, Any]]) -> bool:
    return any(one["type"] == _JOB and {"create", "delete"} <= set(one["change"]["actions"]) for one in moving)


def _server(resources: Sequence[Mapping[str, Any]]) -> Server:
    for one in resources:
        if one["type"] != _DEPLOYMENT:
            continue
        change, actions = one["change"], one["change"]["actions"]
        if actions == ["create"]:
            return "starts"
        if actions == ["delete"]:
            return "stops"
        if "delete" in actions or ("update" in actions and _template_changes(change)):
            return "restarts"
        return "stays"
    return "absent"


def _has_server(resources: Sequence[Mapping[str, Any]], which: str) -> bool:
    return any(one["type"] == _DEPLOYMENT and one["change"].get(which) for one in resources)


def _is_tainted(state: Any) -> bool:
    """Whether the last download failed, as the prior state knows it, whatever else is a reason for a new one."""
    if isinstance(state, list):
        return any(map(_is_tainted, state))
    if not isinstance(state, dict):
        return False
    if state.get("type") == _JOB:
        return state.get("tainted") is True
    return any(_is_tainted(state.get(key)) for key in ("values", "root_module", "child_modules", "resources"))


def _template_changes(change: Mapping[str, Any]) -> bool:
    """Whether the pod would be another; what is not known yet counts as another."""
    was, now = _block(change["before"], "spec").get("template"), _block(change["after"], "spec").get("template")
    unknown = _block(change.get("after_unknown"), "spec").get("template")
    return was != now or _any_true(unknown)


def _any_true(value: Any) -> bool:
    if isinstance(value, dict):
        return any(_any_true(one) for one in value.values())
    if isinstance(value, list):
        return any(_any_true(one) for one in value)
    return value is True


def _count(moving: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    actions = [one["change"]["actions"] for one in moving]
    return {
        "add": sum("create" in one for one in actions),
        "change": sum("update" in one for one in actions),
        "destroy": sum("delete" in one for one in actions),
    }


def _short(image: str) -> str:
    name, _, digest = image.partition("@")
    return f"{name}@{digest[:19]}" if digest else name


def _size(size: int) -> str:
    """*size* in bytes as ``2.5 GiB``: powers of 1024, as the card's memory is counted."""
    for unit, scale in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if size >= 1 << scale:
            return f"{size / (1 << scale):.1f} {unit}"
    return f"{size} B"


def _shown(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    return str(value)
