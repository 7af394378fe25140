"""The examples of docs/deployment-options.md: the stack plans each, and terraform.tfvars.example has each variable."""

from __future__ import annotations

import json
import re
import shutil
import subprocess

import pytest

from corral.paths import REPOSITORY
from dev.terraform_test import terraform

STACK = REPOSITORY / "terraform" / "stacks" / "homelab"
PROVIDER = REPOSITORY / "tools" / "dev" / "terraform_provider.sh"
_ROW = re.compile(r"^\| `(?P<name>\w+)`.*\| `(?P<example>[^`]+)` \|$", re.MULTILINE)
_REQUIRED = 'store = { nfs = { server = "nas", path = "/export/models" } }'
_NOT_COPIED = shutil.ignore_patterns(".terraform*", "*.tfstate*", "*.tfvars", "backend_override.tf", "*.tftest.hcl")

EXAMPLES = [
    (one["name"], one["example"]) for one in _ROW.finditer((REPOSITORY / "docs/deployment-options.md").read_text())
]


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    """The outcome of a plan with each example, by its number; all in one `terraform test`."""
    folder = tmp_path_factory.mktemp("options")
    stack = folder / "terraform" / "stacks" / "homelab"
    shutil.copytree(STACK, stack, ignore=_NOT_COPIED)
    for shared in ("terraform/modules", "tools/corral"):
        (folder / shared).parent.mkdir(parents=True, exist_ok=True)
        (folder / shared).symlink_to(REPOSITORY / shared)
    runs = [
        f'run "example_{number}" {{\n  command = plan\n  variables {{\n    catalog = "tests/catalogs/good"\n'
        f"{'' if name == 'store' else f'    {_REQUIRED}'}\n    {example}\n  }}\n}}\n"
        for number, (name, example) in enumerate(EXAMPLES)
    ]
    (stack / "tests" / "examples.tftest.hcl").write_text('mock_provider "kubernetes" {}\n' + "".join(runs))
    with pytest.MonkeyPatch.context() as patch:
        if configuration := subprocess.run([PROVIDER], capture_output=True, text=True, check=True).stdout.strip():
            patch.setenv("TF_CLI_CONFIG_FILE", configuration)
        data = str(folder / "data")
        done = terraform(stack, data, "init", "-backend=false", "-input=false")
        assert done.returncode == 0, done.stderr
        events = [json.loads(line) for line in terraform(stack, data, "test", "-json").stdout.splitlines()]
        found = {
            run["run"]: run["status"]
            for event in events
            if (run := event.get("test_run", {})).get("progress") == "complete"
        }
        reasons = [str(one) for event in events if (one := event.get("diagnostic", {})).get("severity") == "error"]
        return found, "\n".join(reasons)


def test_there_are_examples():
    assert len(EXAMPLES) == len({name for name, _ in EXAMPLES}) > 0


@pytest.mark.parametrize(("number", "name"), [(number, name) for number, (name, _) in enumerate(EXAMPLES)])
def test_the_stack_plans_the_example(outcomes, number, name):
    found, reasons = outcomes

    assert found.get(f"example_{number}") == "pass", f"{name}: {reasons}"


def test_every_option_has_a_line_in_the_example_of_the_variables_and_a_variable():
    example = (STACK / "terraform.tfvars.example").read_text()
    declared = set(re.findall(r'^variable "(\w+)"', (STACK / "variables.tf").read_text(), re.MULTILINE))

    for name, _ in EXAMPLES:
        assert name in declared
        assert re.search(rf"^#? ?{name} += ", example, re.MULTILINE), name
