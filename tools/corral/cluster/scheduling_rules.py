"""Rules for a pod that has no node: which node it wants, and what keeps it from there."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from corral.cluster.client import Object
from corral.cluster.finding import Cause, Finding
from corral.cluster.snapshot import (
    SERVER,
    Snapshot,
    at,
    claims_of,
    condition,
    is_stopping,
    is_true,
    labels,
    listed,
    message_of,
    name_of,
    quantity,
    requested,
)

_INSUFFICIENT = re.compile(r"Insufficient (?P<resource>[^\s,.]+(?:\.[^\s,.]+)*)")
_HOSTNAME = "kubernetes.io/hostname"  # selectors name it, and a recording keeps only the keys that a rule names
_CORDONED = "node.kubernetes.io/unschedulable"
_NOT_READY = {"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"}
_PLAIN = {"cpu": "processors", "memory": "memory", "ephemeral-storage": "disk for scratch files"}


def unscheduled(snapshot: Snapshot, pod: Object) -> Finding | None:
    """No node takes it."""
    placed = condition(pod, "PodScheduled")
    if placed.get("status") != "False":
        return None
    message, subject = message_of(placed), f"pod/{name_of(pod)}"
    describe = snapshot.kubectl("describe", subject)
    wanted = [node for node in snapshot.nodes if _matches(pod, node)]
    if placed.get("reason") == "SchedulingGated":
        verdict = "is held back by a scheduling gate.", describe, False, Cause.SCHEDULING
    elif "the nodes" not in snapshot.unread and snapshot.nodes and not wanted:
        have = ", ".join(sorted(map(name_of, snapshot.nodes)))
        what = f"wants a node with {_selection(pod)}, and there is none; the nodes are: {have}."
        verdict = what, snapshot.kubectl("get", "nodes", "--show-labels"), True, Cause.SCHEDULING
    else:
        verdict = (
            _beside_another(snapshot, pod, message)
            or _disk_elsewhere(snapshot, pod, message, wanted)
            or _no_volume(snapshot, pod, message)
            or _tainted(snapshot, pod, wanted)
            or _no_room(snapshot, pod, message, wanted)
            or ("waits for a node; the reason is in the scheduler's message.", describe, False, Cause.SCHEDULING)
        )
    what, step, is_stuck, cause = verdict
    return Finding(subject, what, message, step, is_stuck=is_stuck, cause=cause)


_Verdict = tuple[str, str, bool, Cause]  # the sentence, the command, whether it is stuck, the cause


def _beside_another(snapshot: Snapshot, pod: Object, message: str) -> _Verdict | None:
    """At most one server may be on a card; one that is leaving counts until it has ended."""
    if "anti-affinity" not in message:
        return None
    others = [one for one in snapshot.server_pods if at(one, "spec", "nodeName") and name_of(one) != name_of(pod)]
    leaving = [one for one in others if is_stopping(one)]
    step = snapshot.kubectl("get", "pods", "-o", "wide")
    if leaving or not others:
        which = f"pod {name_of(leaving[0])}, which still answers," if leaving else "another pod that answers"
        return f"waits until {which} has ended: two at a time would hold the card twice.", step, False, Cause.SCHEDULING
    what = f"waits for a node without another server: pod {name_of(others[0])} has this one, and holds the card."
    return what, snapshot.kubectl("scale", f"deployment/{SERVER}", "--replicas=1"), False, Cause.SCHEDULING


def _no_room(snapshot: Snapshot, pod: Object, message: str, wanted: list[Object]) -> _Verdict | None:
    lacking = [found["resource"] for found in _INSUFFICIENT.finditer(message)]
    if not lacking:
        return None
    resource = next((one for one in lacking if one not in _PLAIN), lacking[0])
    # Of the nodes that it may be on, the one that has most of it.
    node = max(wanted, key=lambda one: _allocatable(one, resource), default=None)
    if node is None:
        what, step = f"waits for {_PLAIN.get(resource, resource)}: no node has enough of it.", ("get", "nodes")
    else:
        what = _scarce(snapshot, pod, node, resource) if resource in _PLAIN else _no_slice(snapshot, node, resource)
        step = ("describe", f"node/{name_of(node)}")
    return what, snapshot.kubectl(*step), True, Cause.SCHEDULING


def _no_slice(snapshot: Snapshot, node: Object, resource: str) -> str:
    name, have = name_of(node), int(_allocatable(node, resource))
    if have == 0:
        return f"waits for {resource}: node {name} offers none (no device plugin runs there, or it finds no card)."
    if "the pods of all namespaces" in snapshot.unread:
        return f"finds no free slice of {resource} on node {name}, which has {have}; their holders could not be read."
    holders = sorted(
        (f"{at(one, 'metadata', 'namespace')}/{name_of(one)}", int(count))
        for one in snapshot.running
        if at(one, "spec", "nodeName") == name and (count := requested(one, resource))
    )
    taken = sum(count for _, count in holders)
    listing = ", ".join(holder if count == 1 else f"{holder} ({count})" for holder, count in holders)
    listing = listing or "no pod that is listed"
    return f"finds no free slice of {resource} on node {name}: {taken} of {have} are taken by {listing}."


def _scarce(snapshot: Snapshot, pod: Object, node: Object, resource: str) -> str:
    name = name_of(node)
    taken = sum(requested(one, resource) for one in snapshot.running if at(one, "spec", "nodeName") == name)
    has = _amount(resource, _allocatable(node, resource))
    if "the pods of all namespaces" not in snapshot.unread:
        has += f", of which {_amount(resource, taken)} are promised to other pods"
    wants = _amount(resource, requested(pod, resource))
    return f"requests more {_PLAIN[resource]} than node {name} has left: it wants {wants}, the node has {has}."


def _amount(resource: str, amount: float) -> str:
    return f"{amount:g}" if resource == "cpu" else f"{amount / 2**30:.1f} GiB"


def _allocatable(node: Object, resource: str) -> float:
    return quantity(at(node, "status", "allocatable", resource))


def _tainted(snapshot: Snapshot, pod: Object, wanted: list[Object]) -> _Verdict | None:
    if not all(listed(node, "spec", "taints") for node in wanted):
        return None  # a node that it may be on has no taint
    for node in wanted:
        name = name_of(node)
        taints = [one for one in listed(node, "spec", "taints") if not _tolerates(pod, one)]
        keys = {one["key"] for one in taints}
        if not taints:
            continue
        step = snapshot.kubectl("describe", f"node/{name}")
        if keys & _NOT_READY or not is_true(node, "Ready"):
            return f"waits for node {name}, which is not ready.", step, False, Cause.NODE
        if _CORDONED in keys:
            step = snapshot.kubectl("uncordon", name)
            return f"waits for node {name}, which takes no new pods (it was cordoned).", step, False, Cause.NODE
        listing = ", ".join(f"{one['key']}={one.get('value', '')}:{one['effect']}" for one in taints)
        what = f"is kept off node {name} by a taint that it does not tolerate: {listing}."
        return what, step, True, Cause.SCHEDULING
    return None


def _tolerates(pod: Object, taint: Object) -> bool:
    if taint.get("effect") == "PreferNoSchedule":
        return True
    for one in listed(pod, "spec", "tolerations"):
        if one.get("effect") not in (None, "", taint.get("effect")):
            continue
        if one.get("operator") == "Exists":
            if one.get("key") in (None, "", taint["key"]):
                return True
        elif one.get("key") == taint["key"] and (one.get("value") or "") == (taint.get("value") or ""):
            return True
    return False


def _disk_elsewhere(snapshot: Snapshot, pod: Object, message: str, wanted: list[Object]) -> _Verdict | None:
    if "PersistentVolume's node affinity" not in message and "volume node affinity conflict" not in message:
        return None
    names, claims = " or ".join(sorted(map(name_of, wanted))) or "there", ", ".join(claims_of(pod["spec"]))
    what = f"has to run on {names}, and the local volume of its claim {claims} is on another node."
    return what, snapshot.kubectl("get", "persistentvolumes", "-o", "wide"), True, Cause.VOLUME


def _no_volume(snapshot: Snapshot, pod: Object, message: str) -> _Verdict | None:
    claims = claims_of(pod["spec"])
    missing = [name for name in claims if f'persistentvolumeclaim "{name}" not found' in message]
    if missing:
        what, verb = f"waits for the claim {missing[0]}, which does not exist in {snapshot.namespace}.", "get"
    elif "unbound immediate PersistentVolumeClaims" in message or "available persistent volumes to bind" in message:
        what, verb = f"waits for its claim {', '.join(claims)}, which has no volume.", "describe"
    else:
        return None
    return what, snapshot.kubectl(verb, "persistentvolumeclaims"), True, Cause.CLAIM


# -- which nodes a pod may be on ------------------------------------------------------------------------------


def _matches(pod: Object, node: Object) -> bool:
    selector, terms, by_label = at(pod, "spec", "nodeSelector") or {}, _terms(pod), labels(node)
    if any(by_label.get(key) != value for key, value in selector.items()):
        return False
    return not terms or any(
        all(_holds(one, by_label) for one in listed(term, "matchExpressions"))
        and all(_holds(one, {"metadata.name": name_of(node)}) for one in listed(term, "matchFields"))
        for term in terms
    )


def _terms(pod: Object) -> list[Object]:
    required = ("nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms")
    return listed(pod, "spec", "affinity", *required)


def _holds(expression: Object, values: Mapping[str, str]) -> bool:
    test = _OPERATORS.get(expression["operator"])
    return test is None or test(values.get(expression["key"]), listed(expression, "values"))


_OPERATORS: dict[str, Callable[[str | None, list[str]], bool]] = {
    "In": lambda value, wanted: value in wanted,
    "NotIn": lambda value, wanted: value not in wanted,
    "Exists": lambda value, _: value is not None,
    "DoesNotExist": lambda value, _: value is None,
    "Gt": lambda value, wanted: value is not None and quantity(value) > quantity(wanted[0]),
    "Lt": lambda value, wanted: value is not None and quantity(value) < quantity(wanted[0]),
}


def _selection(pod: Object) -> str:
    """Which nodes it may be on, in words."""
    parts = [f"{key}={value}" for key, value in (at(pod, "spec", "nodeSelector") or {}).items()]
    parts += [
        f"{one['key']} {one['operator']} {', '.join(listed(one, 'values'))}".strip()
        for term in _terms(pod)
        for one in (*listed(term, "matchExpressions"), *listed(term, "matchFields"))
    ]
    return " and ".join(parts) or "its labels"
