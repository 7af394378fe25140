"""What was seen of a namespace, as the API gave it, and how to read it; nothing is judged here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from corral.cluster.client import Object, kubectl

NAME = "app.kubernetes.io/name"
PART_OF = "app.kubernetes.io/part-of"
SERVER = "llama-swap"
DOWNLOAD = "download-models"


@dataclass(frozen=True)
class Snapshot:
    """The objects of one namespace and what they hang on.

    Attributes:
        context: of the kubeconfig.
        namespace: its name.
        now: when it was looked at, in seconds since 1970.
        kubeconfig: as it was named by the operator.
        space: the Namespace; None when there is none.
        claims: PersistentVolumeClaims of the namespace.
        volumes: all PersistentVolumes.
        jobs: of the namespace.
        deployments: of the namespace.
        pods: of the namespace.
        services: of the namespace.
        events: of the namespace.
        nodes: all Nodes.
        running: the pods of all namespaces that have a node, where somebody waits for room; else empty.
        logs: (pod, container) → the last lines of what it said before it ended, or so far.
        unseen: source → why it could not be looked at.
    """

    context: str
    namespace: str
    now: float
    kubeconfig: Path | None = None
    space: Object | None = None
    claims: tuple[Object, ...] = ()
    volumes: tuple[Object, ...] = ()
    jobs: tuple[Object, ...] = ()
    deployments: tuple[Object, ...] = ()
    pods: tuple[Object, ...] = ()
    services: tuple[Object, ...] = ()
    events: tuple[Object, ...] = ()
    nodes: tuple[Object, ...] = ()
    running: tuple[Object, ...] = ()
    logs: Mapping[tuple[str, str], str] = field(default_factory=dict)
    unseen: Mapping[str, str] = field(default_factory=dict)

    def kubectl(self, *words: str, is_namespaced: bool = True) -> str:
        """``kubectl`` *words* for this namespace, to be typed as it is."""
        return kubectl(self.context, self.kubeconfig, *words, namespace=self.namespace if is_namespaced else "")

    def age(self, when: str | None) -> float:
        """Seconds since *when* (RFC 3339); 0 when it is not known."""
        return max(0.0, self.now - seconds(when)) if when else 0.0

    # -- ours -----------------------------------------------------------------------------------------------

    @property
    def deployment(self) -> Object | None:
        """The Deployment of llama-swap."""
        return next((one for one in self.deployments if is_called(one, SERVER)), None)

    @property
    def job(self) -> Object | None:
        """The newest Job that downloads models."""
        ours = [one for one in self.jobs if is_called(one, DOWNLOAD)]
        return max(ours, key=lambda one: seconds(one["metadata"].get("creationTimestamp")), default=None)

    @property
    def service(self) -> Object | None:
        """The Service of llama-swap."""
        return next((one for one in self.services if is_called(one, SERVER)), None)

    @property
    def server_pods(self) -> tuple[Object, ...]:
        """The pods of llama-swap, the newest first."""
        return _newest_first(pod for pod in self.pods if is_called(pod, SERVER))

    @property
    def job_pods(self) -> tuple[Object, ...]:
        """The pods of the newest Job, the newest first."""
        uid = self.job["metadata"].get("uid") if self.job else None
        return _newest_first(
            pod for pod in self.pods if any(one.get("uid") == uid for one in pod["metadata"].get("ownerReferences", ()))
        )

    @property
    def our_claims(self) -> tuple[Object, ...]:
        """The claims that ours use, and those that are part of corral."""
        used = {name for owner in (self.deployment, self.job) if owner for name in claims_of(pod_spec(owner))}
        return tuple(
            one for one in self.claims if one["metadata"]["name"] in used or labels(one).get(PART_OF) == "corral"
        )

    @property
    def our_nodes(self) -> tuple[Object, ...]:
        """The nodes that our pods are on."""
        names = {pod["spec"].get("nodeName") for pod in (*self.server_pods, *self.job_pods)}
        return tuple(node for node in self.nodes if node["metadata"]["name"] in names)

    # -- looking up -----------------------------------------------------------------------------------------

    def events_of(self, one: Object, kind: str, *reasons: str) -> list[Object]:
        """The events about *one*, oldest first; only those for *reasons* where some are named."""
        metadata = one["metadata"]
        found = [
            event
            for event in self.events
            if (event["involvedObject"].get("kind"), event["involvedObject"].get("name")) == (kind, metadata["name"])
            and event["involvedObject"].get("uid") in (None, "", metadata.get("uid"))
            and (not reasons or event.get("reason") in reasons)
        ]
        return sorted(found, key=when)

    def said(self, one: Object, kind: str, *reasons: str) -> str:
        """The message of the last event about *one* for one of *reasons*; empty when there is none."""
        found = self.events_of(one, kind, *reasons)
        return message(found[-1]) if found else ""

    def volume_of(self, claim: Object) -> Object | None:
        """The PersistentVolume that *claim* names or is bound to."""
        name = claim["spec"].get("volumeName")
        return next((one for one in self.volumes if one["metadata"]["name"] == name), None)

    def last_line(self, pod: Object, container: str) -> str:
        """The last line that *container* of *pod* said, without the agent's advice (→) for those who run it by hand."""
        lines = (line.strip() for line in reversed(self._log(pod, container)))
        return next((line for line in lines if line and not line.startswith("→")), "")

    def _log(self, pod: Object, container: str) -> list[str]:
        return self.logs.get((pod["metadata"]["name"], container), "").splitlines()


