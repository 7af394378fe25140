"""Run Ansible on test hosts, and read what it did.

Mitogen runs the tasks in one Python on each host, where Ansible starts one for every task, and Ansible itself is loaded
once (ansible_fork.py); with PLAIN=1 all is as operators have it.
"""

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

import ansible_mitogen
import yaml

from corral import paths
from tests.support.hosts import ansible_fork
from tests.support.hosts.host import Machine
from tests.support.hosts.room import FOLDER

ANSIBLE = paths.REPOSITORY / "ansible"

_RECAP = re.compile(r"^(\S+)\s+: ok=(\d+)\s+changed=(\d+)\s+unreachable=(\d+)\s+failed=(\d+)", re.MULTILINE)
_KNOWN = (
    # The pods' user needs no account on the store; in check mode Ansible takes that for an omission.
    r"failed to look up (user with uid|group with gid) 10001\b",
    # Of Mitogen; the second comes after every other.
    r"Use of strategy plugins not included in ansible\.builtin are deprecated",
    r"Deprecation warnings can be disabled",
)
_WARNING = re.compile(rf"^\[(DEPRECATION )?WARNING\]: (?!{'|'.join(_KNOWN)})", re.MULTILINE)
_MITOGEN = {
    "ANSIBLE_STRATEGY": "mitogen_linear",
    "ANSIBLE_STRATEGY_PLUGINS": str(Path(ansible_mitogen.__file__).parent / "plugins" / "strategy"),
}
_FAILURE = re.compile(r"^(?:fatal|failed): \[([^\] ]+)[^\n]*=> *\n((?: +[^\n]*\n| *\n(?= ))*)", re.MULTILINE)
CONNECT_LIMIT_S = "60"
"""The virtual machine is emulated: beside other work its ssh takes longer to answer than the usual 10 s."""
AS_OPERATORS_DO = {"ANSIBLE_STRATEGY": "linear"}
"""Environment of a play whose every task is a program of its own."""


@dataclass(frozen=True)
class Played:
    """What one run of ansible-playbook came to."""

    text: str
    """The complete output, including the differences."""
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
        assert not _WARNING.search(self.text), self.text
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
    group_variables: Mapping[str, Mapping[str, Any]] | None = None,
    environment: Mapping[str, str] | None = None,
    limit_s: float = 280,
) -> Played:
    """Run *playbook* on the hosts of *groups* (inventory group → machines), for *limit_s* seconds at most.

    *variables* are extra variables, *group_variables* those of an inventory's groups, *options* those of
    ansible-playbook, *environment* more of its environment: ``AS_OPERATORS_DO`` for what Mitogen cannot.
    """
    inventory = {
        group: {
            "hosts": {machine.name: _connection(machine) for machine in machines},
            "vars": dict((group_variables or {}).get(group, {})),
        }
        for group, machines in groups.items()
    }
    return _run(playbook, inventory, *options, variables=variables, environment=environment, limit_s=limit_s)


def _run(
    playbook: Path,
    inventory: Mapping[str, Any],
    *options: str,
    variables: Mapping[str, Any] | None = None,
    environment: Mapping[str, str] | None = None,
    limit_s: float,
) -> Played:
    file = FOLDER / "inventory.json"
    file.write_text(json.dumps(inventory), encoding="utf-8")
    words = [
        "--diff",
        "--inventory",
        str(file),
        "--extra-vars",
        json.dumps(dict(variables or {})),
        *options,
        str(playbook),
    ]
    settings = {
        "ANSIBLE_CONFIG": str(ANSIBLE / "ansible.cfg"),
        "ANSIBLE_HOME": str(FOLDER / "ansible"),
        "ANSIBLE_ROLES_PATH": str(ANSIBLE / "roles"),
        "ANSIBLE_NOCOLOR": "1",
        "ANSIBLE_RETRY_FILES_ENABLED": "0",
        "ANSIBLE_TIMEOUT": CONNECT_LIMIT_S,
        "LC_ALL": "C.UTF-8",
    }
    if os.environ.get("PLAIN"):
        done = subprocess.run(
            [sys.executable, "-m", "ansible", "playbook", *words],
            cwd=ANSIBLE,
            env=os.environ | settings | AS_OPERATORS_DO | dict(environment or {}),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=limit_s,
            check=False,
        )
    else:
        settings |= _MITOGEN | dict(environment or {})
        done = ansible_fork.run(words, ANSIBLE, settings, logs=FOLDER, limit_s=limit_s)
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
    return play(_playbook(roles, tasks_from), {"test": machines}, *options, variables=variables, limit_s=limit_s)


def play_cases(
    role: str,
    machines: Sequence[Machine],
    cases: Mapping[str, Mapping[str, Any]],
    *,
    variables: Mapping[str, Any] | None = None,
    tasks_from: str = "main",
    limit_s: float = 280,
) -> dict[str, Played]:
    """Run one role on every machine in several *cases*, which are variables, in one run of Ansible.

    For Ansible each case on each machine is a host; one that fails does not stop the others.

    Returns:
        What each case came to; its text holds how its tasks failed, and nothing else.
    """
    aliases = {f"{machine.name}--{n}": (machine, case) for n, case in enumerate(cases) for machine in machines}
    hosts = {alias: _connection(machine) | dict(cases[case]) for alias, (machine, case) in aliases.items()}
    played = _run(
        _playbook([role], tasks_from),
        {"test": {"hosts": hosts}},
        variables=variables,
        environment={"ANSIBLE_ANY_ERRORS_FATAL": "false"},
        limit_s=limit_s,
    )
    assert played.changed.keys() == hosts.keys(), played.text
    return {case: _of_case(played, {a: m.name for a, (m, c) in aliases.items() if c == case}) for case in cases}


def _of_case(played: Played, machines: Mapping[str, str]) -> Played:
    messages = [failure for alias, failure in failures(played.text) if alias in machines]
    return Played(
        text="\n".join(messages),
        returncode=1 if played.failed & machines.keys() else 0,
        changed={machines[alias]: changed for alias, changed in played.changed.items() if alias in machines},
        failed=frozenset(machines[alias] for alias in machines if alias in played.failed),
    )


def failures(text: str) -> list[tuple[str, str]]:
    """The host and the message of every failed task in Ansible's output, in order."""
    found = []
    for host, block in _FAILURE.findall(text):
        result = yaml.safe_load(block) or {}
        texts = [str(result.get(key, "")) for key in ("msg", "stdout", "stderr")]
        found.append((host, "\n".join(filter(None, texts))))
    return found


def _playbook(roles: Sequence[str], tasks_from: str) -> Path:
    playbook = FOLDER / "play.json"
    tasks = [{"ansible.builtin.import_role": {"name": name, "tasks_from": tasks_from}} for name in roles]
    plays = [{"name": "Test", "hosts": "all", "become": True, "gather_facts": False, "tasks": tasks}]
    playbook.write_text(json.dumps(plays), encoding="utf-8")
    return playbook


def _connection(machine: Machine) -> dict[str, Any]:
    return {
        "ansible_host": machine.address,
        "ansible_user": machine.user,
        "ansible_python_interpreter": "/usr/bin/python3",
        "ansible_ssh_args": " ".join(machine.room.ssh_options()),
    }
