"""Embeddings and rankings through the local stack: real llama-swap, the real engine, tiny models with known results."""

from __future__ import annotations

import json

import pytest
import yaml

from corral import paths
from corral.cli.main import main
from corral.demo.hub import Hub, RepoContent
from corral.engine import stack
from corral.exporter.llama_swap import LlamaSwap
from corral.lock import lock as locks
from corral.measure.comparison import LIMIT
from tests.support import task_models
from tests.support.engine_process import free_port, post
from tests.support.locked_catalog import write_sources

pytestmark = pytest.mark.timeout(240)

MODELS = {"embedding": "embedding", "encoder": "embedding", "reranker": "rerank"}
CONTEXT = 1024  # more than the 512 tokens of the usual micro-batch


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    """A stack with an embedding, an encoder for embeddings and a reranker: (catalog, state folder)."""
    folder = tmp_path_factory.mktemp("tasks")
    task_models.write_embedding(folder / "embedding.gguf")
    task_models.write_encoder(folder / "encoder.gguf")
    task_models.write_reranker(folder / "reranker.gguf")
    plain = {"card": "laptop", "context": CONTEXT, "modalities": ["text"]}
    models = {name: plain | {"source": {"path": f"../{name}.gguf"}, "task": task} for name, task in MODELS.items()}
    catalog = write_sources(folder / "catalog", models, {"laptop": {"vram_mib": 4096}})
    with pytest.MonkeyPatch.context() as settings:
        settings.setenv("OMP_WAIT_POLICY", "passive")
        settings.setenv("CORRAL_STATE", str(folder / "state"))
        assert main(["lock", "--catalog", str(catalog)]) == 0
        assert main(["up", "--detach", "--catalog", str(catalog), "--port", str(free_port())]) == 0
        yield catalog, folder / "state"
        stack.stop(folder / "state", drain_s=0)


@pytest.fixture
def present(running, monkeypatch):
    """The stack, and its catalog."""
    monkeypatch.setenv("CORRAL_STATE", str(running[1]))
    found = stack.running(paths.state_dir())
    assert found is not None
    return found, running[0]


