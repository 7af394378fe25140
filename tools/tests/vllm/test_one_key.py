"""A real language model on both engines behind one endpoint: make test-vllm."""

from __future__ import annotations

import json
import logging
import os
import time
import urllib.request
from pathlib import Path

import pytest

from corral import paths
from corral.cli.main import main
from corral.demo.hub import Hub, RepoContent
from corral.demo.smollm2 import SMOLLM2
from corral.engine import stack
from tests.support.engine_process import free_port

LOG = logging.getLogger(__name__)
INTENT = """
engine: {engine}
source: {{repo: corral/SmolLM2-GGUF, quant: Q4_1}}
vllm: {{source: {{repo: corral/SmolLM2}}, dtype: bfloat16, cuda_graphs: false}}
card: box
context: 2048
parallel: 4
modalities: [text]
args: {{threads: 2}}
aliases: [small]
"""
CARD = 'vram_mib: 16384\ncompute_capability: "9.0"\n'


@pytest.fixture
def catalog(tmp_path, monkeypatch):
    """A catalog of one model with a source for each engine, and a hub on loopback that has both."""
    folder = tmp_path / "catalog"
    for kind in ("models", "cards"):
        (folder / kind).mkdir(parents=True)
    (folder / "cards" / "box.yaml").write_text(CARD)
    safetensors = Path(os.environ["SMOLLM2_SAFETENSORS"])
    gguf = SMOLLM2.bring(lambda _: None)
    files = {file.name: file for file in safetensors.iterdir()}
    monkeypatch.setenv("CORRAL_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("OMP_WAIT_POLICY", "passive")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setenv("VLLM_CPU_KVCACHE_SPACE", "1")
    monkeypatch.setenv("CORRAL_ENGINE_ENV", "VLLM_CPU_KVCACHE_SPACE")
    repositories = {
        "corral/SmolLM2-GGUF": RepoContent({gguf.name: gguf}, digests={gguf.name: SMOLLM2.sha256}),
        "corral/SmolLM2": RepoContent(files),
    }
    with Hub(repositories) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.endpoint)
        yield folder
        stack.stop(paths.state_dir(), drain_s=0)


def ask(endpoint, model):
    asked = {
        "model": model,
        "temperature": 0,
        "max_tokens": 24,
        "messages": [{"role": "user", "content": "What is 2+2? Answer with one number."}],
    }
    request = urllib.request.Request(
        f"{endpoint}/v1/chat/completions", json.dumps(asked).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=900) as answer:
        found = json.load(answer)
    return found["choices"][0]["message"]["content"], "llama.cpp" if "timings" in found else "vllm"


def test_one_key_moves_a_model_to_vllm_and_back_under_the_same_address_and_name(catalog):
    port, addresses = free_port(), set()
    for engine in ("llama.cpp", "vllm", "llama.cpp"):
        (catalog / "models" / "smollm2.yaml").write_text(INTENT.format(engine=engine))
        assert main(["lock", "--catalog", str(catalog)]) == 0
        assert main(["up", "--detach", "--catalog", str(catalog), "--port", str(port)]) == 0
        running = stack.running(paths.state_dir())
        addresses.add(running.endpoint)
        for name in ("smollm2", "small"):
            began = time.monotonic()
            text, answered_by = ask(running.endpoint, name)
            LOG.info("%s: %s answered %r after %.1f s", engine, name, text, time.monotonic() - began)
            assert "4" in text
            assert answered_by == engine
        assert main(["smoke", "--catalog", str(catalog), "smollm2"]) == 0
    assert len(addresses) == 1
