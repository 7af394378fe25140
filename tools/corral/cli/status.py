"""Show what runs, and what is wrong: in the local stack, or in a cluster.

Of the local stack: each model's state, its process, its memory and its seat in MiB, the time and the tokens a second of
its last request, and why the last load failed if it did.  The memory is what the driver reports, without one what the
engine's log has of its buffers.  --json has the last five requests of each model.  What the catalog's lock has and the
running stack does not, after a change that was not applied, is named with the command.  Of a service that the
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
import json
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from corral import output, paths, versions
from corral.agent.progress import duration
from corral.cli import on_cpu, options
from corral.engine import command, engine_process, host_services, log_lines, pause, recent, stack
from corral.engine.command import Command, Sets
from corral.engine.engine_process import FAILED
from corral.engine.host_services import HostService
from corral.engine.llama_swap import Exchange, LlamaSwap, Resident
from corral.engine.processes import Mark
from corral.engine.stack import Running
from corral.engine.stack_folder import StackFolder
from corral.errors import CannotRun, CorralError, ExitCode, Failed, Refused
from corral.exporter import driver
from corral.lock import lock as locks
from corral.lock import together
from corral.measure import engine_report, nvidia_smi
from corral.parallel import Result, read_all
from corral.seating import unapplied
from corral.versions import LocalVersions
from corral.vram.prediction import mib

if TYPE_CHECKING:
    from corral.cluster.target import ClusterTarget

_COLUMNS = ("model", "state", "pid", "engine at", "MiB", "seat", "last request", "reason")
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
    gpu_bytes: int | None = None  # that it has on the card now; None: unknown, or it is not loaded
    host_bytes: int | None = None  # the engine's own buffers in the host's memory
    seat_mib: int | None = None  # for which its preflight checks; None: unknown
    requests: tuple[Exchange, ...] | None = None  # the last ones, the newest first; None: unknown

    def row(self, now: float) -> tuple[str, ...]:
        """Its cells, under ``_COLUMNS``."""
        held = "-" if self.gpu_bytes is None else f"{mib(self.gpu_bytes):,}"
        if self.gpu_bytes == 0 and self.host_bytes:
            held = f"{mib(self.host_bytes):,} (host)"
        seat = "-" if self.seat_mib is None else f"{self.seat_mib:,}"
        process = (str(self.pid or "-"), self.proxy or "-")
        return (self.model, self.state, *process, held, seat, recent.words(self.requests, now), self.reason)


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
    engine, uptime, serving = running.engine, time.time() - running.started_at, _adapters(state)
    sets, changes = _sets(state), _unapplied(running, state)
    paused = None if problem else pause.read(running, state)
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
        "adapters": serving,
        "together": sets,
        "not_applied": changes,
        "pause": paused and asdict(paused),
    }
    if not args.json:
        output.info(f"{running.endpoint}  up {duration(uptime)}  {', '.join(map(str, running.parts()))}")
        output.info(f"door: {'every request needs a key' if running.door.keys else 'no keys'}")
        if certificate:
            output.info(f"certificate: {certificate}")
        output.info(f"engine: {engine.path} ({engine.origin}), build {engine.build}")
        on_cpu.show(without_card)
    rows = [one.row(time.time()) for one in models]
    output.result(document, _COLUMNS, rows, as_json=args.json)
    if not args.json:
        for name, group in (sets or {}).items():
            if together.several(group):
                output.info(f"group {name} runs together: {together.words(group)}")
    if serving and not args.json:
        shown = (f"{name} ({version or 'unknown version: corral adapters list'})" for name, version in serving.items())
        output.info(f"adapters: {', '.join(shown)}")
    if changes and not args.json:
        what = f"What runs is another configuration than the lock of {running.catalog} has: {', '.join(changes)}"
        output.info(f"{what}\n  → {running.start_command()}")
    if paused and not args.json:
        output.info(str(paused))
    if problem and not args.json:
        output.info(f"{problem}\n  → {step}")
    elif code and not args.json:
        output.info("What is behind it, and what to do: corral why MODEL")
    return code


def _adapters(state: Path) -> dict[str, str | None]:
    """The version of each adapter that serves, by MODEL:NAME; None: which one is not known."""
    folder = StackFolder(state)
    try:
        found = json.loads(folder.guard_config.read_text(encoding="utf-8"))["adapters"]
    except (OSError, ValueError, KeyError):  # of an older corral
        return {}
    try:
        chosen = LocalVersions(folder.versions).read()
    except CorralError:
        return dict.fromkeys(found)
    return {name: versions.serving(chosen, name, one["versions"]) for name, one in found.items()}


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
    cards = findings.read(cluster, of=target.namespace)
    found = replace(found.with_held(cards.held), findings=(*found.findings, *cards.findings))
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
        holding = f" {stack.left_engines(left)}" if left else ""
        raise Failed(
            f"llama-swap (pid {recorded.pid}) has died without being stopped.{holding}",
            next_step=f"corral logs shows its last lines; {recorded.start_command()} starts it again, "
            "corral down only cleans up",
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
    probed = read_all({one: partial(_resident, residents[one], members, client) for one in residents}, limit_s=_READ_S)
    found = [
        _probed(residents[one], probed[one]) if one in residents else _absent(one, failures.get(one), client)
        for one in ids
    ]
    requests = recent.read(client)
    commands = _commands(state)
    found = [replace(one, seat_mib=commands[one.model].seat_mib if one.model in commands else None) for one in found]
    return found if requests is None else [replace(one, requests=requests.get(one.model, ())) for one in found]


def _commands(state: Path) -> Mapping[str, Command]:
    """How each model is served; none where the configuration of the running stack cannot be read."""
    with suppress(CannotRun):
        return command.read(StackFolder(state).config)
    return {}


def _sets(state: Path) -> Sets | None:
    """The models that run together; None where the configuration of the running stack cannot be read."""
    with suppress(CannotRun):
        return command.read_sets(StackFolder(state).config)
    return None


def _unapplied(running: Running, state: Path) -> list[str]:
    """What of the lock of the stack's catalog does not run; nothing where that or the configuration cannot be read."""
    with suppress(Refused):
        lock = locks.require(running.catalog)
        if sets := _sets(state):
            return unapplied.changes(lock, _commands(state), sets)
    return []


