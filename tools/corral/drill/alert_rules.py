"""The alerts of cards and stores as files, rendered by terraform/modules/alerts."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import yaml

from corral.engine import environment
from corral.errors import CannotRun
from corral.paths import REPOSITORY
from corral.terraform.program import find_terraform
from corral.terraform.runner import Terraform

_MODULE = REPOSITORY / "terraform" / "modules" / "alerts"


def render_rules(cards: Sequence[str], folder: Path, seal: str, stores: Sequence[str] = ()) -> tuple[str, str]:
    """The rules for Prometheus about *cards* and *stores*, and the ``inhibit_rules`` of Alertmanager, as YAML.

    *seal* is that of the lock that the exporters should have.  The new *folder* holds a copy of the module, and
    Terraform's own files.

    Raises:
        ProgramMissing: Terraform is missing or too old.
        CannotRun: it failed.
    """
    shutil.copytree(_MODULE, folder, ignore=shutil.ignore_patterns(".terraform*", "tests", "*.tfstate*"))
    (folder / "terraform.tfvars.json").write_text(
        json.dumps({"cards": list(cards), "seal": seal, "stores": list(stores)}), encoding="utf-8"
    )
    variables = environment.allowed(environment.TERRAFORM)
    terraform = Terraform(find_terraform(), folder, variables, lambda failed: CannotRun(failed.message))
    terraform.run("init")
    outputs = terraform.applied()
    return str(outputs["rules"]), str(outputs["inhibit_rules"])


def with_waits(rules: str, waits: Mapping[str, int]) -> str:
    """*rules* (YAML), in which each alert of *waits* waits for that many seconds, and not for as long as they say."""
    document = yaml.safe_load(rules)
    found = {rule.get("alert"): rule for group in document["groups"] for rule in group["rules"]}
    for alert, seconds in waits.items():
        found[alert]["for"] = f"{seconds}s"
    return yaml.safe_dump(document)
