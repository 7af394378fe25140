"""The objects of a namespace as the API gave them, and how to read them; nothing is judged here."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from corral.cluster.client import Object, kubectl
from corral.exporter.attribution import MODEL

NAME = "app.kubernetes.io/name"
CARD = "corral/card"  # of the server's objects, where there are several cards
PART_OF = "app.kubernetes.io/part-of"
SERVER = "llama-swap"
COPY = "copy-llama-swap"  # takes llama-swap out of its image where SERVER runs the engine's own
DOOR, GUARD = "door", "guard"  # the containers that requests pass
DOWNLOAD = "download-models"
_CLUSTER_WIDE = re.compile(r"uncordon|\w+ (namespaces?|nodes?|persistentvolumes?|runtimeclasses|storageclasses)\b")


@dataclass(frozen=True)
class Snapshot:
    """The objects of one namespace and what they hang on.

    Attributes:
        context: of the kubeconfig.
        namespace: its name.
        now: when it was read, in seconds since 1970.
        kubeconfig: as the operator named it.
        namespace_object: the Namespace; None when there is none.
        claims, jobs, deployments, pods, services, events: of the namespace; claims are PersistentVolumeClaims.
        policies: its NetworkPolicies; None: they were not read.
        volumes: all PersistentVolumes.
        nodes: all Nodes.
        running: the pods of all namespaces that have a node, where a pod waits for room; else empty.
        logs: (pod, container) → the last lines of its log.
        unread: source → why it could not be read.
    """

    context: str
    namespace: str
    now: float
    kubeconfig: Path | None = None
    namespace_object: Object | None = None
    claims: tuple[Object, ...] = ()
    volumes: tuple[Object, ...] = ()
    jobs: tuple[Object, ...] = ()
    deployments: tuple[Object, ...] = ()
    pods: tuple[Object, ...] = ()
    services: tuple[Object, ...] = ()
    events: tuple[Object, ...] = ()
    policies: tuple[Object, ...] | None = None
    nodes: tuple[Object, ...] = ()
    running: tuple[Object, ...] = ()
    logs: Mapping[tuple[str, str], str] = field(default_factory=dict)
    unread: Mapping[str, str] = field(default_factory=dict)

    def kubectl(self, *words: str) -> str:
        """The command ``kubectl`` *words*, in this namespace unless they name a kind that has none."""
        is_cluster_wide = _CLUSTER_WIDE.match(" ".join(words))
        return kubectl(self.context, self.kubeconfig, *words, namespace="" if is_cluster_wide else self.namespace)

    def seconds_since(self, timestamp: str | None) -> float:
        """Seconds since *timestamp* (RFC 3339); 0 when there is none."""
        return max(0.0, self.now - seconds(timestamp)) if timestamp else 0.0

    def age(self, one: Object) -> float:
        """Seconds since *one* was created."""
        return self.seconds_since(at(one, "metadata", "creationTimestamp"))

    # -- corral's own objects -------------------------------------------------------------------------------

    @property
    def deployment(self) -> Object | None:
        """The Deployment of llama-swap."""
        return _newest(self.deployments, SERVER)

    @property
    def service(self) -> Object | None:
        """The Service of llama-swap that leads to all of its pods."""
        return _newest((one for one in self.services if CARD not in (at(one, "spec", "selector") or {})), SERVER)

    @property
    def cards(self) -> tuple[str, ...]:
        """The cards that have a server each; one without a name where there is one card, or no server."""
        found = {labels(one).get(CARD, "") for one in self.deployments if _is_called(one, SERVER)}
        return tuple(sorted(found)) or ("",)

    def of_card(self, card: str) -> Snapshot:
        """The same, of the servers only that of *card*, one of ``cards``."""
        if self.cards == (card,):
            return self

        def is_kept(one: Object) -> bool:
            return not _is_called(one, SERVER) or labels(one).get(CARD, "") == card

        return replace(
            self, deployments=tuple(filter(is_kept, self.deployments)), pods=tuple(filter(is_kept, self.pods))
        )

    def service_of(self, card: str) -> str:
        """The name of the Service that leads to the pod of *card* alone; empty where there is none."""
        found = (one for one in self.services if card and (at(one, "spec", "selector") or {}).get(CARD) == card)
        return next(map(name_of, found), "")

    @property
    def job(self) -> Object | None:
        """The newest Job that downloads models."""
        return _newest(self.jobs, DOWNLOAD)

    @property
    def server_pods(self) -> tuple[Object, ...]:
        """The pods of llama-swap, the newest first."""
        return _newest_first(pod for pod in self.pods if _is_called(pod, SERVER))

    @property
    def model_deployments(self) -> dict[str, Object]:
        """The Deployment of each model that has a pod of its own (vLLM), by the model's id."""
        return {labels(one)[MODEL]: one for one in self.deployments if MODEL in labels(one)}

    @property
    def model_pods(self) -> dict[str, Object]:
        """The newest pod of each of them, by the model's id."""
        oldest_first = reversed(_newest_first(pod for pod in self.pods if MODEL in labels(pod)))
        return {labels(pod)[MODEL]: pod for pod in oldest_first}

    @property
    def job_pods(self) -> tuple[Object, ...]:
        """The pods of the newest Job, the newest first."""
        uid = at(self.job, "metadata", "uid")
        owned = (
            pod for pod in self.pods if any(one.get("uid") == uid for one in listed(pod, "metadata", "ownerReferences"))
        )
        return _newest_first(owned)

    @property
    def our_claims(self) -> tuple[Object, ...]:
        """The claims that the Deployment and the Job mount, and those labelled as part of corral."""
        used = {name for owner in (self.deployment, self.job) if owner for name in claims_of(pod_spec(owner))}
        return tuple(one for one in self.claims if name_of(one) in used or labels(one).get(PART_OF) == "corral")

    @property
    def our_nodes(self) -> tuple[Object, ...]:
        """The nodes of the server's and the Job's pods."""
        names = {at(pod, "spec", "nodeName") for pod in (*self.server_pods, *self.job_pods)}
        return tuple(node for node in self.nodes if name_of(node) in names)

    # -- lookups --------------------------------------------------------------------------------------------

    def events_of(self, one: Object, kind: str, *reasons: str) -> list[Object]:
        """The events about *one*, oldest first; only those for *reasons* where some are named."""
        uids = (None, "", at(one, "metadata", "uid"))
        found = [
            event
            for event in self.events
            if (at(event, "involvedObject", "kind"), at(event, "involvedObject", "name")) == (kind, name_of(one))
            and at(event, "involvedObject", "uid") in uids
            and (not reasons or event.get("reason") in reasons)
        ]
        return sorted(found, key=_observed_at)

    def last_message(self, one: Object, kind: str, *reasons: str) -> str:
        """The message of the last event about *one* for one of *reasons*; empty when there is none."""
        found = self.events_of(one, kind, *reasons)
        return message_of(found[-1]) if found else ""

    def volume_of(self, claim: Object) -> Object | None:
        """The PersistentVolume that *claim* names or is bound to."""
        return next((one for one in self.volumes if name_of(one) == at(claim, "spec", "volumeName")), None)

    def last_line(self, pod: Object, container: str) -> str:
        """The last line in the log of *container*, without the agent's advice (→) for its own command line."""
        lines = (line.strip() for line in reversed(self.logs.get((name_of(pod), container), "").splitlines()))
        return next((line for line in lines if line and not line.startswith("→")), "")


