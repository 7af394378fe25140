"""Show what runs, and what is wrong: in the local stack, or in a cluster.

Of the local stack: each model's state, its process, and why the last load failed if it did.  Of a service that the
Ansible role llama_server has installed here: whether it runs, how many layers the GPU takes, and why.  Of a cluster:
the store, the download, the pod, the models, the card, and for everything that is wrong a sentence, the event in
Kubernetes, and the next command.  Without options it is the first of the three that there is; the cluster is the one
that terraform/stacks/homelab was applied to.

It only reads: no model is loaded by it, and none is kept loaded.  The engine of every loaded model is queried itself:
one that is stopped is `hanging`, one that does not respond within 5 s is `silent`.  Exit code 1 when nothing runs, a
part of the front door has died or is stopped, a model has failed, hangs or is silent, or something is wrong in the
cluster.

examples:
  corral status --json | jq -r '.models[] | select(.state == "ready") | .model'
  corral status --context homelab
  corral status --context homelab --json | jq -r '.findings[] | [.subject, .cause, .is_stuck, .next_step] | @tsv'
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from corral import output, paths
from corral.agent.progress import duration
from corral.cli import on_cpu, options
from corral.engine import engine_process, host_services, log_lines, stack
from corral.engine.engine_process import FAILED
from corral.engine.host_services import HostService
from corral.engine.llama_swap import LlamaSwap, Resident
from corral.engine.processes import Mark
from corral.engine.stack import Running
from corral.engine.stack_folder import StackFolder
from corral.errors import CannotRun, ExitCode, Failed
from corral.parallel import Result, read_all

if TYPE_CHECKING:
    from corral.cluster.target import ClusterTarget

_LOG_LINES = 20_000  # enough to find a model's last failure
_PROBE_S = 5.0  # for an engine's response; a stopped one is found at once
_READ_S = 10.0  # for that, its process and its port


@dataclass(frozen=True)
class ModelStatus:
    """One model: ``ready``, ``starting``, ``stopping``, ``unloaded``, ``failed``, ``hanging`` or ``silent``."""

    model: str
    state: str
    pid: int | None = None
    proxy: str | None = None
    ttl: int | None = None
    reason: str = ""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.add(parser, "--json")
    options.add_cluster(parser)


def run(args: argparse.Namespace) -> int:
    """Show it; exit 1 when there is nothing, it is dead, or a model has failed."""
    state, target = paths.state_dir(), options.cluster(args)
    if target is None and stack.recorded(state) is None:
        if services := host_services.installed():
            return _host(args, services)
        target = options.applied()
    return _cluster(args, target) if target else _local_stack(args, state)


def _local_stack(args: argparse.Namespace, state: Path) -> int:
    try:
        running = _require_running(state)
        models = _models(running, state)
        without_card = running.client().on_cpu()
    except Failed as error:
        if not args.json:
            raise
        output.data_json({"running": False, "reason": error.message, "next_step": error.next_step})
        return ExitCode.FAILED
    problem, step = _door_problem(running)
    code = ExitCode.FAILED if problem or any(one.state in FAILED for one in models) else ExitCode.OK
    certificate = running.door.certificate(running.folder)
    engine, uptime = running.engine, time.time() - running.started_at
    document = {
        "running": True,
        "endpoint": running.endpoint,
        "pid": running.pid,
        "uptime_seconds": round(uptime, 1),
        "engine": {"path": str(engine.path), "origin": engine.origin, "build": engine.build},
        "door": {
            **{part: running.leaders[part].pid for part in ("guard", "caddy")},
            "keys": running.door.keys is not None,
            "certificate": certificate and str(certificate),
            "problem": problem,
        },
        "on_cpu": without_card,
        "models": [asdict(one) for one in models],
    }
    if not args.json:
        output.info(f"{running.endpoint}  up {duration(uptime)}  {', '.join(map(str, running.parts()))}")
        output.info(f"door: {'every request needs a key' if running.door.keys else 'no keys'}")
        if certificate:
            output.info(f"certificate: {certificate}")
        output.info(f"engine: {engine.path} ({engine.origin}), build {engine.build}")
        on_cpu.show(without_card)
    rows = [(one.model, one.state, str(one.pid or "-"), one.proxy or "-", one.reason) for one in models]
    output.result(document, ("model", "state", "pid", "engine at", "reason"), rows, as_json=args.json)
    if problem and not args.json:
        output.info(f"{problem}\n  → {step}")
    elif code and not args.json:
        output.info("What is behind it, and what to do: corral why MODEL")
    return code


def _door_problem(running: Running) -> tuple[str, str]:
    """What keeps requests from llama-swap, in a sentence, and the command that ends it; empty when nothing does."""
    if lost := running.lost():
        return f"{lost} has died: no request reaches llama-swap.", running.start_command()
    if stopped := running.stopped():
        return f"{stopped} is stopped (SIGSTOP): no request reaches llama-swap.", f"kill -CONT {stopped.process.pid}"
    return "", ""


def _host(args: argparse.Namespace, services: tuple[HostService, ...]) -> int:
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


def _cluster(args: argparse.Namespace, target: ClusterTarget) -> int:
    from corral.card import findings
    from corral.cluster import client, summary

    cluster = client.connect(target.kubeconfig, target.context)
    found = summary.summary(cluster, target)
    found = replace(found, findings=(*found.findings, *findings.findings(cluster, of=target.namespace)))
    code = ExitCode.OK if found.is_well else ExitCode.FAILED
    if args.json:
        output.data_json(found.as_json(cluster, target))
        return code
    output.info(f"{target.url}  context {cluster.context}, Kubernetes {cluster.version} at {cluster.server}")
    if target.trouble:
        output.warn(f"The seating chart is not known: {target.trouble}")
    output.table(("what", "name", "state", "details"), summary.rows(found))
    if found.models_unseen:
        output.info(f"The models could not be read: {found.models_unseen}")
    for one in found.findings:
        event = f"\n  {one.event}" if one.event else ""
        output.data(f"{one.subject}: {one.what}{event}\n  → {one.next_step}")
    if not (found.findings or found.is_serving):
        output.info("Nothing is known to be wrong; it does not serve yet.")
    if found.has_failed_model:
        output.info(f"What is behind a failed model: corral why MODEL --context {cluster.context}")
    return code


def _require_running(state: Path) -> Running:
    recorded = stack.recorded(state)
    if recorded is None:
        raise Failed(
            "No local stack is running, and nothing was applied to a cluster from this clone.",
            next_step="corral up --detach here, corral apply in a cluster; another's: corral status --context NAME",
        )
    if not recorded.is_alive:
        left = len(recorded.engines())
        holding = f" {left} of its engines live on and hold memory." if left else ""
        raise Failed(
            f"llama-swap (pid {recorded.pid}) has died without being stopped.{holding}",
            next_step="corral logs shows its last lines; corral up starts anew, corral down only cleans up",
        )
    return recorded


def _models(running: Running, state: Path) -> list[ModelStatus]:
    client = running.client()
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
    probed = read_all({one: partial(_resident, residents[one], members) for one in residents}, limit_s=_READ_S)
    return [
        _probed(residents[one], probed[one]) if one in residents else _absent(one, failures.get(one), client)
        for one in ids
    ]


def _resident(one: Resident, members: Sequence[Mark]) -> ModelStatus:
    """The state of a model that has a process, which is asked itself: llama-swap calls a stopped one ready."""
    engine = engine_process.find(one.model, urlsplit(one.proxy).port or 0, members)
    pid = engine.pid if engine else None
    is_asked = one.state == "ready" and not (engine and engine.is_stopped)
    probe = engine_process.probe(one.proxy, pid, limit_s=_PROBE_S) if is_asked else None
    state, reason = engine_process.trouble(engine, probe)
    return ModelStatus(one.model, state or one.state, pid, one.proxy, one.ttl, reason)


def _probed(one: Resident, found: Result[ModelStatus]) -> ModelStatus:
    return found.value or ModelStatus(one.model, "silent", None, one.proxy, one.ttl, found.problem)


def _absent(model: str, failure: str | None, client: LlamaSwap) -> ModelStatus:
    if failure:
        cause = log_lines.cause(client.model_log(model)) or "it ended without an error of its own: was it killed?"
        return ModelStatus(model, "failed", reason=f"{failure}: {cause}")
    return ModelStatus(model, "unloaded")