def seconds(timestamp: str | None) -> float:
    """*timestamp* (RFC 3339) as seconds since 1970; 0 when there is none."""
    return datetime.fromisoformat(timestamp).timestamp() if timestamp else 0.0


def when(event: Object) -> float:
    """When *event* was last seen."""
    last = (event.get("series") or {}).get("lastObservedTime")
    return seconds(
        event.get("lastTimestamp") or last or event.get("eventTime") or event["metadata"].get("creationTimestamp")
    )


def message(state: Object) -> str:
    """The message of *state* (an event, a condition, a status), as one line; empty when it has none."""
    return " ".join(str(state.get("message") or "").split())


def labels(one: Object) -> dict[str, str]:
    """Its labels."""
    found: dict[str, str] = one["metadata"].get("labels") or {}
    return found


def annotation(one: Object, key: str) -> str | None:
    """The annotation *key* of *one*; None when it has none."""
    found: dict[str, str] = one["metadata"].get("annotations") or {}
    return found.get(key)


def is_called(one: Object, name: str) -> bool:
    """Whether *one* has that name, or is labelled with it."""
    return bool(one["metadata"]["name"] == name or labels(one).get(NAME) == name)


def pod_spec(owner: Object) -> Object:
    """The pod's part of a Deployment or Job."""
    found: Object = owner["spec"]["template"]["spec"]
    return found


def claims_of(spec: Object) -> list[str]:
    """The claims that a pod mounts."""
    volumes = spec.get("volumes") or ()
    return [str(one["persistentVolumeClaim"]["claimName"]) for one in volumes if one.get("persistentVolumeClaim")]


def secrets_of(spec: Object) -> list[str]:
    """The Secrets that a pod mounts."""
    return [str(one["secret"].get("secretName", "")) for one in spec.get("volumes") or () if one.get("secret")]


def condition(one: Object, kind: str) -> Object:
    """The condition *kind* of *one*; empty when it has none."""
    conditions: Iterable[Object] = one.get("status", {}).get("conditions") or ()
    return next((found for found in conditions if found["type"] == kind), {})


def is_true(one: Object, kind: str) -> bool:
    """Whether *one* has the condition *kind*."""
    return bool(condition(one, kind).get("status") == "True")


def is_ready(pod: Object) -> bool:
    """Whether *pod* is ready and not being stopped."""
    return is_true(pod, "Ready") and not pod["metadata"].get("deletionTimestamp")


def containers(pod: Object) -> list[Object]:
    """The statuses of its containers in the order in which they start."""
    status = pod.get("status", {})
    return [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]


def last_end(container: Object) -> Object:
    """How *container* ended last: ``terminated`` of its state, else of the state before; empty when it never did."""
    for state in (container.get("state") or {}, container.get("lastState") or {}):
        if state.get("terminated"):
            found: Object = state["terminated"]
            return found
    return {}


def asks_for(pod: Object, resource: str) -> float:
    """How much of *resource* the containers of *pod* request; of extended resources a whole number."""
    return sum(
        quantity((one.get("resources") or {}).get("requests", {}).get(resource, 0)) for one in pod["spec"]["containers"]
    )


def quantity(text: Any) -> float:
    """A Kubernetes quantity as a number: ``30Gi``, ``500m``, ``4``; 0 when it is none."""
    units = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "m": 1e-3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
    words = str(text)
    unit = next((unit for unit in units if words.endswith(unit)), "")
    try:
        return float(words.removesuffix(unit)) * units.get(unit, 1)
    except ValueError:
        return 0.0


def _newest_first(pods: Iterable[Object]) -> tuple[Object, ...]:
    return tuple(sorted(pods, key=lambda pod: seconds(pod["metadata"].get("creationTimestamp")), reverse=True))
