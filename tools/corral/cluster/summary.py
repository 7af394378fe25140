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
from corral.cluster.snapshot import Snapshot, condition, containers, is_ready, is_true, message, seconds
from corral.cluster.target import ClusterTarget
from corral.engine import log_lines
from corral.engine.llama_swap import LlamaSwap
from corral.errors import CorralError

_LOG_LINES = "20000"  # enough to find a model's last failure
_FETCH = "fetch"


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
    """A model: ``ready``, ``starting``, ``stopping``, ``unloaded`` or ``failed``, then with llama-swap's reason."""

    model: str
    state: str
    reason: str = ""


@dataclass(frozen=True)
class Summary:
    """Everything on one screen.

    Attributes:
        context: of the kubeconfig.
        server: the API server's address.
        version: of Kubernetes.
        namespace: that was looked at.
        endpoint: for clients inside the cluster.
        now: when it was looked at, in seconds since 1970.
        stores: the claims.
        download: None when there is no Job.
        pods: of llama-swap, the newest first.
        models: None when llama-swap could not be asked.
        models_unseen: why it could not; empty when it was.
        chart: the seating chart of the last apply; empty when it is not known.
        findings: what is wrong.
    """

    context: str
    server: str
    version: str
    namespace: str
    endpoint: str
    now: float
    stores: tuple[Store, ...]
    download: Download | None
    pods: tuple[Pod, ...]
    models: tuple[Model, ...] | None
    models_unseen: str
    chart: Mapping[str, Any]
    findings: tuple[Finding, ...]

    @property
    def is_serving(self) -> bool:
        """Whether a pod is ready and llama-swap in it answers."""
        return self.models is not None

    @property
    def is_well(self) -> bool:
        """Whether it serves, no model has failed, and nothing is known to be wrong."""
        return self.is_serving and not self.findings and not self.has_failed_model

    @property
    def has_failed_model(self) -> bool:
        """Whether the last start or run of a model failed."""
        return any(one.state == "failed" for one in self.models or ())

    def as_json(self) -> dict[str, Any]:
        """The shape that ``--json`` prints."""
        return {
            "running": self.is_serving,
            "endpoint": self.endpoint,
            "cluster": {"context": self.context, "server": self.server, "version": self.version},
            "namespace": self.namespace,
            "stores": [asdict(one) for one in self.stores],
            "download": asdict(self.download) if self.download else None,
            "pods": [asdict(one) for one in self.pods],
            "models": None if self.models is None else [asdict(one) for one in self.models],
            "models_unseen": self.models_unseen,
            "cards": self.chart.get("cards"),
            "findings": [one.as_json() for one in self.findings],
        }


def summary(cluster: Cluster, where: ClusterTarget) -> Summary:
    """Look at everything; loads no model.

    Raises:
        CannotRun: nothing of the namespace can be seen.
    """
    seen = collect(cluster, where.namespace)
    models, unseen = _models(cluster, where, seen)
    return Summary(
        context=cluster.context,
        server=cluster.server,
        version=cluster.version,
        namespace=where.namespace,
        endpoint=where.url,
        now=seen.now,
        stores=tuple(_store(seen, claim) for claim in seen.our_claims),
        download=_download(seen, seen.job) if seen.job else None,
        pods=tuple(_pod(seen, pod) for pod in seen.server_pods if pod.get("status", {}).get("phase") != "Succeeded"),
        models=models,
        models_unseen=unseen,
        chart=where.chart,
        findings=diagnosis.findings(seen),
    )


def _store(seen: Snapshot, claim: Object) -> Store:
    volume, status = seen.volume_of(claim), claim.get("status", {})
    asked = (claim["spec"].get("resources") or {}).get("requests", {}).get("storage", "")
    return Store(
        claim=str(claim["metadata"]["name"]),
        phase=str(status.get("phase", "unknown")),
        size=str((status.get("capacity") or {}).get("storage") or asked),
        volume=str(claim["spec"].get("volumeName") or ""),
        place=claim_rules.place_of(volume) if volume else "",
        access=tuple(claim["spec"].get("accessModes") or ()),
    )


def _download(seen: Snapshot, job: Object) -> Download:
    status = job.get("status", {})
    ends = [condition(job, kind) for kind in ("Complete", "Failed") if is_true(job, kind)]
    started = seconds(status.get("startTime"))
    ended = seconds(status.get("completionTime") or (ends[0].get("lastTransitionTime") if ends else None))
    if ends:
        so_far = str(ends[0]["type"]).lower()
    elif job["spec"].get("suspend"):
        so_far = "suspended"
    else:
        so_far = "running" if any(_runs(pod) for pod in seen.job_pods) else "waiting"
    took = ended - started if ended and started else None
    return Download(str(job["metadata"]["name"]), so_far, ended or started, took, _last_line(seen))


