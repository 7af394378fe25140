"""Catalogs for the seating module, as data and as folders, and the module itself over many of them in one go."""

from __future__ import annotations

import copy
import json
import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from corral.catalog.digest import intent_sha256, terraform_json
from corral.lock.predicted import RULES_VERSION, Vram
from corral.paths import REPOSITORY
from corral.terraform.program import find_terraform

MIB = 1 << 20
MODULE = REPOSITORY / "terraform" / "modules" / "seating"
RULES_MIB = 117

_ROOT = f"""
locals {{
  sets = jsondecode(file("${{path.module}}/sets.json"))
}}

module "seating" {{
  source   = "{MODULE}"
  for_each = local.sets

  cards    = each.value.cards
  lock     = each.value.lock
  measured = each.value.measured
  models   = each.value.models
}}
"""


def vram(argv: list[str], need_bytes: int, ladder: Mapping[int, int], **more: Any) -> dict[str, Any]:
    """The VRAM rows of a lock entry whose rows and rules add up to *need_bytes*; *ladder* is bytes by context."""
    rules = min(RULES_MIB * MIB, need_bytes // 2)
    rows = {
        "engine": "xllamacpp 2026.10.11549 (llama.cpp b11549)",
        "rules_version": RULES_VERSION,
        "argv_sha256": intent_sha256(argv),
        "headers": [],
        "context_trained": 40960,
        "gpu": {"weights": need_bytes - rules, "context": 0, "compute": 0, "projector": 0},
        "host": {"weights": 0, "context": 0, "compute": 0, "projector": 0},
        "rules": [{"name": "cuda-context-and-pools", "bytes": rules, "source": "a test"}],
        "gpu_total": need_bytes,
        "ladder": [{"context": at, "gpu_total": total, "host_total": 0} for at, total in sorted(ladder.items())],
        "projector_type": None,
        **more,
    }
    return rows | {"rows_sha256": Vram.model_validate(rows).sealed().rows_sha256}


def entry(model_id: str, intent: Mapping[str, Any], need_bytes: int, ladder: Mapping[int, int]) -> dict[str, Any]:
    """The lock entry of a model; an intent's declaration counts where it is more."""
    argv = ["llama-server", "-m", f"${{STORE}}/{model_id}/model.gguf", "-c", str(intent["context"]), "-fa", "on"]
    argv += ["--port", "${PORT}"]
    rows = vram(argv, need_bytes, ladder)
    if "vram" in intent:
        declared = intent["vram"]["declared_mib"]
        rows |= {"gpu_total": max(need_bytes, declared * MIB), "declared": {"mib": declared, "why": "a test"}}
    return {"intent_sha256": intent_sha256(intent), "files": [], "argv": argv, "vram": rows}


@dataclass
class Set:
    """What one seating is computed from, before it is written down.

    Attributes:
        cards: the cards by name.
        models: the intents by id.
        ladders: bytes by context and model; the present context stands in it too.
        measured: bytes that a loaded model took, by id.
    """

    cards: dict[str, dict[str, Any]]
    models: dict[str, dict[str, Any]]
    ladders: dict[str, dict[int, int]]
    measured: dict[str, int] = field(default_factory=dict)

    def changed(self, remedy: Mapping[str, Any], card: str) -> Set:
        """The set after *remedy* was applied, as an operator and `corral lock` would."""
        after = copy.deepcopy(self)
        match remedy["action"]:
            case "context":
                after.models[remedy["model"]]["context"] = remedy["value"]
                after.measured.pop(remedy["model"], None)  # the argv is another one
            case "slot":
                after.models[remedy["model"]]["slot"] = remedy["value"]
            case "tenant_budget":
                after.cards[card]["tenants"][remedy["tenant"]]["budget_mib"] = remedy["value"]
        return after

    def inputs(self) -> dict[str, Any]:
        """The module's inputs."""
        models = {
            model_id: entry(model_id, intent, self.ladders[model_id][intent["context"]], self._rungs(model_id))
            for model_id, intent in self.models.items()
        }
        records = [
            {
                "model": model_id,
                "argv_sha256": models[model_id]["vram"]["argv_sha256"],
                "device": "Tesla T4",
                "gpu_bytes": took,
            }
            for model_id, took in self.measured.items()
        ]
        return {
            "cards": {name: terraform_json(card) for name, card in self.cards.items()},
            "lock": {"version": 1, "models": models},
            "measured": {"version": 1, "measurements": records},
            "models": self.models,
        }

    def _rungs(self, model_id: str) -> dict[int, int]:
        return {at: total for at, total in self.ladders[model_id].items() if at >= 2048 and not at & (at - 1)}


class Seating:
    """The real module, over as many sets as wanted in one run of Terraform."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._environment = os.environ | {"TF_DATA_DIR": str(folder / "data"), "CHECKPOINT_DISABLE": "1"}
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "main.tf").write_text(_ROOT)
        self._write({})
        self._run("init", "-backend=false", "-input=false")

    def charts(self, sets: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
        """The chart of each of *sets* (inputs of the module)."""
        self._write(sets)
        told = self._run("console", stdin="jsonencode({ for name, one in module.seating : name => one.chart })\n")
        charts: dict[str, Any] = json.loads(json.loads(told))
        assert charts.keys() == sets.keys()
        return charts

    def refusals(self, sets: Mapping[str, Mapping[str, Any]]) -> list[str]:
        """What ``terraform plan`` complains of, over all *sets*."""
        self._write(sets)
        told = self._run("plan", "-json", "-input=false", may_fail=True)
        events = [json.loads(line) for line in told.splitlines() if line.startswith('{"@')]
        found = [event["diagnostic"] for event in events if event.get("diagnostic", {}).get("severity") == "error"]
        assert {one["summary"] for one in found} <= {"Resource precondition failed"}
        return [one["detail"] for one in found]

    def _write(self, sets: Mapping[str, Any]) -> None:
        (self._folder / "sets.json").write_text(json.dumps(sets))

    def _run(self, *words: str, stdin: str | None = None, may_fail: bool = False) -> str:
        done = subprocess.run(
            [find_terraform(), *words],
            cwd=self._folder,
            env=self._environment,
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
        )
        assert may_fail or done.returncode == 0, done.stdout + done.stderr
        return done.stdout
