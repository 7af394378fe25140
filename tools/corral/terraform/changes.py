"""A plan of the homelab in the words of the catalog: models, images, cards, clients, the store, the server.

The plan holds two locks, the applied one and the one that it would apply: the input of ``terraform_data.applied_lock``,
which changes last.  Everything else is read from the resources and outputs that it changes.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import ValidationError

from corral.catalog.unsafe import Unsafe, unsafe_flags
from corral.cluster.snapshot import image_key
from corral.lock.compare import Change as LockChange
from corral.lock.compare import Difference, argv_words, compare, shown
from corral.lock.lock import Lock
from corral.seating import chart
from corral.terraform import objects

_APPLIED_LOCK = "terraform_data.applied_lock"
_DEPLOYMENT, _JOB = "kubernetes_deployment_v1", "kubernetes_job_v1"
_CONFIG_MAP = "kubernetes_config_map_v1"
_SERVER_NAME = "llama_swap"  # the store's exporter is a Deployment too
_LABELS = "kubernetes_labels"
_CLAIMS = ("kubernetes_persistent_volume_v1", "kubernetes_persistent_volume_claim_v1")
_PROVISIONED = "provisioned"  # the claim whose volume a StorageClass makes
_CARD_KEYS = {"vram_mib": "memory", "reserve_mib": "reserve"}

Server = Literal["starts", "restarts", "stops", "stays", "absent"]


@dataclass(frozen=True)
class Change:
    """One thing of the catalog that is added, removed or changed."""

    kind: str  # model, image, card, client, store or download
    name: str  # its id; empty for the store and the download
    change: Literal["added", "removed", "changed"]
    details: tuple[str, ...] = ()
    fetch_bytes: int = 0  # of a model: its files that may be missing from the store, which only the download inspects
    seat_mib: tuple[int | None, int | None] = (None, None)  # of a model: before and after

    def __str__(self) -> str:
        sign = {"added": "+", "removed": "-", "changed": "~"}[self.change]
        subject = f"{self.kind} {self.name}".rstrip()
        return f"{sign} {subject}{': ' if self.details else ''}{', '.join(self.details)}"

    def as_json(self) -> dict[str, Any]:
        """The shape of ``--json``; MiB and bytes."""
        found: dict[str, Any] = {
            "kind": self.kind,
            "name": self.name,
            "change": self.change,
            "details": list(self.details),
        }
        if self.kind == "model":
            found["fetch_bytes"] = self.fetch_bytes
        if any(self.seat_mib):
            found["seat_mib"] = dict(zip(("before", "after"), self.seat_mib, strict=True))
        return found


@dataclass(frozen=True)
class Changes:
    """All of a plan."""

    catalog: tuple[Change, ...]  # in the catalog's own words
    server: Server  # what happens to the running llama-swap
    resources: Mapping[str, int]  # how many of Terraform's resources are to add, change and destroy
    outputs: tuple[str, ...] = ()  # names of those that change
    unsafe: tuple[Unsafe, ...] = ()  # of the models as they are afterwards, changed or not
    others: tuple[str, ...] = ()  # what happens to pods that are not corral's, a sentence each
    objects: tuple[str, ...] = ()  # those of Kubernetes that no word of the catalog stands for, a line each

    @property
    def none(self) -> bool:
        """Whether an apply would do nothing at all."""
        return not any(self.resources.values()) and not self.outputs

    def lines(self) -> list[str]:
        """The plan in words; one line when there is nothing to do.

        What interrupts the service is the first line and the last one.
        """
        if self.none:
            return ["No changes."]
        first = [_SERVER[self.server]] if self.server in ("restarts", "stops") else []
        catalog = [str(one) for one in self.catalog] or ["Models, images, cards and clients stay as they are."]
        return [*first, *catalog, *self.objects, *self.others, _SERVER[self.server]]

    def as_json(self) -> dict[str, Any]:
        """The shape of ``--json``."""
        return {
            "changes": not self.none,
            "catalog": [one.as_json() for one in self.catalog],
            "server": self.server,
            "server_restarts": self.server == "restarts",
            "resources": dict(self.resources),
            "outputs": list(self.outputs),
            "unsafe": [one._asdict() for one in self.unsafe],
            "others": list(self.others),
            "objects": list(self.objects),
        }


_SERVER = {
    "starts": "server restarts: no (it starts for the first time)",
    "restarts": "server restarts: yes",
    "stops": "server restarts: no (it stops for good)",
    "stays": "server restarts: no",
    "absent": "server restarts: no (there is none)",
}


def of_plan(document: Mapping[str, Any]) -> Changes:
    """The meaning of the plan *document* (``terraform show -json``)."""
    resources = [one for one in document.get("resource_changes", []) if one.get("mode") == "managed"]
    moving = [one for one in resources if one["change"]["actions"] not in (["no-op"], ["read"])]
    outputs = document.get("output_changes", {})
    before, after = (_lock(resources, which) for which in ("before", "after"))
    fetched = _fetched(resources, outputs, before, failed=_is_tainted(document.get("prior_state", {})))
    differences = compare(before, after)
    catalog = [
        *_models(differences, after, fetched, prune=_prune(document)),
        *_images(resources),
        *_cards(differences, after),
        *_clients(differences),
        *_store(moving),
    ]
    replaced = any(one["type"] == _JOB and {"create", "delete"} <= set(one["change"]["actions"]) for one in moving)
    if replaced and not any(one.fetch_bytes for one in catalog):
        catalog.append(Change("download", "", "changed", ("runs again, and finds what it needs in the store",)))
    actions = [one["change"]["actions"] for one in moving]
    words = {"add": "create", "change": "update", "destroy": "delete"}
    return Changes(
        catalog=tuple(catalog),
        server=_server(resources),
        resources={name: sum(word in one for one in actions) for name, word in words.items()},
        outputs=tuple(name for name, one in outputs.items() if one["actions"] != ["no-op"]),
        unsafe=tuple(unsafe_flags({name: one.intent for name, one in after.models.items()}) if after else ()),
        others=tuple(_others(moving)),
        objects=tuple(objects.lines([one for one in moving if _has_no_words(one, catalog)])),
    )


def _has_no_words(one: Mapping[str, Any], catalog: Sequence[Change]) -> bool:
    """Whether no change of the *catalog* stands for it; the ConfigMaps hold the catalog."""
    spoken = (*_CLAIMS, _JOB, _LABELS, *([_CONFIG_MAP] if catalog else []))
    return one["type"].startswith("kubernetes_") and one["type"] not in spoken


def _others(moving: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """What the labels of a namespace that existed before mean for all pods there."""
    for one in moving:
        if one["type"] != _LABELS:
            continue
        change = one["change"]
        name = (change.get("after") or change["before"])["metadata"][0]["name"]
        if change.get("after"):
            yield f"! namespace {name} refuses every new pod that is not restricted, also those of others"
        else:
            yield f"! namespace {name} no longer refuses pods that are not restricted"


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
    has_run = any(one["type"] == _JOB and one["change"].get("before") for one in resources)
    if failed or before is None or not has_run or store["actions"] not in (["no-op"], ["delete"]):
        return set()
    return {file.sha256 for entry in before.models.values() for file in entry.files}


def _prune(document: Mapping[str, Any]) -> str:
    """The command that removes from the stack's store what no lock names."""
    context = document.get("variables", {}).get("kube_context", {}).get("value")
    return f"corral prune --context {shlex.quote(context) if context else 'NAME'}"