def at(one: Object | None, *path: str) -> Any:
    """The value at *path* in *one*, key by key; None when a part of it is absent or null."""
    found: Any = one
    for key in path:
        found = (found or {}).get(key)
    return found


def listed(one: Object | None, *path: str) -> list[Any]:
    """The list at *path* in *one*; empty when there is none."""
    return at(one, *path) or []


def name_of(one: Object) -> str:
    """Its name."""
    return str(one["metadata"]["name"])


def labels(one: Object) -> dict[str, str]:
    """Its labels."""
    return at(one, "metadata", "labels") or {}


def seconds(timestamp: str | None) -> float:
    """*timestamp* (RFC 3339) as seconds since 1970; 0 when there is none."""
    return datetime.fromisoformat(timestamp).timestamp() if timestamp else 0.0


def message_of(state: Object) -> str:
    """The message of *state* (an event, a condition, a status), as one line; empty when it has none."""
    return " ".join(str(state.get("message") or "").split())


def pod_spec(owner: Object) -> Object:
    """The pod's part of a Deployment or Job."""
    return at(owner, "spec", "template", "spec") or {}


def claims_of(spec: Object) -> list[str]:
    """The claims that a pod mounts."""
    return [str(name) for one in listed(spec, "volumes") if (name := at(one, "persistentVolumeClaim", "claimName"))]


