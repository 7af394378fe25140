"""Ansible, loaded once and forked for every play: most of a short play is Python reading Ansible and its plugins.

As a program it is the process that forks: a job a line comes in, and each is answered with its exit code.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import select
import subprocess
import sys
import warnings
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

import psutil

_LOADED = (
    "ansible.cli.playbook",
    "ansible.executor.playbook_executor",
    "ansible.vars.manager",
    "ansible_mitogen.mixins",
    "ansible_mitogen.process",
    "ansible_mitogen.services",
    "ansible_mitogen.strategy",
)


def run(
    words: Sequence[str], folder: Path, settings: Mapping[str, str], *, logs: Path, limit_s: float
) -> subprocess.CompletedProcess[str]:
    """Run ansible-playbook with *words* in *folder* as ``subprocess.run`` would.

    Args:
        words: the arguments of ansible-playbook.
        folder: where it runs.
        settings: of Ansible, as variables of the environment; a process that forks is kept for each.
        logs: a folder for what it says.
        limit_s: seconds that it may take.

    Raises:
        subprocess.TimeoutExpired: it took longer, and was killed with everything that it had started.
        RuntimeError: the process that forks ended; stderr has its output.
    """
    fork = _fork(tuple(sorted(settings.items())), folder)
    assert fork.stdin is not None
    assert fork.stdout is not None
    outputs = [logs / "ansible.stdout", logs / "ansible.stderr"]
    for file in outputs:
        file.write_text("")
    job = {"words": list(words), "environment": os.environ | dict(settings), "outputs": list(map(str, outputs))}
    with contextlib.suppress(BrokenPipeError):  # it has ended: there is no answer
        fork.stdin.write(json.dumps(job) + "\n")
        fork.stdin.flush()
    if not select.select([fork.stdout], [], [], limit_s)[0]:
        _fork.cache_clear()
        for process in psutil.Process(fork.pid).children(recursive=True):
            process.kill()
        fork.kill()
        fork.wait()
        raise subprocess.TimeoutExpired(
            ["ansible-playbook", *words], limit_s, outputs[0].read_text(), outputs[1].read_text()
        )
    answer = fork.stdout.readline()
    if not answer:
        _fork.cache_clear()
        raise RuntimeError(f"{Path(__file__).name} ended with exit code {fork.wait()}")
    return subprocess.CompletedProcess(words, int(answer), outputs[0].read_text(), outputs[1].read_text())


@cache
def _fork(settings: tuple[tuple[str, str], ...], folder: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, __file__],
        cwd=folder,
        env=os.environ | dict(settings),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def main() -> int:
    """Fork Ansible for every job on stdin, one after the other."""
    for name in _LOADED:
        importlib.import_module(name)
    from ansible import constants
    from ansible.cli.playbook import PlaybookCLI
    from ansible.plugins import loader

    loader.init_plugin_loader()
    importlib.import_module("ansible_collections.ansible.builtin")
    for kind in (loader.callback_loader, loader.inventory_loader, loader.vars_loader):  # of which every play asks all
        list(kind.all(class_only=True))
    warnings.filterwarnings("ignore", "AnsibleCollectionFinder has already been configured")
    for line in iter(sys.stdin.readline, ""):
        job = json.loads(line)
        pid = os.fork()
        if pid == 0:
            _become(job["environment"], job["outputs"])
            Path(constants.DEFAULT_LOCAL_TMP).mkdir(mode=0o700, exist_ok=True)  # the play before took it away
            return int(PlaybookCLI.cli_executor(["ansible-playbook", *job["words"]]) or 0)
        _, status = os.waitpid(pid, 0)
        with contextlib.suppress(BrokenPipeError):
            sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")
            sys.stdout.flush()
    return 0


def _become(environment: Mapping[str, str], outputs: Sequence[str]) -> None:
    """Take nothing from the process that forks but what it has loaded."""
    os.environ.clear()
    os.environ.update(environment)
    files = [os.open("/dev/null", os.O_RDONLY)]
    files += [os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600) for path in outputs]
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)


if __name__ == "__main__":
    sys.exit(main())
