"""What runs, and what is wrong: in the local stack, or in a cluster.

Of the local stack: each model's state, its process, and why the last load failed if it did.  Of a service that the
Ansible role llama_server has installed here: whether it runs, how many layers the GPU takes, and why.  Of a cluster:
the store, the download, the pod, the models, the card, and for everything that is wrong a sentence, what Kubernetes
said, and the command to type next.  Without options it is the first of the three that there is; the cluster is the one
that terraform/stacks/homelab was applied to.

It only reads: no model is loaded by it, and none is kept loaded.  Exit code 1 when nothing runs, a model has failed, or
something is wrong in the cluster.

examples:
  corral status --json | jq -r '.models[] | select(.state == "ready") | .model'
  corral status --context homelab
  corral status --context homelab --json | jq -r '.findings[] | [.subject, .cause, .is_stuck, .next_step] | @tsv'
"""

from __future__ import annotations

import argparse
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from corral import output, paths
from corral.agent.progress import duration
from corral.cli import options
from corral.engine import gpu_layers, log_lines, ports, stack
from corral.engine.gpu_layers import HostService
from corral.engine.llama_swap import LlamaSwap, Resident
from corral.engine.processes import Mark
from corral.engine.stack import Running
from corral.engine.stack_folder import StackFolder
from corral.errors import CannotRun, ExitCode, Failed

if TYPE_CHECKING:
    from corral.cluster.finding import Finding
    from corral.cluster.target import ClusterTarget

_LOG_LINES = 20_000  # enough to find a model's last failure


@dataclass(frozen=True)
class ModelStatus:
    """One model: ``ready``, ``starting``, ``stopping``, ``unloaded`` or ``failed``."""

    model: str
    state: str
    pid: int | None
    proxy: str | None
    ttl: int | None
    reason: str


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.add(parser, "--json")
    options.add_cluster(parser)


def run(args: argparse.Namespace) -> int:
    """Show it; exit 1 when there is nothing, it is dead, or a model has failed."""
    state = paths.state_dir()
    where = options.cluster(args)
    if where is None and stack.recorded(state) is None:
        if services := gpu_layers.installed():
            return _on_this_host(args, services)
        where = options.applied()
    if where:
        return _in_cluster(args, where)
    try:
        running = _require_running(state)
        models = _models(running, state)
    except Failed as error:
        if args.json:
            output.data_json({"running": False, "reason": error.message, "next_step": error.next_step})
            return ExitCode.FAILED
        raise
    code = ExitCode.FAILED if any(one.state == "failed" for one in models) else ExitCode.OK
    if args.json:
        output.data_json(_plain(running, models))
        return code
    engine = running.engine
    output.info(f"{running.endpoint}  up {duration(time.time() - running.started_at)}  llama-swap pid {running.pid}")
    output.info(f"engine: {engine.path} ({engine.origin}), build {engine.build}")
    rows = [(one.model, one.state, str(one.pid or "-"), one.proxy or "-", one.reason) for one in models]
    output.table(("model", "state", "pid", "engine at", "reason"), rows)
    if code != ExitCode.OK:
        output.info("What is behind it, and what to do: corral why MODEL")
    return code


def _on_this_host(args: argparse.Namespace, services: tuple[HostService, ...]) -> int:
    states = {service: service.state() for service in services}
    runs = all(state == "active" for state in states.values())
    if args.json:
        rows = [asdict(service) | {"file": str(service.file), "state": state} for service, state in states.items()]
        output.data_json({"running": runs, "services": rows})
    else:
        for service, state in states.items():
            output.data(f"{state}: {service.banner}")
            if state != "active":
                output.data(f"  → {service.next_step}")
    return ExitCode.OK if runs else ExitCode.FAILED


def _in_cluster(args: argparse.Namespace, where: ClusterTarget) -> int:
    from corral.cluster import client, summary

    cluster = client.connect(where.kubeconfig, where.context)
    found = summary.summary(cluster, where)
    if args.json:
        output.data_json(found.as_json(cluster, where))
        return ExitCode.OK if found.is_well else ExitCode.FAILED
    output.info(f"{where.url}  context {cluster.context}, Kubernetes {cluster.version} at {cluster.server}")
    if where.trouble:
        output.warn(f"The seating chart is not known: {where.trouble}")
    output.table(("what", "name", "state", "details"), summary.rows(found))
    if found.models_unseen:
        output.info(f"The models could not be read: {found.models_unseen}")
    if found.findings:
        output.data("\n".join(line for finding in found.findings for line in _lines(finding)))
    elif not found.is_serving:
        output.info("Nothing is known to be wrong; it does not serve yet.")
    if found.has_failed_model:
        output.info(f"What is behind a failed model: corral why MODEL --context {cluster.context}")
    return ExitCode.OK if found.is_well else ExitCode.FAILED


def _lines(finding: Finding) -> list[str]:
    event = [f"  {finding.event}"] if finding.event else []
    return [f"{finding.subject}: {finding.what}", *event, f"  → {finding.next_step}"]


def _require_running(state: Path) -> Running:
    recorded = stack.recorded(state)
    if recorded is None:
        raise Failed(
            "No local stack is running, and nothing was applied to a cluster from this clone.",
            next_step="corral up --detach here, corral apply in a cluster; another's: corral status --context NAME",
        )
    if not recorded.is_alive:
        left = len(recorded.members())
        holding = f" {left} of its engines live on and hold memory." if left else ""
        raise Failed(
            f"llama-swap (pid {recorded.pid}) has died without being stopped.{holding}",
            next_step="corral logs shows its last words; corral up starts anew, corral down only cleans up",
        )
    return recorded


def _models(running: Running, state: Path) -> list[ModelStatus]:
    client = LlamaSwap(running.endpoint)
    try:
        residents = {one.model: one for one in client.residents()}
        ids = client.models()
    except CannotRun as error:
        raise Failed(
            f"llama-swap (pid {running.pid}) is alive but does not answer: {error.message}",
            next_step="corral logs, then: corral down --now",
        ) from None
    failures = log_lines.failures(StackFolder(state).log_tail(_LOG_LINES))
    members = running.members()
    found = []
    for model in ids:
        resident = residents.get(model)
        if resident:
            pid = _engine_pid(resident, members)
            found.append(ModelStatus(model, resident.state, pid, resident.proxy, resident.ttl, ""))
        elif model in failures:
            cause = log_lines.cause(client.model_log(model)) or "it ended without an error of its own: was it killed?"
            found.append(ModelStatus(model, "failed", None, None, None, f"{failures[model]}: {cause}"))
        else:
            found.append(ModelStatus(model, "unloaded", None, None, None, ""))
    return found


def _engine_pid(resident: Resident, members: list[Mark]) -> int | None:
    port = urlsplit(resident.proxy).port
    return next((one.pid for one in members if port and ports.is_listening(one.pid, port)), None)


def _plain(running: Running, models: list[ModelStatus]) -> dict[str, Any]:
    engine = running.engine
    return {
        "running": True,
        "endpoint": running.endpoint,
        "pid": running.pid,
        "uptime_seconds": round(time.time() - running.started_at, 1),
        "engine": {"path": str(engine.path), "origin": engine.origin, "build": engine.build},
        "models": [
            {
                "model": one.model,
                "state": one.state,
                "pid": one.pid,
                "proxy": one.proxy,
                "ttl": one.ttl,
                "reason": one.reason,
            }
            for one in models
        ],
    }