def _runs(pod: Object) -> bool:
    return any((one.get("state") or {}).get("running") for one in containers(pod))


def _last_line(seen: Snapshot) -> str:
    """Of the container that runs; else of the download, which says more than what comes after it."""
    for pod in seen.job_pods:
        names = [str(one["name"]) for one in containers(pod) if (one.get("state") or {}).get("running")]
        names += [_FETCH, *(str(one["name"]) for one in containers(pod))]
        for name in names:
            if line := seen.last_line(pod, name):
                return line
    return ""


def _pod(seen: Snapshot, pod: Object) -> Pod:
    server = next((one for one in containers(pod) if one["name"] == "llama-swap"), {})
    image = next((str(one.get("image", "")) for one in pod["spec"]["containers"]), "")
    return Pod(
        name=str(pod["metadata"]["name"]),
        state=state(seen, pod),
        ready=is_ready(pod),
        restarts=int(server.get("restartCount") or 0),
        node=str(pod["spec"].get("nodeName") or ""),
        image=image,
        age_seconds=round(seen.age(pod["metadata"].get("creationTimestamp")), 1),
    )


def state(seen: Snapshot, pod: Object) -> str:
    """``ready``, or how far *pod* has come."""
    if pod["metadata"].get("deletionTimestamp"):
        return "stopping"
    if is_ready(pod):
        return "ready"
    phase = str(pod.get("status", {}).get("phase", "unknown"))
    reasons = [str(held["reason"]) for one in containers(pod) if (held := (one.get("state") or {}).get("waiting"))]
    told = [message(event) for event in seen.events_of(pod, "Pod") if event.get("type") == "Normal"]
    parts = [phase, *reasons[:1], *told[-1:]] if phase == "Pending" else [phase, "not ready", *reasons[:1]]
    return ", ".join(dict.fromkeys(parts))


def _models(cluster: Cluster, where: ClusterTarget, seen: Snapshot) -> tuple[tuple[Model, ...] | None, str]:
    """The models by llama-swap's word; else why it could not be asked."""
    pod = next((pod for pod in seen.server_pods if is_ready(pod)), None)
    if pod is None:
        return None, "no pod of llama-swap is ready"
    try:
        with forwarded(cluster, where.namespace, where.service) as root:
            client = LlamaSwap(root)
            residents = {one.model: one.state for one in client.residents()}
            ids = client.models()
        path = f"/api/v1/namespaces/{where.namespace}/pods/{pod['metadata']['name']}/log"
        failures = log_lines.failures(cluster.text(path, tailLines=_LOG_LINES))
    except CorralError as error:
        return None, error.message
    return tuple(
        Model(one, residents[one])
        if one in residents
        else Model(one, "failed", failures[one])
        if one in failures
        else Model(one, "unloaded")
        for one in ids
    ), ""


def rows(found: Summary) -> list[tuple[str, str, str, str]]:
    """A line for each thing: what it is, its name, its state, and what else is worth knowing."""
    lines = [("store", one.claim, one.phase, _store_details(one)) for one in found.stores]
    if found.download:
        lines.append(("job", found.download.name, found.download.state, _download_details(found, found.download)))
    lines += [("pod", one.name, one.state, _pod_details(one)) for one in found.pods]
    lines += [("model", one.model, one.state, one.reason) for one in found.models or ()]
    return lines + [("card", name, *_card(card)) for name, card in (found.chart.get("cards") or {}).items()]


def _store_details(one: Store) -> str:
    return ", ".join(part for part in (one.size, one.place or one.volume, *one.access) if part)


def _download_details(found: Summary, job: Download) -> str:
    ago = f"{duration(max(0.0, found.now - job.at))} ago" if job.at else ""
    took = f"took {duration(job.seconds)}" if job.seconds is not None else ""
    return ", ".join(part for part in (ago, took, job.last_line) if part)


def _pod_details(one: Pod) -> str:
    on = f"on {one.node}" if one.node else "on no node"
    return ", ".join((count(one.restarts, "restart"), on, f"{duration(one.age_seconds)} old", one.image))


def _card(card: Mapping[str, Any]) -> tuple[str, str]:
    """Of the chart: whether all fits, and who was promised what."""
    seats = [f"{name} {group['mib']}" for name, group in card["groups"].items()]
    tenants = [f"{name} {mib}" for name, mib in card["tenants"].items()]
    parts = [
        f"seats: {', '.join(seats) or 'none'}",
        f"budgets: {', '.join(tenants) or 'none'}",
        f"free {card['free_mib']} of {card['vram_mib']} MiB",
    ]
    return ("fits" if card["free_mib"] >= 0 else "too full"), "; ".join(parts)
