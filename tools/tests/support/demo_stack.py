"""The local stack with the demo's tiny models: real llama-swap, the real engine, nothing loaded."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from corral import paths
from corral.cli.main import main
from corral.demo.hub import Hub
from corral.demo.smollm2 import SMOLLM2
from corral.demo.tour import copy_catalog, demo_repositories
from corral.engine import stack
from tests.support.engine_process import free_port

FULL = "  backup: {budget_mib: 1100}\n"
"""For the demo's card: one tenant more, so that of each group one tiny model fits."""


@contextmanager
def demo_stack(
    folder: Path, *, more: Mapping[str, str] | None = None, card: str = "", real: bool = False
) -> Iterator[tuple[Path, Path]]:
    """Lock a copy of the demo's catalog in *folder* and start its stack: the catalog, and the state folder.

    *more* is added to the files of some models, *card* to the file of the card; with *real* it has the real language
    model, too.
    """
    catalog, state = folder / "catalog", folder / "state"
    copy_catalog(catalog, tiny=not real)
    hub = Hub(demo_repositories(folder / "hub", SMOLLM2.bring(print) if real else None))
    for model, text in (more or {}).items():
        with (catalog / "models" / f"{model}.yaml").open("a", encoding="utf-8") as intent:
            intent.write(text)
    with (catalog / "cards" / "laptop.yaml").open("a", encoding="utf-8") as intent:
        intent.write(card)
    with hub, pytest.MonkeyPatch.context() as settings:
        settings.setenv("OMP_WAIT_POLICY", "passive")  # as the demo sets it: tests run beside other work
        settings.setenv("HF_ENDPOINT", hub.endpoint)
        settings.setenv("CORRAL_STATE", str(state))
        assert main(["lock", "--catalog", str(catalog)]) == 0
        assert main(["up", "--detach", "--catalog", str(catalog), "--port", str(free_port())]) == 0
        yield catalog, state
        stack.stop(state, drain_s=0)


@contextmanager
def exporter_beside(*words: str) -> Iterator[str]:
    """The address of `corral exporter` with *words* beside the present state folder's stack, without a path."""
    port = free_port()
    command = [sys.executable, "-m", "corral.cli.main", "exporter", "--port", str(port), *words]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr
    try:
        assert f"http://127.0.0.1:{port}/metrics" in process.stderr.readline()
        yield f"http://127.0.0.1:{port}"
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=60) == 0
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


def pid_of(model: str) -> int:
    """The process of the engine of *model* in the present state folder's stack."""
    present = stack.running(paths.state_dir())
    assert present is not None
    commands = {one.pid: _command(one.pid) for one in present.members()}
    (pid,) = [pid for pid, words in commands.items() if "--alias" in words and model in words]
    return pid


def _command(pid: int) -> list[str]:
    """Its command line; of a process that has ended since it was listed, such as a preflight's curl, none."""
    try:
        return psutil.Process(pid).cmdline()
    except psutil.NoSuchProcess:
        return []