def condition(one: Object, kind: str) -> Object:
    """The condition *kind* of *one*; empty when it has none."""
    return next((found for found in listed(one, "status", "conditions") if found["type"] == kind), {})


def is_true(one: Object, kind: str) -> bool:
    """Whether *one* has the condition *kind*."""
    return bool(condition(one, kind).get("status") == "True")


def is_ready(pod: Object) -> bool:
    """Whether *pod* is ready and not being stopped."""
    return is_true(pod, "Ready") and not is_stopping(pod)


def is_stopping(one: Object) -> bool:
    """Whether *one* is being deleted."""
    return bool(at(one, "metadata", "deletionTimestamp"))


def containers(pod: Object) -> list[Object]:
    """The statuses of its containers in the order in which they start."""
    return [*listed(pod, "status", "initContainerStatuses"), *listed(pod, "status", "containerStatuses")]


def image_key(container: str, beside: Collection[str]) -> str:
    """The key in images.yaml of the image that *container* runs.

    Args:
        container: its name.
        beside: the names of all containers of its pod.
    """
    if container == SERVER:
        return "llama-server" if COPY in beside else "llama-swap"
    return {COPY: "llama-swap", DOOR: "door", "vllm": "vllm"}.get(container, "fetch")


def has_started(pod: Object) -> bool:
    """Whether a container of *pod* runs or has ended."""
    return any((one.get("state") or {}).keys() & {"running", "terminated"} for one in containers(pod))


def last_end(container: Object) -> Object:
    """How *container* ended last: ``terminated`` of its state, else of the state before; empty when it never did."""
    return at(container, "state", "terminated") or at(container, "lastState", "terminated") or {}


def requested(pod: Object, resource: str) -> float:
    """How much of *resource* the containers of *pod* request; of extended resources a whole number."""
    return sum(quantity(at(one, "resources", "requests", resource)) for one in pod["spec"]["containers"])


def quantity(text: Any) -> float:
    """A Kubernetes quantity as a number: ``30Gi``, ``500m``, ``4``; 0 when it is none."""
    units = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "m": 1e-3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
    words = str(text)
    unit = next((unit for unit in units if words.endswith(unit)), "")
    try:
        return float(words.removesuffix(unit)) * units.get(unit, 1)
    except ValueError:
        return 0.0


def _is_called(one: Object, name: str) -> bool:
    return name in (name_of(one), labels(one).get(NAME))


def _newest(objects: Iterable[Object], name: str) -> Object | None:
    return next(iter(_newest_first(one for one in objects if _is_called(one, name))), None)


def _observed_at(event: Object) -> float:
    last = event.get("lastTimestamp") or at(event, "series", "lastObservedTime") or event.get("eventTime")
    return seconds(last or at(event, "metadata", "creationTimestamp"))


def _newest_first(objects: Iterable[Object]) -> tuple[Object, ...]:
    return tuple(sorted(objects, key=lambda one: seconds(at(one, "metadata", "creationTimestamp")), reverse=True))
