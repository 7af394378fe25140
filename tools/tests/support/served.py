"""A local stack of real llama-swap and real engines, with catalog, lock, store, and a preflight before each engine.

For tests that need models which go wrong in a way of their own; `corral up` would refuse, or mend, most of them.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shlex
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from corral.agent.fetch import fetch
from corral.agent.lock_file import read_lock
from corral.agent.store import Store
from corral.engine import binaries, ports, stack
from corral.engine.door import SWAP_KEY, Door
from corral.engine.launch import Programs
from tests.support.door import configuration
from tests.support.engine_process import free_port
from tests.support.locks import write_sealed
from tests.support.preflight import without_limits

_LARGE = 10 << 20  # bytes; such a file is one for all models, and no test may write to it


@dataclass(frozen=True)
class Served:
    """One model: its weights, and what is special about the way it is served.

    Attributes:
        weights: a GGUF file.
        need_mib: its seat.
        more: words added to the engine's command line.
        engine: words that take the engine's place.
        group: models of one group take turns; by default each has its own.
        limit: requests at a time.
        health: the path whose status 200 ends the load.
        ttl: seconds without a request after which it is unloaded; 0: never.
    """

    weights: Path
    need_mib: int = 64
    more: Sequence[str] = ()
    engine: Sequence[str] = ()
    group: str = ""
    limit: int = 10
    health: str = "/health"
    ttl: int = 0


@dataclass(frozen=True)
class Stack:
    """The stack as it runs."""

    state: Path
    catalog: Path
    store: Path
    running: stack.Running
    ports: Mapping[str, int] = field(default_factory=dict)

    @property
    def endpoint(self) -> str:
        return self.running.endpoint

    def weights(self, model: str) -> Path:
        """The file that the engine of *model* opens."""
        return self.store / model / "model.gguf"


@contextlib.contextmanager
def served(folder: Path, models: Mapping[str, Served], *, load_limit_s: int = 15, card: str = "") -> Iterator[Stack]:
    """Start a stack that serves *models*; everything lies in *folder*.

    Args:
        folder: exists, and is empty.
        models: by id.
        load_limit_s: llama-swap's time limit of a load; it raises anything below 15.
        card: a command that prints "free, total" of the pretended card; by default none can be read.
    """
    state, catalog, store = (folder / name for name in ("state", "catalog", "store"))
    state.mkdir()
    copies = _own_copies(folder / "weights", models)
    sha256 = _digests(models)
    _write_catalog(catalog, copies, sha256)
    fetch(read_lock(catalog / "lock.json"), Store(store))
    own_port = free_port()
    first = ports.for_engines(len(models) + 1, own_port) + 1
    door = Door(own_port, swap_port=first - 1)
    preflight = without_limits(folder / "preflight")  # it leaves out holders that a busy machine finds too late
    config = _config(models, sha256, store, preflight, first, load_limit_s)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CORRAL_VRAM_SOURCE", card or "false")
        running, _ = stack.start(
            state,
            configuration(state, config, door, models),
            Programs(binaries.llama_server(), binaries.llama_swap(), binaries.caddy().path),
            door=door,
            first_engine_port=first,
            catalog=catalog,
        )
    try:
        yield Stack(state, catalog, store, running, {model: first + at for at, model in enumerate(sorted(models))})
    finally:
        stack.stop(state, drain_s=0)


def _own_copies(folder: Path, models: Mapping[str, Served]) -> dict[str, Path]:
    folder.mkdir()
    copies = {}
    for model, one in models.items():
        copies[model] = folder / f"{model}.gguf"
        (os.link if one.weights.stat().st_size > _LARGE else shutil.copyfile)(one.weights, copies[model])
    return copies


def _write_catalog(catalog: Path, copies: Mapping[str, Path], sha256: Mapping[str, str]) -> None:
    (catalog / "models").mkdir(parents=True)
    (catalog / "cards").mkdir()
    (catalog / "cards" / "laptop.yaml").write_text("vram_mib: 4096\n")
    entries = {}
    for model, path in copies.items():
        intent = {
            "source": {"path": str(path), "mmproj": "none"},
            "card": "laptop",
            "context": 512,
            "modalities": ["text"],
            "aliases": [f"{model}-alias"],
        }
        (catalog / "models" / f"{model}.yaml").write_text(json.dumps(intent))
        entries[model] = {
            "repo": None,
            "revision": None,
            "licence": None,
            "argv": ["llama-server"],
            "files": [{"path": str(path), "role": "model", "size": path.stat().st_size, "sha256": sha256[model]}],
        }
    write_sealed(catalog / "lock.json", {"version": 2, "models": entries})


def _digests(models: Mapping[str, Served]) -> dict[str, str]:
    """The sha256 of the weights of each model; weights that several models have are read once."""
    of_file = {}
    for weights in {one.weights for one in models.values()}:
        with weights.open("rb") as stream:
            of_file[weights] = hashlib.file_digest(stream, "sha256").hexdigest()
    return {model: of_file[one.weights] for model, one in models.items()}


def _config(
    models: Mapping[str, Served],
    sha256: Mapping[str, str],
    store: Path,
    preflight: Path,
    first_port: int,
    load_limit_s: int,
) -> str:
    groups: dict[str, dict[str, object]] = {}
    for model, one in models.items():
        group = groups.setdefault(
            one.group or model, {"swap": True, "exclusive": False, "persistent": False, "members": []}
        )
        group["members"].append(model)
    entries = {
        model: {
            "cmd": _command(model, one, store, preflight),
            "proxy": "http://127.0.0.1:${PORT}",
            "checkEndpoint": one.health,
            "concurrencyLimit": one.limit,
            "ttl": one.ttl,
            "metadata": {"sha256": [sha256[model]]},
        }
        for model, one in models.items()
    }
    return json.dumps(
        {
            "startPort": first_port,
            "healthCheckTimeout": load_limit_s,
            "logToStdout": "both",
            "logTimeFormat": "rfc3339",
            "captureBuffer": 0,
            "apiKeys": [f"${{env.{SWAP_KEY}}}"],
            "models": entries,
            "routing": {"router": {"use": "group", "settings": {"groups": groups}}},
        }
    )


def _command(model: str, one: Served, store: Path, preflight: Path) -> str:
    engine = [*(one.engine or [str(binaries.llama_server().path)]), "-m", f"{store}/{model}/model.gguf", "-c", "512"]
    plain = ["-np", "1", "-fit", "off", "--cache-ram", "0", "--offline", "--host", "127.0.0.1"]
    front = [str(preflight), "--model", model, "--need-mib", str(one.need_mib), "--"]
    return f"{shlex.join([*front, *engine, *plain, *one.more])} --port ${{PORT}}"
