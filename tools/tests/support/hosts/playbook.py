"""Run Ansible on test hosts, and read what it did."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from corral import paths
from tests.support.hosts.host import Machine
from tests.support.hosts.room import FOLDER

ANSIBLE = paths.REPOSITORY / "ansible"

_RECAP = re.compile(r"^(\S+)\s+: ok=(\d+)\s+changed=(\d+)\s+unreachable=(\d+)\s+failed=(\d+)", re.MULTILINE)


@dataclass(frozen=True)
class Played:
    """What one run of ansible-playbook came to."""

    text: str
    """Everything that it said, the differences included."""
    returncode: int
    changed: Mapping[str, int]
    """Changed tasks of each host that took part."""
    failed: frozenset[str]
    """Hosts that failed or could not be reached."""

    def succeeded(self) -> Played:
        """Itself.

        Raises:
            AssertionError: a host failed, none took part, or Ansible warned.
        """
        assert self.returncode == 0, self.text
        assert self.changed, self.text
        assert not self.failed, self.text
        assert not re.search(r"^\[(DEPRECATION )?WARNING\]", self.text, re.MULTILINE), self.text
        return self

    def refused(self, *words: str) -> Played:
        """Itself.

        Raises:
            AssertionError: it did not fail on every host, it changed something, or its text has not all of *words*.
        """
        assert self.returncode != 0, self.text
        assert not any(self.changed.values()), self.text
        plain = re.sub(r"\s+", " ", self.text)
        assert [word for word in words if word not in plain] == [], self.text
        return self


def play(
    playbook: Path,
    groups: Mapping[str, Sequence[Machine]],
    *options: str,
    variables: Mapping[str, Any] | None = None,
    environment: Mapping[str, str] | None = None,
    limit_s: float = 280,
) -> Played:
    """Run *playbook* on the hosts of *groups* (inventory group → machines), for *limit_s* seconds at most.

    *variables* are extra variables, *options* those of ansible-playbook.
    """
    inventory = FOLDER / "inventory.json"
    inventory.write_text(json.dumps(_inventory(groups)), encoding="utf-8")
    done = subprocess.run(
        [
            *(sys.executable, "-m", "ansible", "playbook", "--diff", "--inventory", str(inventory)),
            *("--extra-vars", json.dumps(dict(variables or {})), *options, str(playbook)),
        ],
        cwd=ANSIBLE,
        env=os.environ
        | {
            "ANSIBLE_CONFIG": str(ANSIBLE / "ansible.cfg"),
            "ANSIBLE_HOME": str(FOLDER / "ansible"),
            "ANSIBLE_ROLES_PATH": str(ANSIBLE / "roles"),
            "ANSIBLE_NOCOLOR": "1",
            "ANSIBLE_RETRY_FILES_ENABLED": "0",
            "LC_ALL": "C.UTF-8",
        }
        | dict(environment or {}),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=limit_s,
        check=False,
    )
    recap = {host: tuple(map(int, counts)) for host, *counts in _RECAP.findall(done.stdout)}
    return Played(
        text=done.stdout + done.stderr,
        returncode=done.returncode,
        changed={host: counts[1] for host, counts in recap.items()},
        failed=frozenset(host for host, counts in recap.items() if counts[2] or counts[3]),
    )


def play_role(
    role: str | Sequence[str],
    machines: Sequence[Machine],
    *options: str,
    variables: Mapping[str, Any] | None = None,
    tasks_from: str = "main",
    limit_s: float = 280,
) -> Played:
    """Run one role, or several in turn, on *machines*: all of it or one file of its tasks; the rest as for ``play``."""
    roles = [role] if isinstance(role, str) else list(role)
    playbook = FOLDER / "play.json"
    tasks = [{"ansible.builtin.import_role": {"name": name, "tasks_from": tasks_from}} for name in roles]
    plays = [{"name": "Test", "hosts": "all", "become": True, "gather_facts": False, "tasks": tasks}]
    playbook.write_text(json.dumps(plays), encoding="utf-8")
    return play(playbook, {"test": machines}, *options, variables=variables, limit_s=limit_s)


def _inventory(groups: Mapping[str, Sequence[Machine]]) -> dict[str, Any]:
    return {
        group: {"hosts": {machine.name: _connection(machine) for machine in machines}}
        for group, machines in groups.items()
    }


def _connection(machine: Machine) -> dict[str, Any]:
    return {
        "ansible_host": machine.address,
        "ansible_user": machine.user,
        "ansible_python_interpreter": "/usr/bin/python3",
        "ansible_ssh_args": " ".join(machine.room.ssh_options()),
    }