def test_smoke_checks_each_task_by_its_own_path(present, capsys):
    assert main(["smoke", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["checks"]
    of_models = {(one["model"], one["check"]): one["reason"] for one in found if one["model"] in MODELS}
    assert set(of_models) == {
        *((name, check) for name in ("embedding", "encoder") for check in ("vector", "vectors")),
        *(("reranker", check) for check in ("ranking", "ranking-swapped")),
    }
    assert of_models["embedding", "vector"] == "a vector of 320 numbers, as its header has"
    assert of_models["encoder", "vector"] == "a vector of 64 numbers, as its header has"
    assert of_models["embedding", "vectors"].startswith("the same text has the same vector, and cosine 0.948")
    assert of_models["reranker", "ranking"] == of_models["reranker", "ranking-swapped"]


@pytest.mark.parametrize(
    ("model", "path"),
    [
        *((model, path) for model in ("embedding", "encoder", "reranker") for path in ("chat/completions", "messages")),
        ("embedding", "rerank"),
        ("reranker", "embeddings"),
    ],
)
def test_a_request_on_the_path_of_another_task_is_refused_with_the_right_path_and_loads_nothing(present, model, path):
    found, _ = present
    found.client().unload(model)
    body = {"model": model, "messages": [{"role": "user", "content": "Hello."}], "input": "a", "query": "a"}

    status, text = post(f"{found.endpoint}/v1/{path}", body | {"documents": ["a"], "max_tokens": 4})

    right = {"embedding": "/v1/embeddings", "rerank": "/v1/rerank"}[MODELS[model]]
    assert status == 404
    assert json.loads(text)["error"] == {
        "message": f"The task of this model is {MODELS[model]}; its path is {right}.",
        "type": "not_found_error",
        "code": "wrong-task",
        "task": MODELS[model],
        "path": right,
    }
    assert model not in [one.model for one in found.client().residents()]


def test_the_texts_of_the_catalog_are_what_smoke_compares(present, tmp_path, capsys):
    found, catalog = present
    texts = {"prompt": "abc", "near": "xyz", "far": "cab"}  # by letters, the far one is as near as can be
    intents = {name: json.loads((catalog / "models" / f"{name}.yaml").read_text()) for name in MODELS}
    other = write_sources(tmp_path / "other", {name: one | {"smoke": texts} for name, one in intents.items()})
    words = ["smoke", "embedding", "reranker", "--json", "--catalog", str(other), "--endpoint", found.endpoint]
    assert main(words) == 1
    reasons = [one["reason"] for one in json.loads(capsys.readouterr().out)["checks"] if one["status"] == "failed"]
    assert sorted(reason.partition(":")[0] for reason in reasons) == [
        "the near text is not the closer one",
        *["the relevant document is not first"] * 2,
    ]


def test_a_text_of_the_whole_context_is_taken(present):
    found, _ = present
    text = "a" * (CONTEXT - 2)  # letters are tokens, and the encoder adds two of its own
    for name in ("embedding", "encoder"):
        spaced = " ".join(text[: (CONTEXT - 2)]) if name == "encoder" else text
        status, body = post(f"{found.endpoint}/v1/embeddings", {"model": name, "input": spaced})
        assert status == 200, body
        assert json.loads(body)["usage"]["prompt_tokens"] >= CONTEXT - 2


def test_a_text_beyond_the_context_is_refused_with_the_limit_and_the_remedy(present):
    found, _ = present
    text = "a " * (CONTEXT + 8)
    for model in ("embedding", "encoder"):
        status, answer = post(f"{found.endpoint}/v1/embeddings", {"model": model, "input": ["a", text]})
        error = json.loads(answer)["error"]
        assert (status, error["type"], error["code"]) == (400, "invalid_request_error", "text-too-long"), answer
        assert (error["n_prompt_tokens"] > CONTEXT, error["n_ctx"]) == (True, CONTEXT)
        assert f"this model takes {CONTEXT} in one text" in error["message"]
        assert "Send shorter texts, or give the model a larger context in the catalog." in error["message"]
    # This one pools its last token, and the engine's own answer has the limit.
    status, answer = post(f"{found.endpoint}/v1/rerank", {"model": "reranker", "query": "a", "documents": ["a", text]})
    error = json.loads(answer)["error"]
    assert (status, error["type"], error["n_ctx"]) == (400, "exceed_context_size_error", CONTEXT)


def test_models_of_each_task_take_what_was_predicted_within_the_limit(present, capsys):
    _, catalog = present
    assert main(["measure", "--json", "--catalog", str(catalog)]) == 0
    measured = json.loads(capsys.readouterr().out)["measurements"]
    assert {one["model"] for one in measured} == MODELS.keys()
    assert max(abs(one["deviation"]) for one in measured) <= LIMIT


@pytest.mark.parametrize("model", MODELS)
def test_the_exporters_probe_is_a_request_that_the_task_answers(present, model):
    found, _ = present
    assert main(["load", model]) == 0
    client = found.client()
    reader = LlamaSwap(client.endpoint, client.headers)
    (resident,) = [one for one in reader.residents() if one.model == model]
    assert reader.probe(resident) > 0
    door = LlamaSwap(found.endpoint, {}, is_door=True)
    assert door.probe(resident) > 0


@pytest.mark.parametrize(
    "words",
    [
        ["bench", "encoder"],
        ["bench", "--budgets", "encoder"],
        ["bench", "--speeds", "encoder"],
        ["golden", "record", "encoder"],
        ["golden", "record"],
        ["gate", "encoder"],
        ["logprobs", "encoder", "hello"],
        ["contract", "api"],
        ["contract", "vision", "encoder"],
        ["eval", str(paths.REPOSITORY / "terraform" / "catalog-demo" / "evals" / "digests"), "encoder"],
    ],
    ids=" ".join,
)
def test_what_sends_chats_refuses_a_model_without_one_in_one_sentence(present, words, capsys):
    _, catalog = present
    more = [] if words[0] == "contract" else ["--catalog", str(catalog)]
    assert main([*words, *more]) == 2
    stated = capsys.readouterr().err
    assert "sends chats" in stated or "takes no images" in stated
    assert "→ corral smoke" in stated or "→ corral contract api" in stated


@pytest.mark.parametrize(("name", "task"), MODELS.items())
def test_an_added_model_gets_the_task_that_its_header_states(present, tmp_path, monkeypatch, name, task):
    weights = present[1].parent / f"{name}.gguf"
    catalog = write_sources(tmp_path / "c", {}, {"laptop": {"vram_mib": 4096}})
    with Hub({"org/added-GGUF": RepoContent({"added-F16.gguf": weights})}) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.endpoint)
        assert main(["add", "org/added-GGUF:F16", "--yes", "--context", "512", "--catalog", str(catalog)]) == 0
    (entry,) = locks.require(catalog).models.values()
    assert (entry.intent.task, f"--{task}" in entry.argv) == (task, True)


def test_what_a_catalog_is_rendered_to_has_the_task(present, capsys):
    _, catalog = present
    assert main(["render", "--print", "litellm", "--catalog", str(catalog)]) == 0
    listed = yaml.safe_load(capsys.readouterr().out)["model_list"]
    assert [one["model_info"]["mode"] for one in listed] == ["embedding", "embedding", "rerank"]
    assert listed[2]["litellm_params"]["model"] == "hosted_vllm/reranker"
    lock = locks.require(catalog)
    assert {name: entry.intent.task for name, entry in lock.models.items()} == MODELS
