"""2026-06-02 again: a tenant grows from 2 GB to 10.7 GB while the model is not loaded, and its next load has no room.

post-mortems/2026-06-02-tenant-arena-starves-llama-swap.md has the figures; ten minutes of growth are ten seconds here.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx2

from corral import paths
from corral.card import local
from corral.catalog import ledger
from corral.catalog.ledger import Ledger, Measurement, argv_sha256
from corral.demo.tour import tiny_hub
from corral.drill.alert_rules import render_rules
from corral.drill.monitoring import Receiver, installed, monitoring
from corral.drill.stand_in import StandInCard
from corral.engine import binaries, engine_process, ports, stack
from corral.errors import Failed
from corral.exporter import account, driver, holders
from corral.exporter.account import CardAccount
from corral.exporter.attribution import OnThisMachine
from corral.exporter.driver import Process
from corral.exporter.excesses import Excesses
from corral.exporter.holders import Kind, Owner
from corral.exporter.metrics import Exporter
from corral.exporter.server import serving
from corral.lock import lock as locks
from corral.lock.lock import Lock
from corral.vram.prediction import MIB
from corral.why import local as why
from corral.why.next_steps import StepOptions
from corral.why.verdict import Reason, Verdict

MODEL, TENANT, CARD = "qwen3-8b", "immich-ml", "t4"
ALERT_GOAL_S = 60.0
"""Seconds from the first load that fails to an alert with the culprit; on 2026-06-02 it took hours, without one."""
_CARD_MIB, _SEAT_MIB, _DRIVER_MIB, _BUDGET_MIB = 15360, 6996, 300, 2100
_GROWTH_MIB = (2040, 2900, 3800, 4700, 5600, 6500, 7400, 8300, 9200, 10726)
_STEP_S = 1.0
_LOAD_LIMIT_S = 120.0
_WHY_LIMIT_S = 20.0
_CATALOG: Mapping[str, Any] = {
    f"models/{MODEL}.yaml": {
        "source": {"repo": "corral/tiny-text-GGUF", "quant": "F16"},
        "card": CARD,
        "context": 2048,
        "modalities": ["text"],
        "group": "main",
        "smoke": {"prompt": "Are you there?", "expect": "OK"},
    },
    f"cards/{CARD}.yaml": {
        "vram_mib": _CARD_MIB,
        "reserve_mib": 512,
        "tenants": {
            TENANT: {"budget_mib": _BUDGET_MIB},
            "immich-server": {"budget_mib": 300},
            "frigate": {"budget_mib": 2000},
        },
    },
}


@dataclass(frozen=True)
class Observation:
    """What one layer reported.

    Attributes:
        layer: its name.
        after_s: seconds from the first load that failed; None: it did not know.
        text: what it knew, in its own words, or why it did not.
        is_required: it is installed, so that not knowing is a failure.
    """

    layer: str
    after_s: float | None
    text: str
    is_required: bool = True

    def as_json(self) -> dict[str, Any]:
        """The shape that ``--json`` prints."""
        after = None if self.after_s is None else round(self.after_s, 1)
        return {"layer": self.layer, "after_seconds": after, "text": self.text, "required": self.is_required}


def end_former(folder: Path) -> None:
    """End the stack of a drill in *folder* that was killed.

    Raises:
        CannotRun: its record is damaged.
    """
    if stack.recorded(folder / "state"):
        stack.stop(folder / "state", drain_s=0)


def play(folder: Path, report: Callable[[str], None], *, port: int | None) -> tuple[Observation, ...]:
    """Play the incident in the empty *folder*; *report* gets what happens, line by line.

    The front door listens on *port*; None: on a free one.

    Raises:
        Failed: a step before the incident failed: nothing was shown.
        CannotRun: a program is missing.
    """
    with ExitStack() as scene:
        return _Incident(folder, report, scene, port or ports.other_door()).play()


class _Incident:
    def __init__(self, folder: Path, report: Callable[[str], None], scene: ExitStack, port: int) -> None:
        self._folder, self._report, self._scene, self._port = folder, report, scene, port
        self._catalog, self._state = folder / "catalog", folder / "state"
        self._tenant, self._excesses = 0, Excesses()

    def play(self) -> tuple[Observation, ...]:
        card = StandInCard(self._folder / "driver", total_mib=_CARD_MIB, driver_mib=_DRIVER_MIB)
        # An empty source is the preflight's own: nvidia-smi.
        changed = {"PATH": f"{card.folder}{os.pathsep}{os.environ['PATH']}", "CORRAL_VRAM_SOURCE": ""}
        self._scene.enter_context(_environment(changed | {"CORRAL_STATE": str(self._state)}))
        binaries.build(self._report)
        self._start_stack()
        self._tenant = self._scene.enter_context(_sleeping()).pid
        frigate = self._scene.enter_context(_sleeping()).pid
        card.hold(frigate, "/usr/bin/frigate", 1900)
        card.hold(self._tenant, f"/usr/bin/{TENANT}", _GROWTH_MIB[0])
        receiver = self._start_watching()

        self._report(f"\n{MODEL} answers; {TENANT} holds {_GROWTH_MIB[0]} MiB of its {_BUDGET_MIB}.")
        if (status := self._request()[0]) != 200:
            raise self._failed(f"The model did not answer before the incident: status {status}.")
        engine = next((pid for pid, model in self._models().items() if model == MODEL), None)
        if engine is None:
            raise self._failed("The engine of the model ended before the incident.")
        card.hold(engine, "/usr/bin/llama-server", _SEAT_MIB)
        self._unload()
        card.hold(engine, "", 0)
        self._report(f"It is unloaded, as after its time to live.  {TENANT} grows:")
        for mib in _GROWTH_MIB:
            card.hold(self._tenant, f"/usr/bin/{TENANT}", mib)
            self._report(f"  {TENANT} {mib:6,} MiB, free {card.free_mib:6,} MiB")
            time.sleep(_STEP_S)
        return tuple(self._observations(receiver))

    def _observations(self, receiver: Receiver | None) -> Iterator[Observation]:
        began = time.monotonic()
        status, code, sentence = self._request()
        self._report(f"\nThe first request that needs a load: status {status}, {code or 'no code'}.")
        is_known = (status, code) == (503, "no-room")
        yield Observation("preflight", time.monotonic() - began if is_known else None, sentence)
        over = [row for one in self._accounts() for row in one.over]
        text = ", ".join(f"{row.name}: {row.over // MIB:,} MiB over its promise" for row in over)
        is_over = [row.name for row in over] == [TENANT]
        yield Observation("exporter", time.monotonic() - began if is_over else None, text or "no holder is over")
        verdict, names = self._verdict()
        text = verdict.culprit or verdict.reason
        yield Observation("corral why", time.monotonic() - began if names else None, text)
        if receiver is None:
            yield Observation("alert", None, "Prometheus and Alertmanager are not installed here.", is_required=False)
            return
        self._report(f"Waiting for the alert, {ALERT_GOAL_S:.0f} s at most ...")
        alert = receiver.first(
            lambda one: one.name == "CorralNoRoomForModel" and one.labels["culprit"] == TENANT,
            limit_s=ALERT_GOAL_S - (time.monotonic() - began),
        )
        summary = alert.annotations["summary"] if alert else f"none within {ALERT_GOAL_S:.0f} s"
        yield Observation("alert", max(0.0, alert.at - began) if alert else None, summary)

    # -- the scene --------------------------------------------------------------------------------------------

    def _start_stack(self) -> None:
        for name, content in _CATALOG.items():
            (self._catalog / name).parent.mkdir(parents=True, exist_ok=True)
            (self._catalog / name).write_text(json.dumps(content), encoding="utf-8")
        hub = self._scene.enter_context(tiny_hub(self._folder / "hub"))
        self._scene.enter_context(_environment({"HF_ENDPOINT": hub.endpoint}))
        self._corral("lock")
        ledger.write(self._catalog, _as_large_as_then(locks.require(self._catalog)))
        self._corral("lock")
        self._scene.callback(end_former, self._folder)
        self._corral("up", "--detach", "--port", str(self._port))

    def _start_watching(self) -> Receiver | None:
        """The exporter, and where they are installed Prometheus and Alertmanager."""
        lock = locks.require(self._catalog)
        exporter = Exporter(seal=lock.seal, models=lock.models, accounts=self._accounts, find_llama_swap=None)
        server = self._scene.enter_context(serving(("127.0.0.1", 0), exporter, dict))
        if (programs := installed()) is None:
            return None
        rules, inhibit_rules = render_rules([CARD], self._folder / "alerts")
        target = f"127.0.0.1:{server.server_port}"
        folder = self._folder / "monitoring"
        folder.mkdir()
        return self._scene.enter_context(monitoring(folder, target, rules, inhibit_rules, programs, every_s=15))

    def _accounts(self) -> tuple[CardAccount, ...]:
        attribution = _Attribution(self._models(), {self._tenant: TENANT})
        # The stand-in reports the pids of this process's own namespace.
        reading = holders.read(lambda: attribution, pid_namespace=driver.pid_namespace())
        return self._excesses.dated(account.of(local.promises(locks.require(self._catalog)), reading))

    def _models(self) -> dict[int, str]:
        running = stack.recorded(self._state)
        return {one.pid: engine_process.seated_model(one.pid) for one in running.engines()} if running else {}

    def _corral(self, *words: str) -> None:
        command = [*words, "--catalog", str(self._catalog)]
        self._report(f"$ corral {words[0]}")
        done = subprocess.run(
            [sys.executable, "-m", "corral.cli.main", *command], capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise self._failed(f"corral {words[0]} ended with exit code {done.returncode}:\n{done.stdout}{done.stderr}")

    def _failed(self, message: str) -> Failed:
        return Failed(message, next_step=f"CORRAL_STATE={shlex.quote(str(self._state))} corral logs")

    def _verdict(self) -> tuple[Verdict, bool]:
        """Of `corral why`, and whether it names the tenant.

        A machine that is too busy for the preflight's search, or for the evidence, gets another request.
        """
        scope = why.Scope(self._state, self._catalog, paths.default_store(), StepOptions())
        until = time.monotonic() + _WHY_LIMIT_S
        while True:
            (found,) = why.investigate(scope, MODEL)
            names = found.reason is Reason.OUT_OF_MEMORY and TENANT in found.culprit
            if names or time.monotonic() > until:
                return found, names
            self._request()

    def _request(self) -> tuple[int, str, str]:
        """The status of a request to the model, and the code and the sentence of its refusal, empty without one."""
        body = {"model": MODEL, "messages": [{"role": "user", "content": "Are you there?"}]}
        try:
            answer = self._post("/v1/chat/completions", body)
            error = answer.json().get("error") or {}
            return answer.status_code, str(error.get("code", "")), str(error.get("message", ""))
        except (httpx2.HTTPError, ValueError, AttributeError) as problem:
            return 0, "", f"no answer that can be read: {type(problem).__name__}"

    def _unload(self) -> None:
        self._post(f"/api/models/unload/{MODEL}", {})

    def _post(self, path: str, body: Mapping[str, Any]) -> httpx2.Response:
        running = stack.running(self._state)
        if running is None:
            raise self._failed("The stack of the drill has died.")
        return httpx2.post(f"{running.endpoint}{path}", json=body, timeout=_LOAD_LIMIT_S, trust_env=False, verify=False)


@dataclass(frozen=True)
class _Attribution:
    """Engines and tenants by their pids; in a cluster a tenant's pod is found by its control group."""

    models: Mapping[int, str]
    tenants: Mapping[int, str]
    problem = ""

    def owner(self, process: Process) -> Owner:
        if tenant := self.tenants.get(process.pid):
            return Owner(Kind.TENANT, tenant)
        return OnThisMachine(self.models).owner(process)

    def certain(self) -> frozenset[Kind]:
        return frozenset({Kind.MODEL, Kind.TENANT})


def _as_large_as_then(lock: Lock) -> Ledger:
    """A measurement of the tiny model, with the seat that the model of the incident had."""
    entry = lock.models[MODEL]
    measured = Measurement(
        model=MODEL,
        argv_sha256=argv_sha256(entry.argv),
        engine="drill",
        device="Tesla T4",
        source="nvidia-smi",
        date=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        gpu_bytes=_SEAT_MIB * MIB,
        host_bytes=None,
        predicted_gpu_bytes=entry.predicted.gpu_bytes,
        predicted_host_bytes=None,
    )
    return Ledger(measurements=(measured,))


@contextmanager
def _sleeping() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"]) as process:
        try:
            yield process
        finally:
            process.kill()


@contextmanager
def _environment(changed: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in changed}
    os.environ.update(changed)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
