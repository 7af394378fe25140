"""Measure what the exporter of a node costs, beside an exporter of the same library without a metric.

    resident memory       <= 40 MB
    processor, at a scrape every 15 s   <= 1 % of a core
    a scrape, p50         <= 200 ms

with 200 pods on the node, of which every one has a process on the card; nvidia-smi is a stand-in.  It records, and idle
models of the card yield.  The list of pods is parsed anew every 15 s, as in a cluster.  The program runs from its bare
files and one wheel, as its ConfigMap has them.

    python tools/benchmarks/exporter.py [--small] [--scrapes 40] [--pods 200]
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from corral import exporter as package
from corral.drill.stand_in import StandInCard
from corral.exporter import driver
from corral.paths import REPOSITORY

GOAL_RESIDENT_BYTES, GOAL_CORE, GOAL_SCRAPE_S = 40e6, 0.01, 0.2
EVERY_S = 15.0
WHEEL = next((REPOSITORY / "terraform" / "modules" / "card-exporter").glob("*.whl"))
MIB = 1 << 20
PROGRAM = """
import json, sys
from pathlib import Path
from exporter import __main__, containers, pods

listed = Path(sys.argv[2]).read_text()
uids = json.loads(Path(sys.argv[3]).read_text())
pods.ApiServer.pods = lambda self: tuple(pods._pod(one, self._variables) for one in json.loads(listed)["items"])
containers.read_cgroups = lambda pid, proc: f"0::/kubepods/burstable/pod{uids[str(pid)]}/{pid:064x}\\n"
sys.exit(__main__.main(sys.argv[1:2]))
"""
"""The program without an API server, and with a control group of a pod for each process of this machine."""
REFERENCE = """
from prometheus_client import CollectorRegistry, start_http_server
server, thread = start_http_server(0, addr="127.0.0.1", registry=CollectorRegistry())
print("port", server.server_port, flush=True)
thread.join()
"""


@dataclass(frozen=True)
class Cost:
    """What one program took: bytes, seconds of processor and of the clock for a scrape."""

    resident: int
    cpu_s: float
    p50_s: float
    series: int


@contextmanager
def running(code: str, folder: Path, *words: str) -> Iterator[tuple[psutil.Process, str]]:
    """The program *code*, and the address of its metrics."""
    environment = {"PATH": f"{folder}:{os.environ['PATH']}", "PYTHONPATH": f"{folder}:{WHEEL}", "NODE_NAME": "node"}
    command = [sys.executable, "-S", "-s", "-c", code, *words]
    with subprocess.Popen(command, env=environment, cwd=folder, stdout=subprocess.PIPE, text=True) as process:
        try:
            port = process.stdout.readline().split()[-1]
            yield psutil.Process(process.pid), f"http://127.0.0.1:{port}/metrics"
        finally:
            process.kill()


def measure(process: psutil.Process, address: str, scrapes: int) -> Cost:
    """The cost of *scrapes* scrapes, after two that warm up; nvidia-smi's own time is a part of them."""
    seconds, text = [], b""
    for at in range(scrapes + 2):
        if at == 2:
            began = used(process)
        start = time.perf_counter()
        with urllib.request.urlopen(address, timeout=60) as answer:
            text = answer.read()
        seconds.append(time.perf_counter() - start)
    series = sum(not line.startswith(b"#") for line in text.splitlines())
    return Cost(process.memory_info().rss, (used(process) - began) / scrapes, statistics.median(seconds[2:]), series)


def used(process: psutil.Process) -> float:
    """Seconds of processor so far, of the programs that have ended in it too."""
    times = process.cpu_times()
    return times.user + times.system + times.children_user + times.children_system


