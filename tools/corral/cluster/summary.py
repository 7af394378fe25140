"""What runs in the cluster, in few words: store, download, pod, models, card, and what is wrong."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from corral.agent.progress import count, duration
from corral.cluster import claim_rules, diagnosis
from corral.cluster.client import Cluster, Object
from corral.cluster.collect import collect
from corral.cluster.finding import Finding
from corral.cluster.port_forward import forwarded
from corral.cluster.snapshot import (
    SERVER,
    Snapshot,
    at,
    condition,
    containers,
    is_ready,
    is_stopping,
    is_true,
    listed,
    message_of,
    name_of,
    seconds,
)
from corral.cluster.target import ClusterTarget
from corral.engine import log_lines
from corral.engine.llama_swap import LlamaSwap
from corral.errors import CorralError

_LOG_LINES = "20000"  # enough to find a model's last failure


@dataclass(frozen=True)
class Store:
    """A claim: its size, what it is bound to, and where the bytes are."""

    claim: str
    phase: str
    size: str
    volume: str
    place: str
    access: tuple[str, ...]


@dataclass(frozen=True)
class Download:
    """The Job: ``complete``, ``failed``, ``running``, ``waiting`` or ``suspended``, and its last line."""

    name: str
    state: str
    at: float
    seconds: float | None
    last_line: str


@dataclass(frozen=True)
class Pod:
    """A pod of llama-swap: its state in words, where it is and from which image."""

    name: str
    state: str
    ready: bool
    restarts: int
    node: str
    image: str
    age_seconds: float


@dataclass(frozen=True)
class Model:
    """A model: ``ready``, ``starting``, ``stopping``, ``unloaded``, or ``failed`` with llama-swap's reason."""

    model: str
    state: str
    reason: str = ""


@dataclass(frozen=True)
class Summary:
    """Everything on one screen.

    Attributes:
        cluster: that was read.
        target: the namespace in it, with the address of its clients and the seating chart of the last apply.
        now: when it was read, in seconds since 1970.
        stores: the claims.
        download: None when there is no Job.
        pods: of llama-swap, the newest first.
        models: None when llama-swap could not be read.
        models_unseen: why it could not; empty when it was.
        findings: what is wrong.
    """

    cluster: Cluster
    target: ClusterTarget
    now: float
    stores: tuple[Store, ...]
    download: Download | None
    pods: tuple[Pod, ...]
    models: tuple[Model, ...] | None
    models_unseen: str
    findings: tuple[Finding, ...]

    @property
    def is_serving(self) -> bool:
        """Whether a pod is ready and llama-swap in it responds."""
        return self.models is not None

    @property
    def has_failed_model(self) -> bool:
        """Whether the last start or run of a model failed."""
        return any(one.state == "failed" for one in self.models or ())

    @property
    def is_well(self) -> bool:
        """Whether it serves, no model has failed, and nothing is known to be wrong."""
        return self.is_serving and not self.findings and not self.has_failed_model

    def as_json(self) -> dict[str, Any]:
        """The shape that ``--json`` prints."""
        cluster = self.cluster
        return {
            "running": self.is_serving,
            "endpoint": self.target.url,
            "cluster": {"context": cluster.context, "server": cluster.server, "version": cluster.version},
            "namespace": self.target.namespace,
            "stores": [asdict(one) for one in self.stores],
            "download": asdict(self.download) if self.download else None,
            "pods": [asdict(one) for one in self.pods],
            "models": None if self.models is None else [asdict(one) for one in self.models],
            "models_unseen": self.models_unseen,
            "cards": self.target.chart.get("cards"),
            "findings": [one.as_json() for one in self.findings],
        }


def summary(cluster: Cluster, target: ClusterTarget) -> Summary:
    """The state of the namespace of *target*; loads no model.

    Raises:
        CannotRun: nothing of the namespace can be read.
    """
    snapshot = collect(cluster, target.namespace)
    models, models_unseen = _models(cluster, target, snapshot)
    return Summary(
        cluster=cluster,
        target=target,
        now=snapshot.now,
        stores=tuple(_store(snapshot, claim) for claim in snapshot.our_claims),
        download=_download(snapshot, snapshot.job) if snapshot.job else None,
        pods=tuple(_pod(snapshot, pod) for pod in snapshot.server_pods if at(pod, "status", "phase") != "Succeeded"),
        models=models,
        models_unseen=models_unseen,
        findings=diagnosis.findings(snapshot),
    )


def _store(snapshot: Snapshot, claim: Object) -> Store:
    volume = snapshot.volume_of(claim)
    size = at(claim, "status", "capacity", "storage") or at(claim, "spec", "resources", "requests", "storage")
    return Store(
        claim=name_of(claim),
        phase=str(at(claim, "status", "phase") or "unknown"),
        size=str(size or ""),
        volume=str(at(claim, "spec", "volumeName") or ""),
        place=claim_rules.place_of(volume) if volume else "",
        access=tuple(listed(claim, "spec", "accessModes")),
    )


