"""Time the homelab's stack: plans on an empty state, and with --cluster an apply up to the first answer.

`terraform plan` with the operator's four models (goal: 1.5 s) and with 100 generated ones (goal: 4 s), both locked for
the benchmark and planned in a copy, beside a plan of an empty module with the same provider.  `user+sys` is the time of
all processors, the provider's included: on a busy machine it is more meaningful than the clock.

With --cluster (as root): tiny models on a throwaway Kubernetes; an apply on an empty cluster until a text model
has answered through the Service (goal: 30 s), and a destroy (goal: 15 s), beside a pod that only starts and ends.

    python tools/benchmarks/homelab.py [--rounds 5] [--models 100] [--small] [--cluster]
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1])]

from kubernetes import client  # noqa: E402
from plan_100_models import write_catalog  # noqa: E402

from corral.catalog import catalog as catalogs  # noqa: E402
from corral.cluster.client import connect  # noqa: E402
from corral.cluster.port_forward import forwarded  # noqa: E402
from corral.errors import CorralError  # noqa: E402
from corral.lock import lock as locks  # noqa: E402
from corral.lock.lock import Lock  # noqa: E402
from corral.paths import REPOSITORY  # noqa: E402
from corral.terraform.program import find_terraform  # noqa: E402
from dev import terraform_provider  # noqa: E402
from tests.support import homelab as operators  # noqa: E402
from tests.support.cluster import pods, throwaway  # noqa: E402
from tests.support.cluster.cluster import Cluster  # noqa: E402
from tests.support.cluster.homelab import Homelab, homelab  # noqa: E402
from tests.support.cluster.place import Place  # noqa: E402
from tests.support.engine_process import chat  # noqa: E402

IMAGES = {"llama-swap": "example/llama-swap:v1", "fetch": "example/python:3.13-slim", "door": "example/caddy:2"}
GOAL_FOUR_S, GOAL_MANY_S, GOAL_ANSWER_S, GOAL_DESTROY_S = 1.5, 4.0, 30.0, 15.0
STACK = Path("terraform") / "stacks" / "homelab"
CLUSTER_ROUNDS = 3
EMPTY = """\
terraform {
  required_providers {
    kubernetes = {
      source  = "hashicorp/kubernetes"
      version = ">= 3.0, < 4"
    }
  }
}

provider "kubernetes" {
  config_path = "KUBECONFIG"
}
"""
KUBECONFIG = {  # a plan on an empty state reads it, and speaks to no cluster
    "apiVersion": "v1",
    "kind": "Config",
    "current-context": "none",
    "contexts": [{"name": "none", "context": {"cluster": "none", "user": "none"}}],
    "clusters": [{"name": "none", "cluster": {"server": "https://127.0.0.1:1"}}],
    "users": [{"name": "none", "user": {}}],
}
NODE = "node: k8s-node1\n"


@dataclass(frozen=True)
class Row:
    """One measured step: medians in seconds, and the most that it may take by the clock."""

    what: str
    wall: float
    processors: float | None
    goal: float | None = None

    @property
    def met(self) -> bool:
        return self.goal is None or self.wall <= self.goal


def main() -> int:
    """Print the medians; return 1 when a goal is missed, 3 when it cannot be measured here."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--models", type=int, default=100)
    parser.add_argument("--small", action="store_true", help="three rounds, as CI runs it")
    parser.add_argument("--cluster", action="store_true", help="apply and destroy on a throwaway cluster too; root")
    args = parser.parse_args()
    rounds = min(3, args.rounds) if args.small else args.rounds
    try:
        if not (terraform_provider.users_own() or terraform_provider.registry_answers()):
            os.environ["TF_CLI_CONFIG_FILE"] = str(terraform_provider.mirrored())
        print(f"{platform.machine()}, {os.cpu_count()} cores, median of {rounds}, load {os.getloadavg()[0]:.1f}")
        rows = _plans(rounds, args.models)
        _show(rows)
        if args.cluster:
            print(f"a throwaway Kubernetes, tiny models, median of {CLUSTER_ROUNDS}, load {os.getloadavg()[0]:.1f}")
            applied = _applies(CLUSTER_ROUNDS)
            _show(applied)
            rows += applied
    except CorralError as error:
        print(f"{error.message}\n{error.next_step}", file=sys.stderr)
        return error.exit_code
    return 0 if all(row.met for row in rows) else 1


def _show(rows: list[Row]) -> None:
    """The first row is the reference."""
    for row in rows:
        processors = f"{row.processors:6.2f} s user+sys" if row.processors is not None else ""
        ratio = f"{row.wall / rows[0].wall:5.1f} x {rows[0].what}"
        goal = f"; goal: {row.goal:g} s" if row.goal else ""
        print(f"{row.what:24} {row.wall:6.2f} s  {processors:17}  {ratio}{goal}")


