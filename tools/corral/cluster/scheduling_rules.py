"""Rules for a pod that has no node: which node it wants, and what keeps it from there."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from corral.cluster.client import Object
from corral.cluster.finding import Cause, Finding
from corral.cluster.snapshot import Snapshot, asks_for, claims_of, condition, is_true, labels, message, quantity

_INSUFFICIENT = re.compile(r"Insufficient (?P<resource>[^\s,.]+(?:\.[^\s,.]+)*)")
_HOSTNAME = "kubernetes.io/hostname"  # selectors name it, and a recording keeps only the keys that a rule names
_CORDONED = "node.kubernetes.io/unschedulable"
_NOT_READY = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_PLAIN = {"cpu": "processors", "memory": "memory", "ephemeral-storage": "disk for scratch files"}


def unscheduled(seen: Snapshot, pod: Object) -> Finding | None:
    """No node takes it."""
    placed = condition(pod, "PodScheduled")
    if placed.get("status") != "False":
        return None
    said = message(placed)
    subject = f"pod/{pod['metadata']['name']}"
    step = seen.kubectl("describe", subject)
    if placed.get("reason") == "SchedulingGated":
        return Finding(
            subject, "is held back by a scheduling gate.", said, step, is_stuck=False, cause=Cause.SCHEDULING
        )
    wanted = _wanted(seen, pod)
    if "the nodes" not in seen.unseen and seen.nodes and not wanted:
        return _no_such_node(seen, pod, subject, said)
    found = (
        _disk_elsewhere(seen, pod, subject, said, wanted)
        or _no_volume(seen, pod, subject, said)
        or _tainted(seen, pod, subject, said, wanted)
        or _no_room(seen, pod, subject, said, wanted)
    )
    if found:
        return found
    return Finding(
        subject,
        "waits for a node; why, only the scheduler's words say.",
        said,
        step,
        is_stuck=False,
        cause=Cause.SCHEDULING,
    )


def _no_such_node(seen: Snapshot, pod: Object, subject: str, said: str) -> Finding:
    have = ", ".join(sorted(node["metadata"]["name"] for node in seen.nodes))
    what = f"wants a node with {_selection(pod)}, and there is none; the nodes are: {have}."
    step = seen.kubectl("get", "nodes", "--show-labels", is_namespaced=False)
    return Finding(subject, what, said, step, is_stuck=True, cause=Cause.SCHEDULING)


def _no_room(seen: Snapshot, pod: Object, subject: str, said: str, wanted: Sequence[Object]) -> Finding | None:
    lacking = [found["resource"] for found in _INSUFFICIENT.finditer(said)]
    if not lacking:
        return None
    resource = next((one for one in lacking if one not in _PLAIN), lacking[0])
    # Of the nodes that it may be on, the one that has most of it.
    node = max(wanted, key=lambda one: _allocatable(one, resource), default=None)
    if node is None:
        what = f"waits for {_PLAIN.get(resource, resource)}: no node has enough of it."
        return Finding(
            subject,
            what,
            said,
            seen.kubectl("get", "nodes", is_namespaced=False),
            is_stuck=True,
            cause=Cause.SCHEDULING,
        )
    name = node["metadata"]["name"]
    step = seen.kubectl("describe", f"node/{name}", is_namespaced=False)
    what = _scarce(seen, pod, node, resource) if resource in _PLAIN else _no_slice(seen, node, resource)
    return Finding(subject, what, said, step, is_stuck=True, cause=Cause.SCHEDULING)


def _no_slice(seen: Snapshot, node: Object, resource: str) -> str:
    name, have = node["metadata"]["name"], int(_allocatable(node, resource))
    if have == 0:
        return f"waits for {resource}: node {name} offers none (no device plugin runs there, or it sees no card)."
    if "the pods of all namespaces" in seen.unseen:
        return f"finds no free slice of {resource} on node {name}, which has {have}; who has them could not be seen."
    holders = [
        (f"{one['metadata']['namespace']}/{one['metadata']['name']}", int(count))
        for one in seen.running
        if one["spec"].get("nodeName") == name and (count := asks_for(one, resource))
    ]
    taken = sum(count for _, count in holders)
    told = ", ".join(holder if count == 1 else f"{holder} ({count})" for holder, count in sorted(holders))
    told = told or "nobody who can be seen"
    return f"finds no free slice of {resource} on node {name}: {taken} of {have} are taken by {told}."


def _scarce(seen: Snapshot, pod: Object, node: Object, resource: str) -> str:
    name = node["metadata"]["name"]
    taken = sum(asks_for(one, resource) for one in seen.running if one["spec"].get("nodeName") == name)
    has = f"{_amount(resource, _allocatable(node, resource))}"
    if "the pods of all namespaces" not in seen.unseen:
        has += f", of which {_amount(resource, taken)} are promised to other pods"
    wants = _amount(resource, asks_for(pod, resource))
    return f"asks for more {_PLAIN[resource]} than node {name} has left: it wants {wants}, the node has {has}."


def _amount(resource: str, amount: float) -> str:
    return f"{amount:g}" if resource == "cpu" else f"{amount / 2**30:.1f} GiB"


def _tainted(seen: Snapshot, pod: Object, subject: str, said: str, wanted: Sequence[Object]) -> Finding | None:
    for node in wanted:
        name = node["metadata"]["name"]
        taints = [one for one in node["spec"].get("taints") or () if not _tolerates(pod, one)]
        if not taints or len(wanted) > len([one for one in wanted if one["spec"].get("taints")]):
            continue  # another node of those wanted has no taint
        keys = {one["key"] for one in taints}
        step = seen.kubectl("describe", f"node/{name}", is_namespaced=False)
        if keys & set(_NOT_READY) or not is_true(node, "Ready"):
            what = f"waits for node {name}, which is not ready."
            return Finding(subject, what, said, step, is_stuck=False, cause=Cause.NODE)
        if _CORDONED in keys:
            what = f"waits for node {name}, which takes no new pods (it was cordoned)."
            step = seen.kubectl("uncordon", name, is_namespaced=False)
            return Finding(subject, what, said, step, is_stuck=False, cause=Cause.NODE)
        told = ", ".join(f"{one['key']}={one.get('value', '')}:{one['effect']}" for one in taints)
        what = f"is kept off node {name} by a taint that it does not tolerate: {told}."
        return Finding(subject, what, said, step, is_stuck=True, cause=Cause.SCHEDULING)
    return None


def _tolerates(pod: Object, taint: Object) -> bool:
    if taint.get("effect") == "PreferNoSchedule":
        return True
    for one in pod["spec"].get("tolerations") or ():
        if one.get("effect") not in (None, "", taint.get("effect")):
            continue
        if one.get("operator") == "Exists":
            if one.get("key") in (None, "", taint["key"]):
                return True
        elif one.get("key") == taint["key"] and (one.get("value") or "") == (taint.get("value") or ""):
            return True
    return False


def _disk_elsewhere(seen: Snapshot, pod: Object, subject: str, said: str, wanted: Sequence[Object]) -> Finding | None:
    if "PersistentVolume's node affinity" not in said and "volume node affinity conflict" not in said:
        return None
    names = " or ".join(sorted(node["metadata"]["name"] for node in wanted)) or "there"
    claims = ", ".join(claims_of(pod["spec"]))
    what = f"has to run on {names}, and the local volume of its claim {claims} is on another node."
    step = seen.kubectl("get", "persistentvolumes", "-o", "wide", is_namespaced=False)
    return Finding(subject, what, said, step, is_stuck=True, cause=Cause.VOLUME)


def _no_volume(seen: Snapshot, pod: Object, subject: str, said: str) -> Finding | None:
    claims = claims_of(pod["spec"])
    missing = [name for name in claims if f'persistentvolumeclaim "{name}" not found' in said]
    if missing:
        what = f"waits for the claim {missing[0]}, which does not exist in {seen.namespace}."
        step = seen.kubectl("get", "persistentvolumeclaims")
        return Finding(subject, what, said, step, is_stuck=True, cause=Cause.CLAIM)
    if "unbound immediate PersistentVolumeClaims" in said or "available persistent volumes to bind" in said:
        what = f"waits for its claim {', '.join(claims)}, which has no volume."
        step = seen.kubectl("describe", "persistentvolumeclaims")
        return Finding(subject, what, said, step, is_stuck=True, cause=Cause.CLAIM)
    return None


# -- which nodes a pod may be on ------------------------------------------------------------------------------


def _wanted(seen: Snapshot, pod: Object) -> list[Object]:
    return [node for node in seen.nodes if _matches(pod, node)]


def _matches(pod: Object, node: Object) -> bool:
    selector: Mapping[str, str] = pod["spec"].get("nodeSelector") or {}
    if any(labels(node).get(key) != value for key, value in selector.items()):
        return False
    terms = _terms(pod)
    return not terms or any(_meets(term, node) for term in terms)


def _terms(pod: Object) -> list[Object]:
    affinity = (pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    return list(required.get("nodeSelectorTerms") or ())


def _meets(term: Object, node: Object) -> bool:
    by_label = all(_holds(one, labels(node)) for one in term.get("matchExpressions") or ())
    return by_label and all(
        _holds(one, {"metadata.name": node["metadata"]["name"]}) for one in term.get("matchFields") or ()
    )


def _holds(expression: Object, values: Mapping[str, str]) -> bool:
    value, wanted = values.get(expression["key"]), expression.get("values") or []
    match expression["operator"]:
        case "In":
            return value in wanted
        case "NotIn":
            return value not in wanted
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt":
            return value is not None and quantity(value) > quantity(wanted[0])
        case "Lt":
            return value is not None and quantity(value) < quantity(wanted[0])
    return True


def _selection(pod: Object) -> str:
    """Which nodes it may be on, in words."""
    told = [f"{key}={value}" for key, value in (pod["spec"].get("nodeSelector") or {}).items()]
    for term in _terms(pod):
        told += [
            f"{one['key']} {one['operator']} {', '.join(one.get('values') or ())}".strip()
            for one in (*(term.get("matchExpressions") or ()), *(term.get("matchFields") or ()))
        ]
    return " and ".join(told) or "its labels"


def _allocatable(node: Object, resource: str) -> float:
    return quantity((node.get("status", {}).get("allocatable") or {}).get(resource, 0))