def _models(
    differences: Sequence[LockChange], after: Lock | None, fetched: set[str], *, prune: str
) -> Iterator[Change]:
    for one in (change for change in differences if change.about == "model"):
        files = after.models[one.name].files if after and one.name in after.models else ()
        missing = sum(file.size for file in files if file.sha256 not in fetched)
        before, after_ = next(
            ((each.before, each.after) for each in one.differences if each.field == "seat"), (None, None)
        )
        seats = (before.mib if before else None, after_.mib if after_ else None)
        fetch = (f"fetch {_size(missing)}",) if missing else ()
        match one.kind:
            case "removed":
                stays = f"its files stay in the store{f' until: {prune}' if after else ''}"
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
    """Cards that are added or removed, and those on which something other than a model's own seat changes."""
    for one in (change for change in differences if change.about == "card" and change.kind != "unchanged"):
        if after is None or one.kind == "removed":
            yield Change("card", one.name, "removed")
            continue
        left = f"{chart.of(after).cards[one.name].free_mib} MiB left"
        if one.kind == "added":
            yield Change("card", one.name, "added", (left,))
            continue
        details = [
            # A tenant's budget by the tenant's name alone.
            f"{_CARD_KEYS.get(each.key, each.key.removeprefix('tenants.').removesuffix('.budget_mib'))} "
            f"{shown(each.before)} → {shown(each.after)}{' MiB' if 'mib' in each.key else ''}"
            for each in one.differences
        ]
        yield Change("card", one.name, "changed", (*details, left))