def _download(snapshot: Snapshot, job: Object) -> Download:
    is_running = any(at(one, "state", "running") for pod in snapshot.job_pods for one in containers(pod))
    end = next((condition(job, kind) for kind in ("Complete", "Failed") if is_true(job, kind)), None)
    started = seconds(at(job, "status", "startTime"))
    ended = seconds(at(job, "status", "completionTime") or at(end, "lastTransitionTime"))
    if end:
        state = str(end["type"]).lower()
    elif job["spec"].get("suspend"):
        state = "suspended"
    else:
        state = "running" if is_running else "waiting"
    took = ended - started if ended and started else None
    return Download(name_of(job), state, ended or started, took, _last_line(snapshot))


def _last_line(snapshot: Snapshot) -> str:
    """Of the container that runs; else of the download, which has more to report than the container after it."""
    for pod in snapshot.job_pods:
        statuses = containers(pod)
        names = [*(one["name"] for one in statuses if at(one, "state", "running")), "fetch"]
        for name in (*names, *(one["name"] for one in statuses)):
            if line := snapshot.last_line(pod, name):
                return line
    return ""


def _pod(snapshot: Snapshot, pod: Object) -> Pod:
    server = next((one for one in containers(pod) if one["name"] == SERVER), {})
    return Pod(
        name=name_of(pod),
        state=state(snapshot, pod),
        ready=is_ready(pod),
        restarts=int(server.get("restartCount") or 0),
        node=str(at(pod, "spec", "nodeName") or ""),
        image=next((str(one.get("image", "")) for one in pod["spec"]["containers"]), ""),
        age_seconds=round(snapshot.age(pod), 1),
    )


def state(snapshot: Snapshot, pod: Object) -> str:
    """``ready``, or how far *pod* has come."""
    if is_stopping(pod):
        return "stopping"
    if is_ready(pod):
        return "ready"
    phase = str(at(pod, "status", "phase") or "unknown")
    reasons = [str(waiting["reason"]) for one in containers(pod) if (waiting := at(one, "state", "waiting"))]
    events = [message_of(event) for event in snapshot.events_of(pod, "Pod") if event.get("type") == "Normal"]
    parts = [phase, *reasons[:1], *events[-1:]] if phase == "Pending" else [phase, "not ready", *reasons[:1]]
    return ", ".join(dict.fromkeys(parts))


def _models(cluster: Cluster, target: ClusterTarget, snapshot: Snapshot) -> tuple[tuple[Model, ...] | None, str]:
    """The models as llama-swap reports them; else why it could not be read."""
    pod = next((pod for pod in snapshot.server_pods if is_ready(pod)), None)
    if pod is None:
        return None, "no pod of llama-swap is ready"
    try:
        with forwarded(cluster, target.namespace, target.service) as root:
            client = LlamaSwap(root)
            residents = {one.model: Model(one.model, one.state) for one in client.residents()}
            ids = client.models()
        path = f"/api/v1/namespaces/{target.namespace}/pods/{name_of(pod)}/log"
        failures = log_lines.failures(cluster.text(path, tailLines=_LOG_LINES))
    except CorralError as error:
        return None, error.message
    failed = {model: Model(model, "failed", reason) for model, reason in failures.items()}
    return tuple((failed | residents).get(one, Model(one, "unloaded")) for one in ids), ""


def rows(summary: Summary) -> list[tuple[str, str, str, str]]:
    """A line for each thing: what it is, its name, its state, and what else is worth knowing."""
    download, cards = summary.download, summary.target.chart.get("cards") or {}
    lines = [
        ("store", one.claim, one.phase, _joined(one.size, one.place or one.volume, *one.access))
        for one in summary.stores
    ]
    if download:
        ago = f"{duration(max(0.0, summary.now - download.at))} ago" if download.at else ""
        took = f"took {duration(download.seconds)}" if download.seconds is not None else ""
        lines.append(("job", download.name, download.state, _joined(ago, took, download.last_line)))
    lines += [("pod", one.name, one.state, _pod_details(one)) for one in summary.pods]
    lines += [("model", one.model, one.state, one.reason) for one in summary.models or ()]
    return lines + [("card", name, *_card(card)) for name, card in cards.items()]


def _joined(*parts: str) -> str:
    return ", ".join(part for part in parts if part)


def _pod_details(one: Pod) -> str:
    node = f"on {one.node}" if one.node else "on no node"
    return ", ".join((count(one.restarts, "restart"), node, f"{duration(one.age_seconds)} old", one.image))


def _card(card: Mapping[str, Any]) -> tuple[str, str]:
    """Of the chart: whether all fits, and who was promised what."""
    seats = ", ".join(f"{name} {group['mib']}" for name, group in card["groups"].items())
    budgets = ", ".join(f"{name} {mib}" for name, mib in card["tenants"].items())
    free = f"free {card['free_mib']} of {card['vram_mib']} MiB"
    fits = "fits" if card["free_mib"] >= 0 else "too full"
    return fits, f"seats: {seats or 'none'}; budgets: {budgets or 'none'}; {free}"
