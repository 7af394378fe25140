"""The scene of a drill: a local stack with one model, tenants, a stand-in for the card, and what watches it.

llama-swap, the engine, the front door and the exporter's code are real, Prometheus and Alertmanager too where they are
installed.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx2
import psutil

from corral import paths
from corral.agent import store_metrics, store_state
from corral.agent.lock_file import read_lock
from corral.agent.store import Store
from corral.card import local
from corral.catalog import ledger
from corral.catalog.ledger import Ledger, Measurement, argv_sha256
from corral.demo.hub_content import RepoContent
from corral.demo.tiny_gguf import write_text
from corral.demo.tour import tiny_repositories
from corral.drill.alert_rules import render_rules, with_waits
from corral.drill.monitoring import Notification, Receiver, installed, monitoring
from corral.drill.observation import Observation
from corral.drill.pausing_hub import PausingHub
from corral.drill.small_disk import small_disk
from corral.drill.stand_in import StandInCard
from corral.engine import binaries, engine_process, stack
from corral.errors import Failed
from corral.exporter import account, driver, holders
from corral.exporter.account import CardAccount
from corral.exporter.attribution import OnThisMachine
from corral.exporter.driver import Process
from corral.exporter.excesses import Excesses
from corral.exporter.holders import Kind, Owner
from corral.exporter.llama_swap import LlamaSwap
from corral.exporter.metrics import Exporter
from corral.exporter.server import serving
from corral.lock import lock as locks
from corral.lock.lock import Lock
from corral.vram.prediction import MIB
from corral.why import local as why
from corral.why.next_steps import StepOptions
from corral.why.verdict import Verdict

MODEL, TENANT, CARD = "qwen3-8b", "immich-ml", "t4"
TENANT_MIB, TENANT_BUDGET_MIB = 2040, 2100
_CARD_MIB, _SEAT_MIB, _DRIVER_MIB, _FRIGATE_MIB = 15360, 6996, 300, 1900
_REPO = "corral/tiny-text-GGUF"
_LOAD_LIMIT_S = 120.0
_AGAIN_S = 5.0
_MARK = "CORRAL_DRILL"
"""The variable of every program that a drill starts, with the drill's folder."""
_SCRAPE_S = 15
_CATALOG: Mapping[str, Any] = {
    f"models/{MODEL}.yaml": {
        "source": {"repo": _REPO, "quant": "F16"},
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
            TENANT: {"budget_mib": TENANT_BUDGET_MIB},
            "immich-server": {"budget_mib": 300},
            "frigate": {"budget_mib": 2000},
        },
    },
}


def end_former(folder: Path) -> None:
    """End the stack of a drill in *folder* that was killed, and the other programs that it had started.

    A shell that was given the state of the drill, as its message of a failure recommends, is none of these.

    Raises:
        CannotRun: its record is damaged.
    """
    if stack.recorded(folder / "state"):
        stack.stop(folder / "state", drain_s=0)
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.pid != os.getpid() and process.environ().get(_MARK) == str(folder):
                process.kill()


@dataclass(frozen=True)
class Setting:
    """What the scene of a drill has beside the usual.

    Attributes:
        store_bytes: of a file system that the model store has for itself, and that is watched; None: it has none.
        waits: the seconds that an alert waits here, where that is not what its rule says.
    """

    store_bytes: int | None = None
    waits: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Answer:
    """Of a request to the model: its status, 0 without one, and the code and the sentence of a refusal."""

    status: int
    code: str = ""
    sentence: str = ""


