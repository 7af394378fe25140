"""Inventories for the plays of playbooks/check.yml: many cases in one run, on machines that cannot exist (RFC 2606)."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from corral import paths

ANSIBLE = paths.REPOSITORY / "ansible"
EXAMPLE = ANSIBLE / "inventories" / "example"
GROUPS: dict[str, dict[str, Any]] = {
    group: yaml.safe_load((EXAMPLE / "group_vars" / f"{group}.yml").read_text(encoding="utf-8"))
    for group in ("store", "gpu_nodes", "llama_hosts")
}
"""The variables of each group of the example."""
EMPTY = object()
"""The value of a variable without one: `name:`."""

_FAILURE = re.compile(r"^(?:fatal|failed): \[([^\] ]+)[^\n]*=> *\n((?: +[^\n]*\n| *\n(?= ))*)", re.MULTILINE)


def run_playbook(playbook: Path, inventory: Path, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run ansible-playbook in ansible/ with an ssh that fails; *folder* takes its temporary files."""
    closed = {"ANSIBLE_HOME": str(folder / "ansible"), "ANSIBLE_SSH_EXECUTABLE": "/bin/false", "LC_ALL": "C.UTF-8"}
    return subprocess.run(
        [sys.executable, "-m", "ansible", "playbook", "--inventory", str(inventory), str(playbook)],
        cwd=ANSIBLE,
        env=os.environ | closed | {"ANSIBLE_NOCOLOR": "1"} | environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


def flat(text: str) -> str:
    """*text* with every run of blanks and line ends as one blank."""
    return re.sub(r"\s+", " ", text.replace("\\n", " "))


def check_cases(
    refused: Mapping[str, tuple[str, Mapping[str, Any], list[str]]],
    accepted: Mapping[str, tuple[str, Mapping[str, Any]]],
    folder: Path,
) -> dict[str, str]:
    """Check the variables of all cases in one run, which goes on after a refusal.

    Refused cases share a host where no two have the same variable, since their words name theirs.  An accepted case has
    its own, and one with a value that is empty or a template: it can end the check before the rule of another case.

    Args:
        refused: case → group, the variables that differ from the example's (None removes one, EMPTY has no value),
            and words of the refusal.
        accepted: case → group and variables.
        folder: for the inventory and Ansible's temporary files.

    Returns:
        Case → the refusals of its host with "HOST" for the host's name, "" for an accepted case.

    Raises:
        AssertionError: a host was not checked, or Ansible tried to connect.
    """
    hosts = [(group, dict(changed), [case]) for case, (group, changed) in accepted.items()]
    own = len(hosts)
    for case, (group, changed, _) in sorted(refused.items(), key=lambda one: not _may_end(one[1][1])):
        if _may_end(changed):
            hosts.append((group, dict(changed), [case]))
            own = len(hosts)
            continue
        for other, variables, cases in hosts[own:]:
            if other == group and not changed.keys() & variables.keys():
                variables.update(changed)
                cases.append(case)
                break
        else:
            hosts.append((group, dict(changed), [case]))
    inventory: dict[str, Any] = {group: {"hosts": {}} for group in GROUPS}
    for number, (group, changed, _) in enumerate(hosts):
        variables = {"ansible_host": "machine.invalid"} | GROUPS[group] | changed
        inventory[group]["hosts"][f"case-{number}"] = {
            name: None if value is EMPTY else value for name, value in variables.items() if value is not None
        }
    if not inventory["store"]["hosts"]:  # the roles of the GPU node depend on whether there is a store
        inventory["store"]["hosts"]["nas"] = {"ansible_host": "machine.invalid"} | GROUPS["store"]
    (folder / "hosts.json").write_text(json.dumps(inventory), encoding="utf-8")
    # Not the role's groups.yml, which refuses that many stores.
    tasks = [{"ansible.builtin.import_role": {"name": "inventory_check", "tasks_from": "variables"}}]
    play = {"name": "Cases", "hosts": "all", "gather_facts": False, "ignore_errors": True, "tasks": tasks}
    (folder / "play.json").write_text(json.dumps([play]), encoding="utf-8")
    done = run_playbook(folder / "play.json", folder / "hosts.json", folder, ANSIBLE_ANY_ERRORS_FATAL="false")
    text = done.stdout + done.stderr
    names = [f"case-{number}" for number in range(len(hosts))]
    assert set(re.findall(r"^(case-\d+) +: ok=", done.stdout, re.MULTILINE)) == set(names), text
    assert not re.search(r"unreachable=[1-9]", done.stdout), text
    found = dict.fromkeys(names, "")
    for host, block in _FAILURE.findall(done.stdout):
        found[host] += flat(str(yaml.safe_load(block)["msg"])).replace(host, "HOST")
    return {case: found[name] for name, (_, _, cases) in zip(names, hosts, strict=True) for case in cases}


def _may_end(changed: Mapping[str, Any]) -> bool:
    """Whether a value of *changed* is empty or a template, by itself or within a list or a mapping."""
    return EMPTY in changed.values() or "{{" in str(changed)
