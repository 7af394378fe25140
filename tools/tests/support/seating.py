"""The real seating module over many catalogs in one run of Terraform."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from corral.paths import REPOSITORY
from corral.terraform.program import find_terraform

ROOT = REPOSITORY / "terraform" / "modules" / "seating" / "tests" / "many"


class Seating:
    """``terraform/modules/seating/tests/many``; Terraform writes into *folder* only.

    A catalog is ``{"cards": …, "models": …}`` as in lock.json; further keys are passed over.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._variables = folder / "catalogs.tfvars.json"
        self._state = folder / "terraform.tfstate"
        self._environment = os.environ | {"TF_DATA_DIR": str(folder / "data"), "CHECKPOINT_DISABLE": "1"}
        self._run("init", "-backend=false", "-input=false")

    def charts(self, catalogs: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
        """The chart of each of *catalogs*, by name, also of those whose set does not fit."""
        answer = self._run("console", *self._inputs(catalogs), stdin="jsonencode(local.charts)\n")
        charts: dict[str, Any] = json.loads(json.loads(answer))
        assert charts.keys() == catalogs.keys()
        return charts

    def refusals(self, catalogs: Mapping[str, Mapping[str, Any]]) -> list[str]:
        """The messages of every rule that ``terraform plan`` finds broken, over all *catalogs*."""
        answer = self._run("plan", "-json", "-input=false", *self._inputs(catalogs), may_fail=True)
        events = [json.loads(line) for line in answer.splitlines() if line.startswith('{"@')]
        found = [event["diagnostic"] for event in events if event.get("diagnostic", {}).get("severity") == "error"]
        assert {one["summary"] for one in found} <= {"Resource precondition failed"}, answer
        return [one["detail"] for one in found]

    def _inputs(self, catalogs: Mapping[str, Mapping[str, Any]]) -> tuple[str, str]:
        self._variables.write_text(json.dumps({"catalogs": catalogs}), encoding="utf-8")
        return f"-var-file={self._variables}", f"-state={self._state}"

    def _run(self, *words: str, stdin: str | None = None, may_fail: bool = False) -> str:
        done = subprocess.run(
            [find_terraform(), *words],
            cwd=ROOT,
            env=self._environment,
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
        )
        assert may_fail or done.returncode == 0, done.stdout + done.stderr
        return done.stdout