class Scene:
    """What a drill breaks, and what it asks.  ``report`` gets what happens, line by line.

    Raises:
        Failed: the scene cannot be made: nothing was shown.
        CannotRun: a program is missing.
    """

    def __init__(
        self, folder: Path, report: Callable[[str], None], scope: ExitStack, port: int, setting: Setting
    ) -> None:
        self.report, self._setting = report, setting
        self._folder, self._scope, self._port = folder, scope, port
        self._catalog, self._state = folder / "catalog", folder / "state"
        self._excesses, self._watched = Excesses(), ExitStack()
        self._began = 0.0
        self.card = StandInCard(folder / "driver", total_mib=_CARD_MIB, driver_mib=_DRIVER_MIB)
        # An empty source is the preflight's own: nvidia-smi.
        changed = {"PATH": f"{self.card.folder}{os.pathsep}{os.environ['PATH']}", "CORRAL_VRAM_SOURCE": ""}
        scope.enter_context(_environment(changed | {"CORRAL_STATE": str(self._state), _MARK: str(folder)}))
        self.store = paths.default_store()
        """The folder of the models' files."""
        if setting.store_bytes:
            self.store = scope.enter_context(small_disk(folder / "disk", setting.store_bytes)) / "store"
        binaries.llama_swap(report)
        self.hub = scope.enter_context(PausingHub(tiny_repositories(folder / "hub")))
        self._start_stack()
        self._tenant = scope.enter_context(_sleeping()).pid
        self.card.hold(scope.enter_context(_sleeping()).pid, "/usr/bin/frigate", _FRIGATE_MIB)
        self.hold_tenant(TENANT_MIB)
        lock = locks.require(self._catalog)
        self._seal = lock.seal
        self._exporter = Exporter(
            seal=lock.seal,
            models=lock.models,
            accounts=self.accounts,
            find_llama_swap=self._find_llama_swap,
            store=self._store_metrics if setting.store_bytes else str,
        )
        list(self._exporter.collect())  # requests of before do not count
        self._receiver = self._start_watching()

    # -- what a drill does ------------------------------------------------------------------------------------

    def load(self) -> int:
        """Let the model answer, and hold its seat; the pid of its engine."""
        if (answer := self.request()).status != 200:
            raise self._failed(f"The model did not answer before the incident: status {answer.status}.")
        engine = next((pid for pid, model in self._models().items() if model == MODEL), None)
        if engine is None:
            raise self._failed("The engine of the model ended before the incident.")
        self.card.hold(engine, "/usr/bin/llama-server", _SEAT_MIB)
        return engine

    def unload(self) -> None:
        """End the engine of the model, which gives its memory back."""
        engines = [pid for pid, model in self._models().items() if model == MODEL]
        self._post(f"/api/models/unload/{MODEL}", {})
        for engine in engines:
            self.card.hold(engine, "", 0)

    def hold_tenant(self, mib: int) -> None:
        """Let the tenant hold *mib*."""
        self.card.hold(self._tenant, f"/usr/bin/{TENANT}", mib)

    def publish(self, *, n_ff: int) -> None:
        """Give the model a new version at the hub, whose size follows from *n_ff*."""
        file = self._folder / "new" / "tiny-text-F16.gguf"
        file.parent.mkdir()
        write_text(file, n_ff=n_ff)
        self.hub.update(_REPO, RepoContent({file.name: file}))

    def step(self, *words: str) -> None:
        """Run `corral` *words* for the catalog of the scene, which must succeed."""
        self.report(f"$ corral {words[0]}")
        done = self.corral(*words)
        if done.returncode:
            raise self._failed(f"corral {words[0]} ended with exit code {done.returncode}:\n{done.stdout}{done.stderr}")

    def end_exporter(self) -> None:
        """End the exporter that Prometheus scrapes."""
        self._watched.close()

    def begin(self) -> None:
        """Observations count their seconds from now on."""
        self._began = time.monotonic()

    # -- what a drill asks ------------------------------------------------------------------------------------

    def request(self, *, limit_s: float = _LOAD_LIMIT_S) -> Answer:
        """The answer to a request to the model, which has *limit_s* seconds."""
        body = {"model": MODEL, "messages": [{"role": "user", "content": "Are you there?"}]}
        try:
            answer = self._post("/v1/chat/completions", body, limit_s=limit_s)
            error = answer.json().get("error") or {}
            return Answer(answer.status_code, str(error.get("code", "")), str(error.get("message", "")))
        except (httpx2.HTTPError, ValueError, AttributeError) as problem:
            return Answer(0, "", f"no answer that can be read: {type(problem).__name__}")

    def get(self, path: str) -> int:
        """The status of the answer to a GET of *path*."""
        url = f"{self._running().endpoint}{path}"
        return httpx2.get(url, timeout=_LOAD_LIMIT_S, trust_env=False, verify=False).status_code

    def accounts(self) -> tuple[CardAccount, ...]:
        """The account of the card."""
        attribution = _Attribution(self._models(), {self._tenant: TENANT})
        # The stand-in reports the pids of this process's own namespace.
        reading = holders.read(lambda: attribution, pid_namespace=driver.pid_namespace())
        return self._excesses.dated(account.of(local.promises(locks.require(self._catalog)), reading))

    def series(self, name: str, **labels: str) -> float | None:
        """The value of a series of the exporter now; None: there is none."""
        samples = (sample for family in self._exporter.collect() for sample in family.samples)
        found = (one.value for one in samples if one.name == name and labels.items() <= one.labels.items())
        return next(found, None)

    def why(self, knows: Callable[[Verdict], bool], *, limit_s: float) -> tuple[Verdict, bool]:
        """The verdict of `corral why`, and whether it *knows*; one that does not gets another request until then."""
        scope = why.Scope(self._state, self._catalog, self.store, StepOptions())
        until = time.monotonic() + limit_s
        while True:
            (found,) = why.investigate(scope, MODEL)
            if knows(found) or time.monotonic() > until:
                return found, knows(found)
            self.request(limit_s=_AGAIN_S)

    def corral(self, *words: str) -> subprocess.CompletedProcess[str]:
        """What `corral` *words* prints and ends with, for the catalog of the scene."""
        command = [sys.executable, "-m", "corral.cli.main", *words, "--catalog", str(self._catalog)]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    def notifications(self) -> Sequence[Notification]:
        """All notifications so far."""
        return self._receiver.all if self._receiver else ()

    # -- what it observed -------------------------------------------------------------------------------------

    def observed(self, layer: str, text: str, *, knows: bool) -> Observation:
        """What *layer* reports now; the time counts from ``begin``."""
        return Observation(layer, time.monotonic() - self._began if knows else None, text)

    def alert(self, name: str, *, limit_s: float, **labels: str) -> Observation:
        """The first notification about the alert *name* with *labels*, within *limit_s* seconds from ``begin``."""
        layer = f"alert {name}"
        if self._receiver is None:
            text = "Prometheus and Alertmanager are not installed here."
            return Observation(layer, None, text, is_required=False)
        self.report(f"Waiting for the alert {name}, {limit_s:.0f} s at most ...")
        alert = self._receiver.first(
            lambda one: (one.name, one.status) == (name, "firing") and labels.items() <= one.labels.items(),
            limit_s=limit_s - (time.monotonic() - self._began),
        )
        summary = alert.annotations["summary"] if alert else f"none within {limit_s:.0f} s"
        return Observation(layer, max(0.0, alert.at - self._began) if alert else None, summary)

    # -- the scene --------------------------------------------------------------------------------------------

    def _start_stack(self) -> None:
        for name, content in _CATALOG.items():
            (self._catalog / name).parent.mkdir(parents=True, exist_ok=True)
            (self._catalog / name).write_text(json.dumps(content), encoding="utf-8")
        self._scope.enter_context(_environment({"HF_ENDPOINT": self.hub.endpoint}))
        self.step("lock")
        ledger.write(self._catalog, _as_large_as_then(locks.require(self._catalog)))
        self.step("lock")
        self._scope.callback(end_former, self._folder)
        self.step("up", "--detach", "--port", str(self._port), "--store", str(self.store))

    def _store_metrics(self) -> str:
        state = store_state.read(read_lock(self._catalog / "lock.json"), Store(self.store))
        return store_metrics.text(store_metrics.LOCAL, state, self._seal)

    def _find_llama_swap(self) -> LlamaSwap | None:
        running = stack.running(self._state)
        client = running.client() if running else None
        return LlamaSwap(client.endpoint, client.headers) if client else None

    def _start_watching(self) -> Receiver | None:
        """The exporter, and where they are installed Prometheus and Alertmanager; *seal* is that of the lock."""
        self._scope.enter_context(self._watched)
        server = self._watched.enter_context(serving(("127.0.0.1", 0), self._exporter, dict))
        if (programs := installed()) is None:
            return None
        stores = [store_metrics.LOCAL] if self._setting.store_bytes else []
        rules, inhibit_rules = render_rules([CARD], self._folder / "alerts", self._seal, stores)
        target = f"127.0.0.1:{server.server_port}"
        folder = self._folder / "monitoring"
        folder.mkdir()
        if self._setting.waits:
            rules = with_waits(rules, self._setting.waits)
        watching = monitoring(folder, [target], rules, inhibit_rules, programs, every_s=_SCRAPE_S)
        receiver = self._scope.enter_context(watching)
        self._wait_for_scrape(receiver)
        return receiver

    def _wait_for_scrape(self, receiver: Receiver) -> None:
        """Return when Prometheus has an answer of the exporter: what happened before counts for no alert."""
        self.report("Waiting for the first scrape ...")
        until = time.monotonic() + 4 * _SCRAPE_S
        url = f"{receiver.prometheus}/api/v1/query"
        while time.monotonic() < until:
            with suppress(httpx2.HTTPError, ValueError, KeyError):
                answer = httpx2.get(url, params={"query": "corral_lock_info"}, trust_env=False, verify=False)
                if answer.json()["data"]["result"]:
                    return
            time.sleep(0.2)
        raise self._failed("Prometheus did not scrape the exporter.")

    def _models(self) -> dict[int, str]:
        running = stack.recorded(self._state)
        return {one.pid: engine_process.seated_model(one.pid) for one in running.engines()} if running else {}

    def _post(self, path: str, body: Mapping[str, Any], *, limit_s: float = _LOAD_LIMIT_S) -> httpx2.Response:
        url = f"{self._running().endpoint}{path}"
        return httpx2.post(url, json=body, timeout=limit_s, trust_env=False, verify=False)

    def _running(self) -> stack.Running:
        running = stack.running(self._state)
        if running is None:
            raise self._failed("The stack of the drill has died.")
        return running

    def _failed(self, message: str) -> Failed:
        return Failed(message, next_step=f"CORRAL_STATE={shlex.quote(str(self._state))} corral logs")


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
    command = [sys.executable, "-c", "import time; time.sleep(3600)"]
    # Of a session of its own: Ctrl-C is the drill's.
    with subprocess.Popen(command, start_new_session=True, stderr=subprocess.DEVNULL) as process:
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