def prepare(folder: Path, pods: int) -> tuple[str, ...]:
    """The files of the program in *folder*, and its arguments."""
    shutil.copytree(Path(package.__file__).parent, folder / "exporter", ignore=shutil.ignore_patterns("__pycache__"))
    card = StandInCard(folder / "driver", total_mib=15360, driver_mib=300)
    shutil.copy(card.folder / "nvidia-smi", folder)
    for pid in range(1, pods + 1):
        card.hold(pid, "/usr/bin/python3", 10)
    tenants = {"immich-ml": {"budget_bytes": 2100 * MIB, "namespace": "immich", "selector": "app=a0"}}
    tenants["immich-ml"] |= {"unit": None, "expects": {}}
    model = {"group": "main", "seat_bytes": 7030 * MIB, "predicted_bytes": 7030 * MIB, "measured_bytes": None}
    model |= {"latency": []}
    config = {
        "version": 1,
        "listen": {"host": "127.0.0.1", "port": 0},
        "operator_keys": "/nowhere/keys.json",
        "engines": {"namespace": "llama-cpp", "selector": "app.kubernetes.io/name=llama-swap"},
        "door": {"port": 8080, "host": "llama-swap.llama-cpp.svc", "key_file": "/nowhere/key"},
        "records": str(folder / "records"),
        "alertmanager": None,
        "driver_pid_namespace": driver.pid_namespace(),
        "seal": "0" * 64,
        "cards": {
            "t4": {
                "vram_bytes": 15360 * MIB,
                "reserve_bytes": 512 * MIB,
                "yield": {"floor_bytes": 1024 * MIB, "idle_seconds": 60},
                "tenants": tenants,
                "models": {"chat": model},
            }
        },
    }
    uids = {pid: f"{pid:08x}-0000-4000-8000-000000000000" for pid in range(1, pods + 1)}
    items = [
        {
            "metadata": {"uid": uid, "namespace": "immich", "name": f"pod-{pid}", "labels": {"app": f"a{pid % 9}"}},
            "spec": {"containers": [{"name": "main", "image": "x" * 100, "env": [{"name": "A", "value": "b" * 2000}]}]},
        }
        for pid, uid in uids.items()
    ]
    for name, content in {"config.json": config, "pods.json": {"items": items}, "uids.json": uids}.items():
        (folder / name).write_text(json.dumps(content), encoding="utf-8")
    return tuple(str(folder / name) for name in ("config.json", "pods.json", "uids.json"))


def main() -> int:
    """Print each figure beside its goal; 1 when one is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scrapes", type=int, default=40)
    parser.add_argument("--pods", type=int, default=200)
    parser.add_argument("--small", action="store_true", help="10 scrapes")
    args = parser.parse_args()
    scrapes = 10 if args.small else args.scrapes
    with tempfile.TemporaryDirectory(prefix="corral-exporter-") as place:
        folder = Path(place)
        words = prepare(folder, args.pods)
        with running(REFERENCE, folder) as started:
            empty = measure(*started, scrapes)
        with running(PROGRAM, folder, *words) as started:
            cost = measure(*started, scrapes)
    core, reference = cost.cpu_s / EVERY_S, empty.cpu_s / EVERY_S
    load = os.getloadavg()[0]
    print(f"{platform.machine()}, Python {platform.python_version()}, {args.pods} pods, load {load:.1f}")
    print(f"an empty exporter  {empty.resident / 1e6:5.1f} MB  {reference:7.3%} of a core  {empty.p50_s * 1e3:6.1f} ms")
    print(
        f"corral's           {cost.resident / 1e6:5.1f} MB  {core:7.3%} of a core  {cost.p50_s * 1e3:6.1f} ms"
        f"  {cost.series} series; {cost.resident / empty.resident:.2f} x the memory"
    )
    print(f"goals: {GOAL_RESIDENT_BYTES / 1e6:.0f} MB, {GOAL_CORE:.0%} of a core, {GOAL_SCRAPE_S * 1e3:.0f} ms")
    met = cost.resident <= GOAL_RESIDENT_BYTES and core <= GOAL_CORE and cost.p50_s <= GOAL_SCRAPE_S
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