def _clients(differences: Sequence[LockChange]) -> Iterator[Change]:
    for one in (change for change in differences if change.about == "client"):
        match one.kind:
            case "added" | "removed":
                yield Change("client", one.name, one.kind, one.details if one.kind == "added" else ())
            case "changed":
                yield Change("client", one.name, "changed", one.details)


def _images(resources: Sequence[Mapping[str, Any]]) -> Iterator[Change]:
    # The server's last: the guard has the Job's image, and a Job that is done keeps the one that it ran with.
    workloads = [one for one in resources if one["type"] == _JOB] + [one for one in resources if _is_server(one)]
    was, now = (
        {k: v for one in workloads for k, v in _images_of(one["change"].get(side))} for side in ("before", "after")
    )
    for key in sorted({**was, **now}):
        match was.get(key), now.get(key):
            case str(one), str(other) if one != other:
                yield Change("image", key, "changed", (f"{_short(one)} → {_short(other)}",))
            case None, str(other):
                yield Change("image", key, "added", (_short(other),))
            case str(one), None:
                yield Change("image", key, "removed", (_short(one),))


def _images_of(workload: Any) -> Iterator[tuple[str, str]]:
    """The images of *workload*, each by its key in images.yaml."""
    pod = _block(workload, "spec", "template", "spec")
    containers = [*(pod.get("init_container") or ()), *(pod.get("container") or ())]
    names = [str(one.get("name")) for one in containers]
    for name, container in zip(names, containers, strict=True):
        if container.get("image"):
            yield image_key(name, names), str(container["image"])


def _short(image: str) -> str:
    name, _, digest = image.partition("@")
    return f"{name}@{digest[:19]}" if digest else name


def _block(value: Any, *path: str) -> dict[str, Any]:
    """The block at *path* in *value*; Terraform has a block as a list of one.  Empty when there is none."""
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
        if isinstance(value, list):
            value = value[0] if value else None
    return value if isinstance(value, dict) else {}


def _store(moving: Sequence[Mapping[str, Any]]) -> Iterator[Change]:
    claims = [one for one in moving if one["type"] in _CLAIMS]
    actions = {action for one in claims for action in one["change"]["actions"]}
    details = tuple(detail for one in claims if one["name"] == _PROVISIONED for detail in _provisioned(one["change"]))
    if actions == {"delete"}:
        yield Change("store", "", "removed", details or ("what lies in it stays",))
    elif actions:
        yield Change("store", "", "added" if actions == {"create"} else "changed", details)


def _provisioned(change: Mapping[str, Any]) -> Iterator[str]:
    """What a plan does to a claim whose volume a StorageClass makes, and removes: only the cluster knows its policy."""
    before, after = (_block(change.get(side), "spec") for side in ("before", "after"))
    sizes = [_block(one, "resources").get("requests", {}).get("storage") for one in (before, after)]
    if "delete" in change["actions"]:
        yield (
            f"the volume of StorageClass {before.get('storage_class_name')} goes, and what lies in it, "
            "unless its reclaimPolicy is Retain"
        )
    elif before and sizes[0] != sizes[1]:
        yield f"size {sizes[0]} → {sizes[1]}"


def _server(resources: Sequence[Mapping[str, Any]]) -> Server:
    change = next((one["change"] for one in resources if _is_server(one)), None)
    if change is None:
        return "absent"
    actions = change["actions"]
    if actions in (["create"], ["delete"]):
        return "starts" if actions == ["create"] else "stops"
    return "restarts" if "delete" in actions or ("update" in actions and _template_changes(change)) else "stays"


def _is_server(one: Mapping[str, Any]) -> bool:
    return (one["type"], one.get("name")) == (_DEPLOYMENT, _SERVER_NAME)


def _template_changes(change: Mapping[str, Any]) -> bool:
    """Whether the pod would be another; a part that is not known yet counts as another."""
    sides = ("before", "after", "after_unknown")
    was, now, unknown = (_block(change.get(side), "spec").get("template") for side in sides)
    return was != now or any(one is True for one in _values(unknown))


def _is_tainted(state: Any) -> bool:
    """Whether the last download failed, by the prior *state*; there may be other reasons for a new one."""
    jobs = (one for one in _values(state) if isinstance(one, dict) and one.get("type") == _JOB)
    return any(job.get("tainted") is True for job in jobs)


def _values(value: Any) -> Iterator[Any]:
    """*value*, and every value inside it."""
    yield value
    for one in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _values(one)


def _size(size: int) -> str:
    """*size* in bytes as ``2.5 GiB``: powers of 1024, as the card's memory is counted."""
    for unit, scale in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if size >= 1 << scale:
            return f"{size / (1 << scale):.1f} {unit}"
    return f"{size} B"
