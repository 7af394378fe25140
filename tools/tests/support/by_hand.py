"""A copy of the demo's catalog, locked and fetched, whose engines tests start by hand."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from corral.demo.hub import Hub
from corral.demo.smollm2 import SMOLLM2
from corral.demo.tour import copy_catalog, demo_repositories
from tests.support.engine_process import free_port, get, wait_for


@dataclass(frozen=True)
class Fetched:
    """The catalog, and the state folder with its store."""

    catalog: Path
    state: Path

    @property
    def variables(self) -> dict[str, str]:
        """The environment of commands: this state folder, and no engine of the operator's."""
        theirs = {name: value for name, value in os.environ.items() if not name.startswith(("LLAMA_", "CORRAL_"))}
        return theirs | {"CORRAL_STATE": str(self.state), "OMP_WAIT_POLICY": "passive"}

    def command(self, *words: str) -> list[str]:
        """The words of ``corral engine run`` *words*."""
        return [sys.executable, "-m", "corral.cli.main", "engine", "run", *words, "--catalog", str(self.catalog)]

    def run(self, *words: str, stdin: str = "", **variables: str) -> subprocess.CompletedProcess[str]:
        """``corral engine run`` *words* until it ends by itself."""
        return subprocess.run(
            self.command(*words),
            input=stdin,
            env=self.variables | variables,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )

    @contextmanager
    def served(self, *words: str, log: Path) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
        """``corral engine run`` *words* on a free port, ready: the process, and its address."""
        port = free_port()
        with log.open("wb") as stream:
            command = self.command(*words, "--port", str(port))
            process = subprocess.Popen(command, stdout=stream, stderr=stream, env=self.variables)
        root = f"http://127.0.0.1:{port}"

        def is_ready() -> bool:
            assert process.poll() is None, log.read_text(errors="replace")
            return get(f"{root}/health")[0] == 200

        try:
            wait_for(is_ready, what="ready")
            yield process, root
        finally:
            process.kill()
            process.wait()


@contextmanager
def fetched(folder: Path, *, real: bool = False, models: Sequence[str] = ()) -> Iterator[Fetched]:
    """The demo's models in *folder*, those named or all, with *real* also the real language model."""
    one = Fetched(folder / "catalog", folder / "state")
    copy_catalog(one.catalog, tiny=not real)
    with Hub(demo_repositories(folder / "hub", SMOLLM2.bring(print) if real else None)) as hub:
        variables = one.variables | {"HF_ENDPOINT": hub.endpoint}
        for words in (["lock"], ["fetch", *models]):
            command = [sys.executable, "-m", "corral.cli.main", *words, "--catalog", str(one.catalog)]
            subprocess.run(command, env=variables, check=True, timeout=300)
    yield one