def _resident(one: Resident, members: Sequence[Mark], client: LlamaSwap) -> ModelStatus:
    """The state of a model that has a process, which is asked itself: llama-swap calls a stopped one ready."""
    engine = engine_process.find(one.model, urlsplit(one.proxy).port or 0, members)
    pid = engine.pid if engine else None
    is_asked = one.state == "ready" and not (engine and engine.is_stopped)
    probe = engine_process.probe(one.proxy, pid, limit_s=_PROBE_S) if is_asked else None
    state, reason = engine_process.trouble(engine, probe)
    held = _held(one.model, pid, client)
    return ModelStatus(one.model, state or one.state, pid, one.proxy, one.ttl, reason, *held)


def _held(model: str, pid: int | None, client: LlamaSwap) -> tuple[int | None, int | None]:
    """Bytes that it has on the card, and its buffers in the host's memory; None: unknown."""
    report = None
    with suppress(CannotRun):
        report = engine_report.parse(client.model_log(model))
    host = report.host if report else None
    if pid and driver.is_installed():
        with suppress(CannotRun):
            return nvidia_smi.held_by(pid).size, host
    return sum(report.cards.values()) if report else None, host


def _probed(one: Resident, found: Result[ModelStatus]) -> ModelStatus:
    return found.value or ModelStatus(one.model, "silent", None, one.proxy, one.ttl, found.problem)


def _absent(model: str, failure: str | None, client: LlamaSwap) -> ModelStatus:
    if failure:
        cause = log_lines.cause(client.model_log(model)) or "it ended without an error of its own: was it killed?"
        return ModelStatus(model, "failed", reason=f"{failure}: {cause}")
    return ModelStatus(model, "unloaded")
