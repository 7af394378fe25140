"""Time `terraform plan` of the local stack with 100 generated models (goal: at most 3 s on 2 cores).

Prints the median beside a plan with one model and a bare `terraform version` of the same run, which shows the speed of
the machine.

    python tools/benchmarks/plan_100_models.py [--models 100] [--rounds 7]
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from corral.agent.lock_file import LockedFile, Role
from corral.catalog import catalog
from corral.catalog.argv import llama_server_argv
from corral.catalog.intent import Model
from corral.engine.embedded import ENGINE
from corral.lock import headers, lock
from corral.lock.lock import Lock, LockEntry
from corral.terraform.local import STACK
from corral.terraform.program import find_terraform
from corral.vram.prediction import Bytes, Prediction, Rung
from corral.vram.rules import RULES_VERSION

GOAL_SECONDS = 3.0
CARD = """\
vram_mib: 65536
tenants: {immich-ml: {budget_mib: 2100}, immich-server: {budget_mib: 1200}, frigate: {budget_mib: 2300}}
"""


def write_catalog(folder: Path, count: int) -> Path:
    """*count* models with a fresh lock in *folder*: every fourth takes images, over three groups."""
    (folder / "models").mkdir(parents=True)
    (folder / "cards").mkdir()
    (folder / "cards" / "t4.yaml").write_text(CARD, encoding="utf-8")
    for number in range(count):
        name, vision = f"model-{number:03}", number % 4 == 0
        intent = {
            "source": {"repo": f"example/{name}-GGUF", "quant": "Q4_K_M", "mmproj": "auto" if vision else "none"},
            "card": "t4",
            "context": 1024 * (1 + number % 16),
            "modalities": ["text", "image"] if vision else ["text"],
            "group": f"group-{number % 3}",
            "aliases": [f"alias-{number}-a", f"alias-{number}-b"],
            "args": {"cache-type-k": "q8_0", "chat-template-kwargs": '{"enable_thinking": false}'},
        }
        (folder / "models" / f"{name}.yaml").write_text(json.dumps(intent), encoding="utf-8")
    wanted = catalog.load(folder)
    headers.write(folder, {headers.sha256_of(header): header for header in map(_header, wanted.models)})
    entries = {name: _entry(name, model) for name, model in wanted.models.items()}
    made = Lock(sources=dict(wanted.sources), images={}, cards=dict(wanted.cards), models=entries)
    lock.write(wanted.lock_file, made)
    return folder


def _entry(name: str, model: Model) -> LockEntry:
    roles: tuple[Role, ...] = ("model", "projector") if model.vision else ("model",)
    files = tuple(LockedFile(f"{role}.gguf", role, 5 << 30, _sha256(f"{name} {role}")) for role in roles)
    return LockEntry(
        intent=model.normalised(),
        repo=model.source.repo,
        revision=_sha256(name)[:40],
        licence="apache-2.0",
        files=files,
        argv=tuple(llama_server_argv(name, model, files)),
        predicted=_prediction(name, 6 << 30),
        measured=None,
    )


def _prediction(name: str, gpu_bytes: int) -> Prediction:
    """A prediction as `corral lock` writes it, with a ladder of seven contexts."""
    nothing = {"context": 0, "compute": 0, "projector": 0}
    return Prediction(
        engine=ENGINE,
        rules_version=RULES_VERSION,
        headers=(headers.sha256_of(_header(name)),),
        context_trained=131072,
        gpu=Bytes(weights=gpu_bytes, **nothing),
        host=Bytes(weights=0, **nothing),
        gpu_bytes=gpu_bytes,
        ladder=tuple(Rung(context=2048 << n, gpu_bytes=gpu_bytes + (n << 20), host_bytes=0) for n in range(7)),
    )


def _header(name: str) -> bytes:
    """Bytes with the length and the compression ratio of the header of a model with 400 tensors."""
    return b"GGUF" + b"".join(f"{name} blk.{n}.attn_norm.weight".encode().ljust(56, b"\0") for n in range(400))


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def seconds(command: Sequence[str], environment: dict[str, str]) -> float:
    """Wall-clock time of one run of *command*."""
    start = time.perf_counter()
    subprocess.run(command, env=environment, check=True, capture_output=True)
    return time.perf_counter() - start


def main() -> int:
    """Print the medians; return 1 when the goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--small", action="store_true", help="a third of the rounds, as CI runs it")
    args = parser.parse_args()
    args.rounds = max(3, args.rounds // 3) if args.small else args.rounds

    with tempfile.TemporaryDirectory(prefix="corral-plan-") as scratch:
        folder = Path(scratch)
        environment = os.environ | {"TF_DATA_DIR": str(folder / "data"), "CHECKPOINT_DISABLE": "1"}
        terraform = [find_terraform(), f"-chdir={STACK}"]
        subprocess.run(
            [*terraform, "init", "-input=false", f"-backend-config=path={folder / 'state'}"],
            env=environment,
            check=True,
            capture_output=True,
        )
        plan = [*terraform, "plan", "-input=false", "-var=store=/models"]
        commands = {
            "terraform version": [find_terraform(), "version"],
            "plan, 1 model": [*plan, f"-var=catalog={write_catalog(folder / 'one', 1)}"],
            f"plan, {args.models} models": [*plan, f"-var=catalog={write_catalog(folder / 'many', args.models)}"],
        }
        times: dict[str, list[float]] = {name: [] for name in commands}
        for _ in range(args.rounds):
            for name, command in commands.items():
                times[name].append(seconds(command, environment))

    medians = {name: statistics.median(values) for name, values in times.items()}
    base, one, many = medians.values()
    print(f"{platform.machine()}, {os.cpu_count()} cores, median of {args.rounds}")
    for name, median in medians.items():
        print(f"{name:20} {median:6.3f} s   {median / base:5.1f} x terraform version")
    print(f"{many / one:.1f} x the plan of one model; goal: {GOAL_SECONDS} s on 2 cores")
    return 0 if many <= GOAL_SECONDS else 1


if __name__ == "__main__":
    sys.exit(main())
