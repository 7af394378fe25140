"""The real seating module over many catalogs in one run of Terraform."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from corral.paths import REPOSITORY
from corral.terraform.program import find_terraform

MODULE = REPOSITORY / "terraform" / "modules" / "seating"
MANY = Path("tests", "many")
_RULE = re.compile(r"^  precondition \{.*?^  \}\n", re.MULTILINE | re.DOTALL)


class Seating:
    """``terraform/modules/seating/tests/many``; Terraform writes into *folder* only.

    A catalog is ``{"cards": …, "models": …}`` as in lock.json; further keys are passed over.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._variables, self._file = folder / "catalogs.tfvars.json", folder / "plan"
        self._environment = os.environ | {"TF_DATA_DIR": str(folder / "data"), "CHECKPOINT_DISABLE": "1"}
        self._run(MODULE / MANY, "init", "-backend=false", "-input=false")
        # A plan in which a rule is broken has no output.
        self._without_rules = Path(shutil.copytree(MODULE, folder / "without-rules"))
        for file in self._without_rules.glob("*.tf"):
            file.write_text(_RULE.sub("", file.read_text(encoding="utf-8")), encoding="utf-8")

    def charts(self, catalogs: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
        """The chart of each of *catalogs*, by name, also of those whose set does not fit."""
        self._plan(self._without_rules / MANY, catalogs)
        plan = json.loads(self._run(self._without_rules / MANY, "show", "-json", str(self._file)))
        charts: dict[str, Any] = plan["planned_values"]["outputs"]["charts"]["value"]
        assert charts.keys() == catalogs.keys()
        return charts

    def refusals(self, catalogs: Mapping[str, Mapping[str, Any]]) -> list[str]:
        """The lines of every rule that ``terraform plan`` finds broken, over all *catalogs*: one for each card."""
        answer = self._plan(MODULE / MANY, catalogs, may_fail=True)
        events = [json.loads(line) for line in answer.splitlines() if line.startswith('{"@')]
        found = [event["diagnostic"] for event in events if event.get("diagnostic", {}).get("severity") == "error"]
        assert {one["summary"] for one in found} <= {"Module output value precondition failed"}, answer
        return [line for one in found for line in one["detail"].splitlines()]

    def _plan(self, root: Path, catalogs: Mapping[str, Mapping[str, Any]], *, may_fail: bool = False) -> str:
        self._variables.write_text(json.dumps({"catalogs": catalogs}), encoding="utf-8")
        words = (
            "-json",
            "-input=false",
            "-lock=false",  # there is no state; other workers plan in the same folder
            f"-var-file={self._variables}",
            f"-out={self._file}",
        )
        return self._run(root, "plan", *words, may_fail=may_fail)

    def _run(self, root: Path, *words: str, may_fail: bool = False) -> str:
        done = subprocess.run(
            [find_terraform(), *words],
            cwd=root,
            env=self._environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert may_fail or done.returncode == 0, done.stdout + done.stderr
        return done.stdout
