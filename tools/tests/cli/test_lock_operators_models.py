"""`corral lock` for the operator's own catalog: files of the real sizes, of which only the beginnings travel."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from corral import paths
from corral.demo.hub import Hub, RepoContent, Request
from corral.hub import gguf_range
from corral.lock import lock as locks
from corral.vram.gguf_header import parse
from tests.support import gguf_models

CATALOG = paths.REPOSITORY / "terraform" / "catalog"
SHELVES = {
    "Qwen/Qwen3-8B-GGUF": {"Qwen3-8B-Q4_K_M.gguf": "qwen3-8b-q4km"},
    "Qwen/Qwen3-VL-8B-Instruct-GGUF": {
        "Qwen3VL-8B-Instruct-Q4_K_M.gguf": "qwen3vl-8b-q4km",
        "mmproj-Qwen3VL-8B-Instruct-F16.gguf": "mmproj-qwen3vl-8b-f16",
        "mmproj-Qwen3VL-8B-Instruct-Q8_0.gguf": "mmproj-qwen3vl-8b-q8",
    },
    "Qwen/Qwen3-VL-4B-Instruct-GGUF": {
        "Qwen3VL-4B-Instruct-Q4_K_M.gguf": "qwen3vl-4b-q4km",
        "mmproj-Qwen3VL-4B-Instruct-F16.gguf": "mmproj-qwen3vl-4b-f16",
    },
    "openbmb/MiniCPM-V-4_5-gguf": {
        "ggml-model-Q4_K_M.gguf": "minicpm-v-4.5-q4km",
        "mmproj-model-f16.gguf": "mmproj-minicpm-v-4.5-f16",
    },
}


@pytest.fixture(scope="module")
def repositories(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hub")
    found = {}
    for repo, files in SHELVES.items():
        content = {name: folder / repo.replace("/", "-") / name for name in files}
        for name, path in content.items():
            path.parent.mkdir(exist_ok=True)
            gguf_models.write(files[name], path, tokenizer=True)
        # 20 GB of zeros need not be hashed: no test downloads them.
        digests = {name: hashlib.sha256(f"{repo}/{name}".encode()).hexdigest() for name in files}
        found[repo] = RepoContent(content, digests=digests)
    return found


@dataclass(frozen=True)
class Locked:
    """A catalog that was locked, the requests to the hub meanwhile, and what was printed."""

    folder: Path
    requests: list[Request]
    shown: dict

    @property
    def entries(self):
        return locks.read(self.folder / "lock.json").models

    @property
    def totals(self):
        return {name: entry.seat.mib for name, entry in self.entries.items()}


def lock(folder, repositories):
    """`corral lock` as a process of its own, with a hub that has *repositories*."""
    with Hub(repositories) as hub:
        done = subprocess.run(
            [sys.executable, "-m", "corral.cli.main", "lock", "--json", "--catalog", str(folder)],
            env={**os.environ, "HF_ENDPOINT": hub.endpoint},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return Locked(folder, list(hub.log), json.loads(done.stdout))


@pytest.fixture(scope="module")
def locked(repositories, tmp_path_factory):
    folder = tmp_path_factory.mktemp("catalog")
    for part in ("models", "cards"):
        shutil.copytree(CATALOG / part, folder / part)
    return lock(folder, repositories)


def test_only_headers_travel(locked, repositories):
    files = [(entry.repo, file) for entry in locked.entries.values() for file in entry.files]
    headers = 0
    for repo, file in files:
        with repositories[repo].files[file.path].open("rb") as stream:
            headers += parse(stream.read(16 << 20), file_size=file.size).size
    sent = sum(entry.sent for entry in locked.requests if entry.is_data)

    assert sum(file.size for _, file in files) > 20_000_000_000
    assert headers < sent < headers + len(files) * gguf_range.STEP_BYTES
    assert all(entry.headers["range"] for entry in locked.requests if entry.is_data)


def test_the_headers_kept_are_a_few_kilobytes_each(locked):
    sizes = [file.stat().st_size for file in (locked.folder / "headers").iterdir()]

    assert len(sizes) == 7
    assert max(sizes) < 5_000


def test_the_figures_are_near_those_measured_on_a_card(locked):
    """6996 MiB: nvidia-smi on a Tesla T4 with this model, this context and an f16 cache."""
    seats = locked.totals

    assert seats["qwen3-8b"] > 6996
    assert (seats["qwen3-8b"] - 6996) / 6996 < 0.03
    assert seats["qwen3vl-4b"] < seats["qwen3vl-8b"] < seats["qwen3-8b"]
    types = {name: entry.predicted.projector_type for name, entry in locked.entries.items()}
    assert types == {"qwen3-8b": None, "qwen3vl-8b": "F16", "qwen3vl-4b": "F16", "minicpm-v-4-5": "F16"}


def test_the_numbers_are_printed_in_bytes(locked):
    rows = locked.shown["vram"]

    assert rows["qwen3-8b"]["gpu"]["weights"] == 4_671_766_528
    assert rows["qwen3-8b"]["gpu"]["context"] == 2_415_919_104
    assert all(row["gpu"]["projector"] > 0 for name, row in rows.items() if name != "qwen3-8b")


def test_what_fits_is_read_from_the_ladder(locked):
    rows = locked.entries["qwen3-8b"].predicted

    rungs = {rung.context: rung.gpu_bytes for rung in rows.ladder}
    assert list(rungs) == [2048, 4096, 8192, 16384, 32768, 40960]
    assert rungs[16384] == rows.gpu_bytes
    assert list(rungs.values()) == sorted(rungs.values())


def test_a_second_lock_after_a_change_of_context_sends_no_request(locked, repositories, tmp_path):
    folder = tmp_path / "catalog"
    shutil.copytree(locked.folder, folder)
    for model, old, new in (("qwen3-8b", "16384", "8192"), ("qwen3vl-8b", "context: 3072", "context: 6144")):
        file = folder / "models" / f"{model}.yaml"
        assert old in file.read_text()
        file.write_text(file.read_text().replace(old, new))

    again = lock(folder, repositories)

    assert again.requests == []
    assert locked.totals["qwen3-8b"] - again.totals["qwen3-8b"] > 1152  # 8192 tokens of KV cache alone
    assert again.totals["qwen3vl-8b"] > locked.totals["qwen3vl-8b"]
    assert again.totals["qwen3vl-4b"] == locked.totals["qwen3vl-4b"]
