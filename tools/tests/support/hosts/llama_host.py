"""What a host needs before the role llama_server comes: an engine, a store with models, the catalog that names them."""

from __future__ import annotations

import json
import shutil
import site
from pathlib import Path
from typing import Any

from corral import paths
from corral.cli.main import main
from corral.demo import tiny_gguf
from tests.support.hosts.host import Host
from tests.support.hosts.room import NETWORK

ENGINE_FOLDER = "/opt/embedded-engine"
ENGINE = f"{ENGINE_FOLDER}/llama-server"
STORE = "/srv/models"
SLOTS = 10
"""Requests that the model ``slow`` answers at once."""

_LAUNCHER = f"""#!/bin/sh
export PYTHONPATH={ENGINE_FOLDER} PYTHONDONTWRITEBYTECODE=1 LLAMA_ARG_THREADS=1
exec /usr/bin/python3 -m corral.engine.llama_server "$@"
"""


def write_catalog(folder: Path) -> Path:
    """A locked catalog of ``tiny-text``, which answers OK, and ``slow``, which takes its time.

    Their files lie in ``files/`` beside it.
    """
    files, catalog = folder / "files", folder / "catalog"
    for path in (files, catalog / "models", catalog / "cards"):
        path.mkdir(parents=True)
    shutil.copy(paths.REPOSITORY / "terraform/catalog-demo/cards/laptop.yaml", catalog / "cards")
    tiny_gguf.write_text(files / "tiny-text.gguf")
    tiny_gguf.write_text(files / "slow.gguf", n_ff=60_000)
    for model, slots in (("tiny-text", 1), ("slow", SLOTS)):
        intent = {
            "source": {"path": str(files / f"{model}.gguf")},
            "card": "laptop",
            "context": 512,
            "parallel": slots,
            "modalities": ["text"],
        }
        (catalog / "models" / f"{model}.yaml").write_text(json.dumps(intent), encoding="utf-8")
    assert main(["lock", "--catalog", str(catalog)]) == 0
    return catalog


def prepare(host: Host, catalog: Path) -> None:
    """Give *host* the embedded engine of this environment as ``ENGINE``, and the models of *catalog* in ``STORE``."""
    host.run(
        "dpkg -s libgomp1 >/dev/null || apt-get install --yes --no-install-recommends libgomp1"
    )  # a compiler brings it
    folder = host.root / ENGINE_FOLDER.lstrip("/")
    folder.mkdir(parents=True)
    packages = [path for place in site.getsitepackages() for path in Path(place).glob("xllamacpp*")]
    assert packages, "the embedded engine is not installed here"
    for package in [*packages, paths.REPOSITORY / "tools" / "corral"]:
        shutil.copytree(package, folder / package.name, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "llama-server").write_text(_LAUNCHER, encoding="utf-8")
    (folder / "llama-server").chmod(0o755)
    for file in (catalog.parent / "files").iterdir():
        target = host.root / STORE.lstrip("/") / file.stem / "model.gguf"
        target.parent.mkdir(parents=True)
        shutil.copy(file, target)


def variables(catalog: Path) -> dict[str, Any]:
    """The role's variables in every test: *catalog*, served to the test and to no other host."""
    return {
        "llama_server_catalog": str(catalog),
        "llama_server_store": STORE,
        "llama_server_engine": ENGINE,
        "llama_server_listen": "0.0.0.0",
        "llama_server_port": "random",
        "llama_server_clients": [f"{NETWORK}.1"],
        "llama_server_probe_model": "tiny-text",
    }


def endpoint(host: Host, unit: str = "llama-swap") -> str:
    """Where the service of *host* listens, read from its unit."""
    words = host.run(f"systemctl show --property=ExecStart {unit}").split()
    flag = "-listen" if "-listen" in words else "--port"
    port = words[words.index(flag) + 1].rpartition(":")[2]
    return f"http://{host.address}:{port}"
