"""Weights that cannot do the task of a model are refused before llama-server answers with errors or noise."""

from __future__ import annotations

import pytest

from corral.agent.lock_file import LockedFile
from corral.catalog.argv import llama_server_argv
from corral.catalog.intent import Model
from corral.errors import Refused
from corral.lock.task_fit import require_task, task_of
from corral.vram.gguf_header import parse
from corral.vram.predict import dimension
from tests.support import gguf_models, task_models

FILES = [LockedFile("model.gguf", "model", 1, "0" * 64)]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """The headers of the tiny models, by name."""
    folder = tmp_path_factory.mktemp("tiny")
    task_models.write_embedding(folder / "embedding")
    task_models.write_embedding(folder / "silent", pooling=None)
    task_models.write_reranker(folder / "reranker")
    task_models.write_reranker(folder / "headless", head=False)
    task_models.write_encoder(folder / "encoder")
    task_models.write_encoder(folder / "cross-encoder", rerank=True)
    return {path.name: parse(path.read_bytes()) for path in folder.iterdir()}


def fit(header, task, **more):
    intent = {"source": {"path": "m.gguf"}, "card": "t4", "context": 512, "modalities": ("text",), "task": task}
    model = Model.model_validate(intent | more)
    require_task("m", model, [header], llama_server_argv("m", model, FILES))


@pytest.mark.parametrize(
    ("name", "task"),
    [
        ("embedding", "embedding"),
        ("encoder", "embedding"),
        ("reranker", "rerank"),
        ("cross-encoder", "rerank"),
        ("silent", "chat"),
    ],
)
def test_weights_can_do_the_task_that_they_were_made_for(tiny, name, task):
    fit(tiny[name], task)
    assert task_of([tiny[name]]) == task


@pytest.mark.parametrize(
    ("name", "task", "more", "why", "next_step"),
    [
        ("encoder", "chat", {}, "in both directions.*no chat", "Set task: embedding in m.yaml"),
        ("cross-encoder", "chat", {}, "in both directions.*no chat", "Set task: rerank in m.yaml"),
        ("headless", "rerank", {}, "no classifier head", "Choose a reranker"),
        ("silent", "embedding", {}, "pooling none", r"args: \{pooling: mean\}"),
        ("reranker", "embedding", {}, "pooling rank", "Set task: rerank in m.yaml"),
        (
            "embedding",
            "embedding",
            {"args": {"ubatch-size": 256}},
            "micro-batch is 256 tokens.*512",
            "Leave batch-size",
        ),
        ("reranker", "rerank", {"args": {"batch-size": 256}}, "micro-batch is 256 tokens.*512", "Leave batch-size"),
    ],
)
def test_weights_that_cannot_do_the_task_are_refused_with_what_to_change(tiny, name, task, more, why, next_step):
    with pytest.raises(Refused, match=why) as error:
        fit(tiny[name], task, **more)
    assert next_step.replace("\\", "") in error.value.next_step


def test_a_text_that_pools_its_last_token_may_be_computed_in_parts(tiny):
    fit(tiny["silent"], "embedding", args={"pooling": "last", "ubatch-size": 256})


def test_the_dimension_is_that_of_the_header_or_what_follows_it(tiny):
    assert dimension(tiny["encoder"]) == 64
    assert dimension(gguf_models.header("nomic-embed-1.5-f16")) == 768
    assert dimension(gguf_models.header("nomic-embed-1.5-f16", embedding_length_out=256)) == 256