def _plans(rounds: int, count: int) -> list[Row]:
    with tempfile.TemporaryDirectory(prefix="corral-homelab-") as scratch:
        folder = Path(scratch)
        stack = _copy(folder)
        four = _name_images(operators.write_catalog(folder / "four"))
        many = write_catalog(folder / "many", count)
        card = many / "cards" / "t4.yaml"
        card.write_text(NODE + card.read_text(encoding="utf-8"), encoding="utf-8")
        _name_images(many)
        kubeconfig = folder / "kubeconfig"
        kubeconfig.write_text(json.dumps(KUBECONFIG), encoding="utf-8")
        empty = folder / "empty"
        empty.mkdir()
        (empty / "main.tf").write_text(EMPTY.replace("KUBECONFIG", str(kubeconfig)), encoding="utf-8")

        plan = [find_terraform(), f"-chdir={stack}", "plan", "-input=false", f"-var=kubeconfig={kubeconfig}"]
        plan.append('-var=store={nfs={server="nas.home.arpa",path="/srv/nfs-ssd/llamacpp"}}')
        steps = {
            "empty module": (None, [find_terraform(), f"-chdir={empty}", "plan", "-input=false"]),
            "4 models": (GOAL_FOUR_S, [*plan, f"-var=catalog={four}"]),
            f"{count} models": (GOAL_MANY_S, [*plan, f"-var=catalog={many}"]),
        }
        for root in (empty, stack):
            _run([find_terraform(), f"-chdir={root}", "init", "-input=false"])
        times: dict[str, list[tuple[float, float]]] = {what: [] for what in steps}
        for number in range(rounds + 1):
            for what, (_, command) in steps.items():
                took = _run(command)
                if number:  # the first reads the provider from the disk
                    times[what].append(took)
        return [Row(what, *_medians(times[what]), goal) for what, (goal, _) in steps.items()]


def _copy(folder: Path) -> Path:
    """The stack with all that it reads, in *folder*: without an operator's state, backend or terraform.tfvars."""
    ignored = shutil.ignore_patterns(".terraform*", "*.tfstate*", "*.tfvars", "*_override.tf", "__pycache__", "tests")
    for part in (STACK, Path("terraform/modules"), Path("tools/corral/agent")):
        shutil.copytree(REPOSITORY / part, folder / part, ignore=ignored)
    return folder / STACK


def _name_images(catalog: Path) -> Path:
    """Add ``images.yaml`` to *catalog*, and the images and the cards as they are now to its lock."""
    names = {name: f"{image}@sha256:{'0' * 64}" for name, image in IMAGES.items()}
    (catalog / "images.yaml").write_text(json.dumps(names), encoding="utf-8")
    wanted, models = catalogs.load(catalog), locks.read(catalog / "lock.json").models
    lock = Lock(sources=dict(wanted.sources), images=names, cards=dict(wanted.cards), models=models)
    locks.write(wanted.lock_file, lock)
    return catalog


def _run(command: list[str]) -> tuple[float, float]:
    """Seconds by the clock, and of all processors, of one run of *command* and what it starts."""
    environment = os.environ | {"CHECKPOINT_DISABLE": "1", "TF_IN_AUTOMATION": "1"}
    before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    wall, after = time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
    return wall, after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def _medians(times: list[tuple[float, float]]) -> tuple[float, float]:
    walls, processors = zip(*times, strict=True)
    return statistics.median(walls), statistics.median(processors)


def _applies(rounds: int) -> list[Row]:
    with _cluster() as cluster, tempfile.TemporaryDirectory(prefix="corral-homelab-") as scratch:
        times: Mapping[str, list[float]] = {"bare pod": [], "apply to first answer": [], "destroy": []}
        with homelab(cluster, Path(scratch), "llama-cpp") as lab:
            for number in range(rounds):
                times["bare pod"].append(_timed(_bare_pod, cluster, f"bare-{number}"))
                times["apply to first answer"].append(_timed(_first_answer, lab))
                times["destroy"].append(_timed(Homelab.destroy, lab))
                for left in lab.store.iterdir():  # destroy leaves the models; the next round fetches them again
                    shutil.rmtree(left) if left.is_dir() and not left.is_symlink() else left.unlink()
        goals = {"apply to first answer": GOAL_ANSWER_S, "destroy": GOAL_DESTROY_S}
        return [Row(what, statistics.median(taken), None, goals.get(what)) for what, taken in times.items()]


@contextmanager
def _cluster() -> Iterator[Cluster]:
    cluster = throwaway.up(keep=False)
    try:
        yield cluster
    finally:
        cluster.api.close()
        if cluster.folder:
            throwaway.down(Place(int(cluster.folder.name)))


def _timed(step: Callable[..., object], *of_what: object) -> float:
    begin = time.perf_counter()
    step(*of_what)
    return time.perf_counter() - begin


def _bare_pod(cluster: Cluster, name: str) -> None:
    phase, output = pods.run(cluster, "default", pods.pod(name, cluster.images["fetch"], "python3", "-c", "pass"))
    client.CoreV1Api(cluster.api).delete_namespaced_pod(name, "default", grace_period_seconds=0)
    if phase != "Succeeded":
        raise SystemExit(f"a pod that does nothing failed: {output}")


def _first_answer(lab: Homelab) -> None:
    lab.apply()
    with forwarded(connect(lab.cluster.kubeconfig, lab.cluster.context), lab.namespace) as address:
        answer = chat(address, "Are you there?", model="tiny-text")["message"]["content"]
    if answer != "OK":
        raise SystemExit(f"tiny-text answered {answer!r} instead of 'OK'")


if __name__ == "__main__":
    sys.exit(main())
