"""What runs in the cluster, in few words: store, download, pod, models, card, and what is wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, TypeAlias

from corral.agent.progress import count, duration
from corral.cluster import claim_rules, diagnosis, engine_probe
from corral.cluster.client import Cluster, Object
from corral.cluster.collect import collect
from corral.cluster.finding import Finding
from corral.cluster.served import served
from corral.cluster.snapshot import (
    CARD,
    NAME,
    SERVER,
    Snapshot,
    at,
    condition,
    containers,
    is_ready,
    is_stopping,
    is_true,
    labels,
    listed,
    message_of,
    name_of,
    seconds,
)
from corral.cluster.target import ClusterTarget
from corral.engine import engine_process, log_lines, recent
from corral.engine.engine_process import FAILED, Probe
from corral.engine.llama_swap import Exchange, Resident
from corral.errors import CannotRun, CorralError
from corral.lock import together
from corral.parallel import Result
from corral.vram.prediction import mib

_LOG_LINES = "20000"  # enough to find a model's last failure


Row: TypeAlias = dict[str, Any]
"""One thing as ``--json`` prints it."""


@dataclass(frozen=True)
class Summary:
    """Everything on one screen.

    Attributes:
        now: when it was read, in seconds since 1970.
        stores: the claims, with the place of their bytes.
        download: the Job, with the last line of its log; None when there is none.
        pods: of llama-swap, the newest first, and of the models that have one of their own.
        models: ``ready``, ``starting``, ``stopping``, ``unloaded``, ``silent`` where the engine does not respond,
            ``unreachable`` where only other cards' llama-swap responds, or ``failed`` with its reason; with what
            it holds by an exporter (``with_held``), its seat and its last requests, the newest first.  None when
            llama-swap could not be read.
        models_unseen: why it could not; empty when it was.
        cards: of the seating chart of the last apply; None when it is not known.
        findings: what is wrong.
    """

    now: float
    stores: list[Row]
    download: Row | None
    pods: list[Row]
    models: list[Row] | None
    models_unseen: str
    cards: Mapping[str, Any] | None
    findings: tuple[Finding, ...]

    @property
    def is_serving(self) -> bool:
        """Whether a pod is ready and llama-swap in it responds."""
        return self.models is not None

    @property
    def has_failed_model(self) -> bool:
        """Whether the last start or run of a model failed, or its engine does not respond."""
        return any(one["state"] in FAILED for one in self.models or ())

    @property
    def has_unreachable_model(self) -> bool:
        """Whether the llama-swap of a card does not respond while that of another one does."""
        return any(one["state"] == "unreachable" for one in self.models or ())

    @property
    def is_well(self) -> bool:
        """Whether it serves, no model has failed, and nothing is known to be wrong."""
        return self.is_serving and not (self.findings or self.has_failed_model or self.has_unreachable_model)

    def with_held(self, held: Mapping[str, int]) -> Summary:
        """The same with the bytes that models hold, by their ids."""
        models = self.models and [one | {"gpu_bytes": held.get(one["model"])} for one in self.models]
        return replace(self, models=models)

    def as_json(self, cluster: Cluster, target: ClusterTarget) -> dict[str, Any]:
        """The shape that ``--json`` prints, for the *target* in *cluster* that was read."""
        return {
            "running": self.is_serving,
            "endpoint": target.url,
            "cluster": {"context": cluster.context, "server": cluster.server, "version": cluster.version},
            "namespace": target.namespace,
            **{name: value for name, value in asdict(self).items() if name != "now"},
        }


def summary(cluster: Cluster, target: ClusterTarget) -> Summary:
    """The state of the namespace of *target*; loads no model.

    Raises:
        CannotRun: nothing of the namespace can be read.
    """
    snapshot = collect(cluster, target.namespace)
    return Summary(
        snapshot.now,
        [_store(snapshot, claim) for claim in snapshot.our_claims],
        _download(snapshot, snapshot.job) if snapshot.job else None,
        [_pod(snapshot, pod) for pod in _pods(snapshot) if at(pod, "status", "phase") != "Succeeded"],
        *_models(cluster, target, snapshot),
        target.chart.get("cards"),
        diagnosis.findings(snapshot),
    )


def _store(snapshot: Snapshot, claim: Object) -> Row:
    volume = snapshot.volume_of(claim)
    size = at(claim, "status", "capacity", "storage") or at(claim, "spec", "resources", "requests", "storage")
    return {
        "claim": name_of(claim),
        "phase": str(at(claim, "status", "phase") or "unknown"),
        "size": str(size or ""),
        "volume": str(at(claim, "spec", "volumeName") or ""),
        "place": claim_rules.place_of(volume) if volume else "",
        "access": listed(claim, "spec", "accessModes"),
    }


def _download(snapshot: Snapshot, job: Object) -> Row:
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
    return {
        "name": name_of(job),
        "state": state,
        "at": ended or started,
        "seconds": ended - started if ended and started else None,
        "last_line": _last_line(snapshot),
    }


def _last_line(snapshot: Snapshot) -> str:
    """Of the container that runs; else of the download, which has more to report than the container after it."""
    for pod in snapshot.job_pods:
        statuses = containers(pod)
        names = [*(one["name"] for one in statuses if at(one, "state", "running")), "fetch"]
        for name in (*names, *(one["name"] for one in statuses)):
            if line := snapshot.last_line(pod, name):
                return line
    return ""


def _pods(snapshot: Snapshot) -> tuple[Object, ...]:
    return (*snapshot.server_pods, *snapshot.model_pods.values())


def _pod(snapshot: Snapshot, pod: Object) -> Row:
    server = next((one for one in containers(pod) if one["name"] == labels(pod).get(NAME)), {})
    return {
        "name": name_of(pod),
        "state": state(snapshot, pod),
        "ready": is_ready(pod),
        "restarts": int(server.get("restartCount") or 0),
        "node": str(at(pod, "spec", "nodeName") or ""),
        "card": labels(pod).get(CARD),
        "image": next((str(one.get("image", "")) for one in pod["spec"]["containers"]), ""),
        "age_seconds": round(snapshot.age(pod), 1),
    }


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


def _models(cluster: Cluster, target: ClusterTarget, snapshot: Snapshot) -> tuple[list[Row] | None, str]:
    """The models as the llama-swap of each card reports them; else why none could be read.

    One that cannot be read has the models that the seating chart of the last apply gives its card.
    """
    seats, rows, problems = target.chart.get("models", {}), [], {}
    for card in snapshot.cards:
        try:
            rows += _of_card(cluster, target, snapshot, card)
        except CorralError as error:
            problems[card] = error.message
    if len(problems) == len(snapshot.cards):
        return None, "; ".join(dict.fromkeys(problems.values()))
    shown = {row["model"] for row in rows}
    rows += [
        _row(model, seats, card=seat["card"], state="unreachable", reason=problems[seat["card"]])
        for model, seat in seats.items()
        if seat["card"] in problems and model not in shown
    ]
    return sorted(rows, key=lambda row: str(row["model"])), ""


def _of_card(cluster: Cluster, target: ClusterTarget, snapshot: Snapshot, card: str) -> list[Row]:
    pod = next((pod for pod in snapshot.of_card(card).server_pods if is_ready(pod)), None)
    if pod is None:
        raise CannotRun("no pod of llama-swap is ready")
    target = replace(target, service=snapshot.service_of(card) or target.service)
    with served(cluster, target, alone=True) as client:
        residents, ids = client.residents(), client.models()
        requests = recent.read(client)
    states = _states(cluster, target, residents)
    path = f"/api/v1/namespaces/{target.namespace}/pods/{name_of(pod)}/log"
    failures = log_lines.failures(cluster.text(path, container=SERVER, tailLines=_LOG_LINES))
    states = {model: ("failed", reason) for model, reason in failures.items()} | states | _beside(snapshot)
    seats = target.chart.get("models", {})

    def of(model: str) -> Sequence[Exchange] | None:
        return None if requests is None else requests.get(model, ())

    return [_row(model, seats, card, *states.get(model, ("unloaded", "")), requests=of(model)) for model in ids]


def _beside(snapshot: Snapshot) -> dict[str, tuple[str, str]]:
    """The states of the models that have a pod of their own: such a one is ready, or on its way."""
    pods = snapshot.model_pods
    states = {one: state(snapshot, pods[one]) if one in pods else "there is none" for one in snapshot.model_deployments}
    return {
        model: ("ready", "") if one == "ready" else ("starting", f"its pod: {one}") for model, one in states.items()
    }


def _row(
    model: str,
    seats: Mapping[str, Any],
    card: str,
    state: str,
    reason: str,
    requests: Sequence[Exchange] | None = None,
) -> Row:
    return {
        "model": model,
        "card": card or (seats[model]["card"] if model in seats else None),
        "state": state,
        "reason": reason,
        "gpu_bytes": None,
        "seat_mib": seats[model]["mib"] if model in seats else None,
        "requests": None if requests is None else [asdict(one) for one in requests],
    }


def _states(cluster: Cluster, target: ClusterTarget, residents: Sequence[Resident]) -> dict[str, tuple[str, str]]:
    """The state of each of *residents*, with the reason where its engine does not respond."""
    found = engine_probe.probes(cluster, target, residents)
    states = {}
    for one in residents:
        probed = found.get(one.model, Result())
        state, reason = engine_process.trouble(None, probed.value or Probe(probed.problem))
        states[one.model] = (state or one.state, reason)
    return states


def rows(summary: Summary) -> list[tuple[str, str, str, str]]:
    """A line for each thing: what it is, its name, its state, and what else is worth knowing."""
    lines = [
        ("store", one["claim"], one["phase"], _joined(one["size"], one["place"] or one["volume"], *one["access"]))
        for one in summary.stores
    ]
    if job := summary.download:
        ago = f"{duration(max(0.0, summary.now - job['at']))} ago" if job["at"] else ""
        took = f"took {duration(job['seconds'])}" if job["seconds"] is not None else ""
        lines.append(("job", job["name"], job["state"], _joined(ago, took, job["last_line"])))
    for pod in summary.pods:
        node, age = f"on {pod['node'] or 'no node'}", f"{duration(pod['age_seconds'])} old"
        card = f"card {pod['card']}" if pod["card"] else ""
        details = _joined(count(pod["restarts"], "restart"), card, node, age, pod["image"])
        lines.append(("pod", pod["name"], pod["state"], details))
    several = len({one["card"] for one in summary.models or ()}) > 1
    for one in summary.models or ():
        card = f"card {one['card']}" if several else ""
        lines.append(("model", one["model"], one["state"], _joined(card, _model(one, summary.now))))
    return lines + [("card", name, *_card(card)) for name, card in (summary.cards or {}).items()]


def _model(one: Row, now: float) -> str:
    """Of a model: why it does not respond, its memory and its seat, its last request."""
    held, seat = one["gpu_bytes"], one["seat_mib"]
    memory = "" if held is None else f"holds {mib(held):,} MiB"
    listed = one["requests"]
    last = recent.words(None if listed is None else [Exchange(**request) for request in listed], now)
    return _joined(one["reason"], memory, "" if seat is None else f"seat {seat:,} MiB", last and f"last request {last}")


def _joined(*parts: str) -> str:
    return ", ".join(part for part in parts if part)


def _card(card: Mapping[str, Any]) -> tuple[str, str]:
    """Of the chart: whether all fits, and who was promised what."""
    seats = ", ".join(f"{name} {group['mib']}{_several(group)}" for name, group in card["groups"].items())
    budgets = ", ".join(f"{name} {mib}" for name, mib in card["tenants"].items())
    free = f"free {card['free_mib']} of {card['vram_mib']} MiB"
    fits = "fits" if card["free_mib"] >= 0 else "too full"
    return fits, f"seats: {seats or 'none'}; budgets: {budgets or 'none'}; {free}"


def _several(group: Mapping[str, Any]) -> str:
    """Of a group of the chart: which of its models run together, where any do; an older apply's has no sets."""
    sets = group.get("sets") or ()
    return f" ({together.words(sets)})" if together.several(sets) else ""
