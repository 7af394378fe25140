"""LiteLLM's real proxy as a process, in front of a local stack whose engines are counted.

``make test-gateway`` brings the proxy, in an environment of its own that CORRAL_GATEWAY names.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from corral import paths
from corral.cli.main import main
from corral.demo import tiny_gguf
from corral.engine import stack
from corral.terraform import gateway_list
from tests.support import task_models
from tests.support.engine_process import ENGINE, free_port, get, post, wait_for
from tests.support.locked_catalog import write_sources
from tests.support.scripted_api import Answer, scripted

KEY = "sk-master-of-the-tests"
WRONG_KEY = "sk-another"
STREAMS = 50
CALL = {"id": "call-1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Bern"}'}}
_TOOLS_TEMPLATE = """\
{%- for tool in tools or [] %}{{- tool | tojson }}{%- endfor %}
{%- for m in messages %}{{- '<|im_start|>' + m.role + '\\n' }}{{- m.content }}{{- '<|im_end|>\\n' }}{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}
"""


@dataclass(frozen=True)
class Proxy:
    """LiteLLM's proxy as it runs."""

    endpoint: str
    log: Path

    def post(self, path: str, body: Mapping[str, Any], *, api_key: str = KEY) -> tuple[int, Any]:
        """Status and decoded body of an answer."""
        status, text = post(f"{self.endpoint}{path}", dict(body), api_key=api_key)
        return status, json.loads(text)

    def get(self, path: str, *, api_key: str = KEY) -> tuple[int, Any]:
        """As ``post``, for what is read."""
        status, text = get(f"{self.endpoint}{path}", api_key=api_key)
        return status, json.loads(text)


@dataclass(frozen=True)
class Counted:
    """A local stack each of whose engines is counted when it starts.

    Attributes:
        folder: its weights, named for the models, and the counter.
        catalog: its catalog.
        running: the stack.
    """

    folder: Path
    catalog: Path
    running: stack.Running

    def starts(self, model: str | None = None) -> int:
        """How many engines have been started: of *model*, or of all."""
        lines = (self.folder / "starts").read_text().splitlines()
        return sum(model is None or f"/{model}/model.gguf" in line for line in lines if "/model.gguf" in line)

    def requests(self, model: str) -> int:
        """How many requests llama-swap has taken for *model* and ended."""
        client = self.running.client()
        status, text = get(f"{client.endpoint}/api/metrics/activity?limit=999", api_key=_key_of(client.headers))
        assert status == 200, text
        listed = json.loads(text)
        rows = listed["data"] if isinstance(listed, dict) else listed
        return sum(one["model"] == model for one in rows)

    def unload_all(self) -> None:
        """Load nothing, and have nothing loaded."""
        client = self.running.client()
        status, _ = post(f"{client.endpoint}/api/models/unload", {}, api_key=_key_of(client.headers))
        assert status == 200
        wait_for(lambda: not client.residents(), what="the unload")


def _key_of(headers: Mapping[str, str]) -> str:
    return headers.get("Authorization", "").removeprefix("Bearer ")


def tools_folder() -> Path:
    """The folder with LiteLLM and the clients."""
    folder = os.environ.get("CORRAL_GATEWAY")
    if not folder:
        pytest.fail("LiteLLM is not here. Run: make test-gateway", pytrace=False)
    return Path(folder)


