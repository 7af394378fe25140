"""What a plan of the homelab means in the words of the catalog: models, images, cards, the store, the server.

The plan holds two locks, the applied one and the one that it would apply: the input of ``terraform_data.applied_lock``,
which changes last.  Everything else is read from the resources and outputs that it changes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import ValidationError

from corral.lock.compare import Change as LockChange
from corral.lock.compare import Difference, argv_words, compare, shown
from corral.lock.lock import Lock
from corral.seating import chart

_APPLIED_LOCK = "terraform_data.applied_lock"
_DEPLOYMENT, _JOB = "kubernetes_deployment_v1", "kubernetes_job_v1"
_CLAIMS = ("kubernetes_persistent_volume_v1", "kubernetes_persistent_volume_claim_v1")
_IMAGES = {_DEPLOYMENT: "llama-swap", _JOB: "fetch"}
_SILENT = ("no-op", "read")
_CARD_KEYS = {"vram_mib": "memory", "reserve_mib": "reserve"}

Server = Literal["starts", "restarts", "stops", "stays", "absent"]


@dataclass(frozen=True)
class Change:
    """One thing of the catalog that is added, removed or changed.

    Attributes:
        kind: ``model``, ``image``, ``card``, ``store`` or ``download``.
        name: its id; empty for the store and the download.
        change: what happens to it.
        details: for people.
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


def of_plan(document: Mapping[str, Any]) -> Changes:
    """What the plan *document* (``terraform show -json``) means."""
    resources = [one for one in document.get("resource_changes", []) if one.get("mode") == "managed"]
    moving = [one for one in resources if one["change"]["actions"] not in ([word] for word in _SILENT)]
    outputs = document.get("output_changes", {})
    before, after = (_lock(resources, which) for which in ("before", "after"))
    fetched = _fetched(resources, outputs, before, failed=_is_tainted(document.get("prior_state", {})))
    differences = compare(before, after)
    catalog = [
        *_models(differences, after, fetched),
        *_images(resources),
        *_cards(differences, after),
        *_store(moving),
    ]
    if not any(one.fetch_bytes for one in catalog) and _runs_again(moving):
        catalog.append(Change("download", "", "changed", ("runs again, and finds what it needs in the store",)))
    return Changes(
        catalog=tuple(catalog),
        server=_server(resources),
        resources=_count(moving),
        outputs=tuple(name for name, one in outputs.items() if one["actions"] != ["no-op"]),
    )


def _lock(resources: Sequence[Mapping[str, Any]], which: str) -> Lock | None:
    """The lock on one side of the plan; None when there is none, or only one of another version of corral."""
    change: Mapping[str, Any] = next((one["change"] for one in resources if one.get("address") == _APPLIED_LOCK), {})
    found = (change.get(which) or {}).get("input")
    try:
        return Lock.model_validate_json(json.dumps(found), strict=True) if found else None
    except ValidationError:
        return None


def _fetched(
    resources: Sequence[Mapping[str, Any]], outputs: Mapping[str, Any], before: Lock | None, *, failed: bool
) -> set[str]:
    """sha256 of what a finished Job has brought into the store that is used after too."""
    store = outputs.get("store", {"actions": ["no-op"]})
    if failed or store["actions"] not in (["no-op"], ["delete"]):
        return set()
    if before is None or not any(one["type"] == _JOB and one["change"].get("before") for one in resources):
        return set()
    return {file.sha256 for entry in before.models.values() for file in entry.files}


def _models(differences: Sequence[LockChange], after: Lock | None, fetched: set[str]) -> Iterator[Change]:
    for one in (change for change in differences if change.about == "model"):
        files = after.models[one.name].files if after and one.name in after.models else ()
        missing = sum(file.size for file in files if file.sha256 not in fetched)
        seats = next(
            ((was.mib if was else None, now.mib if now else None) for was, now in _sides(one, "seat")), (None, None)
        )
        fetch = (f"fetch {_size(missing)}",) if missing else ()
        match one.kind:
            case "removed":
                stays = "its files stay in the store until: corral prune"
                yield Change("model", one.name, "removed", (f"seat {seats[0]} MiB", stays), seat_mib=seats)
            case "added":
                details = (*(fetch or ("nothing to fetch",)), f"seat {seats[1]} MiB")
                yield Change("model", one.name, "added", details, missing, seats)
            case _:
                if details := (*_words(one), *fetch):
                    if seats == (None, None) and after:
                        mib = chart.of(after).models[one.name].mib
                        seats = (mib, mib)
                    yield Change("model", one.name, "changed", details, missing, seats)


def _sides(change: LockChange, field: str) -> Iterator[tuple[Any, Any]]:
    return ((one.before, one.after) for one in change.differences if one.field == field)


def _words(change: LockChange) -> tuple[str, ...]:
    """What is different about a model that stays; its command line only where no word of the catalog says it."""
    found: dict[str, list[Difference]] = {}
    for one in change.differences:
        found.setdefault(one.field, []).append(one)
    details = [f"{one.field} {shown(one.before)} → {shown(one.after)}" for one in found.get("repo", ())]
    if "revision" in found:
        details.append(f"new revision {str(found['revision'][0].after)[:12]}")
    elif "file" in found:
        details.append("other files")
    details += [f"{one.key} {shown(one.before)} → {shown(one.after)}" for one in found.get("intent", ())]
    details += [f"seat {one.before.mib} → {one.after.mib} MiB" for one in found.get("seat", ())]
    if not details:
        details += [f"command line {argv_words(one.before, one.after)}" for one in found.get("argv", ())]
    return tuple(details)


def _cards(differences: Sequence[LockChange], after: Lock | None) -> Iterator[Change]:
    """Cards that stay, on which something other than a model's own seat changes."""
    for one in differences:
        if one.about != "card" or one.kind != "changed" or after is None:
            continue
        details = [
            f"{_card_key(each.key)} {shown(each.before)} → {shown(each.after)}{' MiB' if 'mib' in each.key else ''}"
            for each in one.differences
        ]
        left = f"{chart.of(after).cards[one.name].free_mib} MiB left"
        yield Change("card", one.name, "changed", (*details, left))


def _card_key(key: str) -> str:
    """A key of a card for people: a tenant's budget by the tenant's name alone."""
    return _CARD_KEYS.get(key, key.removeprefix("tenants.").removesuffix(".budget_mib"))


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