@contextlib.contextmanager
def proxy(folder: Path, config: Mapping[str, Any], **environment: str) -> Iterator[Proxy]:
    """LiteLLM's proxy with *config*, ready, until the block ends; it gets no variable that is not named here."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.yaml").write_text(json.dumps(config))
    port, log = free_port(), folder / "litellm.log"
    command = [str(tools_folder() / "venv" / "bin" / "litellm"), "--config", str(folder / "config.yaml")]
    given = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "LITELLM_MASTER_KEY": KEY,
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "LITELLM_MODE": "PRODUCTION",
    }
    with log.open("wb") as stream:
        process = subprocess.Popen(
            [*command, "--host", "127.0.0.1", "--port", str(port)],
            stdout=stream,
            stderr=stream,
            cwd=folder,
            env=given | environment,
        )
    try:
        endpoint = f"http://127.0.0.1:{port}"

        def ready() -> bool:
            assert process.poll() is None, log.read_text(errors="replace")[-4000:]
            return get(f"{endpoint}/health/readiness")[0] == 200

        wait_for(ready, limit_s=240, what="LiteLLM")
        yield Proxy(endpoint, log)
    finally:
        process.terminate()
        process.wait()


def rendered(stack: Counted) -> dict[str, Any]:
    """What corral renders for the catalog of *stack*."""
    return yaml.safe_load(gateway_list.render(stack.catalog, f"{stack.running.endpoint}/v1").yaml)


@contextlib.contextmanager
def caller() -> Iterator[dict[str, Any]]:
    """An entry of LiteLLM's list for an endpoint that answers with a call of a tool, streamed or not.

    It stands in for a model that calls tools: the tiny ones have one answer, which is none.
    """

    def answer(_path: str, body: Any) -> Answer:
        head = {"id": "c", "created": 1, "model": "caller"}
        message = {"role": "assistant", "content": None}
        if not (body or {}).get("stream"):
            choice = {"index": 0, "finish_reason": "tool_calls", "message": message | {"tool_calls": [CALL]}}
            return 200, head | {"object": "chat.completion", "choices": [choice]}
        deltas = [message | {"tool_calls": [CALL | {"index": 0}]}, {}]
        chunks = [{"index": 0, "delta": one, "finish_reason": None if one else "tool_calls"} for one in deltas]
        events = [json.dumps(head | {"object": "chat.completion.chunk", "choices": [one]}) for one in chunks]
        return 200, [f"data: {event}\n\n" for event in [*events, "[DONE]"]]

    with scripted(answer) as (address, _):
        yield {
            "model_name": "caller",
            "litellm_params": {"model": "openai/caller", "api_base": f"{address}/v1", "api_key": "none"},
            "model_info": {"mode": "chat"},
        }


@contextlib.contextmanager
def counted_stack(folder: Path) -> Iterator[Counted]:
    """A local stack with a model of each kind, and one whose load cannot succeed; it has no keys."""
    folder.mkdir(parents=True, exist_ok=True)
    tiny_gguf.write_all(folder / "tiny")
    for name in ("text", "busy", "tools", "lame", "shy"):
        tiny_gguf.write_text(folder / f"{name}.gguf")
    for name in ("slow", "mortal"):
        tiny_gguf.write_text(folder / f"{name}.gguf", n_ff=80_000)  # an answer takes seconds
    task_models.write_embedding(folder / "vector.gguf")
    task_models.write_reranker(folder / "rank.gguf")
    plain = {"card": "laptop", "context": 512, "modalities": ["text"]}
    models = {name: plain | {"source": {"path": f"../{name}.gguf"}} for name in _MORE}
    models = {name: intent | _MORE[name] for name, intent in models.items()}
    models["eyes"] = plain | {
        "source": {"path": "../tiny/tiny-vision-F16.gguf", "mmproj": "mmproj-tiny-vision-F32.gguf"},
        "modalities": ["text", "image"],
        "context": 2048,
        "image_max_tokens": 64,
    }
    catalog = write_sources(folder / "catalog", models, {"laptop": {"vram_mib": 16384}})
    (catalog / "files").mkdir()
    (catalog / "files" / "tools.jinja").write_text(_TOOLS_TEMPLATE)
    counter = folder / "llama-server"
    counter.write_text(f'#!/bin/sh\necho "$*" >> {folder}/starts\nexec {ENGINE} "$@"\n')
    counter.chmod(0o755)
    (folder / "starts").touch()
    with pytest.MonkeyPatch.context() as settings:
        settings.setenv("OMP_WAIT_POLICY", "passive")
        settings.setenv("CORRAL_STATE", str(folder / "state"))
        settings.setenv("LLAMA_SERVER", str(counter))
        assert main(["lock", "--catalog", str(catalog)]) == 0
        assert main(["up", "--detach", "--catalog", str(catalog), "--port", str(free_port())]) == 0
        found = stack.running(paths.state_dir())
        assert found is not None
        for name in ("lame", "shy"):  # their loads fail from now on
            (folder / f"{name}.gguf").write_bytes(b"no model")
        try:
            yield Counted(folder, catalog, found)
        finally:
            stack.stop(folder / "state", drain_s=0)


_MORE: Mapping[str, Mapping[str, Any]] = {
    "text": {"aliases": ["chat", "org/text"], "smoke": {"prompt": "Are you there?", "expect": "OK"}},
    "busy": {"parallel": STREAMS, "context": 256},
    "tools": {"args": {"chat-template-file": "files/tools.jinja"}, "context": 1024},
    "lame": {},
    "shy": {"fallback": "text"},
    "slow": {},
    "mortal": {"fallback": "text"},
    "vector": {"task": "embedding"},
    "rank": {"task": "rerank"},
}
