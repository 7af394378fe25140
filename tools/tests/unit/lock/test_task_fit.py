"""Weights that cannot do the task of a model are refused before llama-server answers with errors or noise."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace

import pytest

from corral.agent.lock_file import LockedFile
from corral.catalog.argv import llama_server_argv
from corral.catalog.intent import Model
from corral.errors import Refused
from corral.lock.task_fit import require_extras, require_task, task_of
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


EXPERTS = {"blk.0.ffn_up_exps.weight": (64, 96, 8), "blk.0.attn_q.weight": (64, 32), "token_embd.weight": (64, 500)}
EXTRA = {"source": {"path": "m.gguf"}, "card": "t4", "context": 512, "modalities": ("text",)}


def header_with(tiny, shapes, architecture="qwen3", **metadata):
    """A header of these tensors alone."""
    (form, *_) = tiny["silent"].tensors
    tensors = tuple(replace(form, name=name, shape=shape) for name, shape in shapes.items())
    known = {"general.architecture": architecture, "general.type": "adapter", "adapter.type": "lora"} | metadata
    return replace(tiny["silent"], metadata=known, tensors=tensors)


def fit_adapter(tiny, shapes, **metadata):
    model = Model.model_validate(EXTRA | {"adapters": [{"source": {"path": "a.gguf"}}]})
    argv = ["llama-server", "-m", "m.gguf", "--lora-scaled", "a.gguf:1"]
    require_extras(model, [header_with(tiny, EXPERTS), header_with(tiny, shapes, **metadata)], argv)


def pair(of, first, second):
    return {f"{of}.lora_a": first, f"{of}.lora_b": second}


@pytest.mark.parametrize(
    "shapes",
    [
        pair("blk.0.attn_q.weight", (64, 4), (4, 32)),
        pair("blk.0.ffn_up_exps.weight", (64, 4, 8), (4, 96, 8)),
        pair("token_embd.weight", (4, 500), (4, 64)),
    ],
    ids=["matrix", "experts", "embedding"],
)
def test_an_adapter_with_the_shapes_of_the_model_is_taken(tiny, shapes):
    fit_adapter(tiny, shapes)


@pytest.mark.parametrize(
    ("shapes", "metadata", "why"),
    [
        (pair("blk.0.attn_q.weight", (96, 4), (4, 32)), {}, "matrices for 96 by 32, and the model's is 64 by 32"),
        (pair("blk.0.attn_q.weight", (64, 4), (4, 33)), {}, "matrices for 64 by 33, and the model's is 64 by 32"),
        (pair("blk.0.attn_q.weight", (64, 4), (5, 32)), {}, "matrices for nothing"),
        (pair("blk.0.attn_q.weight", (64,), (4, 32)), {}, "matrices for nothing"),
        (pair("blk.0.ffn_up_exps.weight", (64, 4, 8), (4, 96, 7)), {}, "matrices for nothing"),
        (pair("blk.0.ffn_up_exps.weight", (64, 4, 7), (4, 96, 7)), {}, "matrices for 64 by 96 by 7"),
        (
            pair("blk.0.ffn_up_exps.weight", (64, 4), (4, 96)),
            {},
            "matrices for 64 by 96, and the model's is 64 by 96 b",
        ),
        (pair("token_embd.weight", (64, 4), (4, 500)), {}, "changes token_embd.weight with matrices for nothing"),
        (pair("blk.9.attn_q.weight", (64, 4), (4, 32)), {}, "changes blk.9.attn_q.weight, which the model does not"),
        ({"blk.0.attn_q.weight.lora_a": (64, 4)}, {}, "is no half of a pair of matrices"),
        ({"blk.0.attn_norm.weight": (64,)}, {}, "is no half of a pair of matrices"),
        ({}, {}, "has no tensor"),
        (pair("blk.0.attn_q.weight", (64, 4), (4, 32)), {"adapter.type": "other"}, "is no LoRA adapter"),
        (pair("blk.0.attn_q.weight", (64, 4), (4, 32)), {"architecture": "llama"}, "is for the architecture llama"),
    ],
)
def test_an_adapter_that_does_not_fit_its_model_is_refused_with_the_reason(tiny, shapes, metadata, why):
    with pytest.raises(Refused, match=rf"adapter 1 \(a\.gguf\) .*{why}") as error:
        fit_adapter(tiny, shapes, **metadata)
    assert error.value.next_step == "Correct its source, or leave it out"


@pytest.mark.parametrize(("tokens", "fits"), [(128, True), (129, False), (-128, True), (None, False)])
def test_a_draft_model_has_about_as_many_tokens_as_its_model(tiny, tokens, fits):
    model = Model.model_validate(EXTRA | {"draft": {"source": {"path": "d.gguf"}}})
    base = header_with(tiny, EXPERTS, **{"qwen3.vocab_size": 500})
    its = {} if tokens is None else {"qwen3.vocab_size": 500 + tokens}
    draft = header_with(tiny, EXPERTS, **{"general.type": "model"} | its)
    argv = ["llama-server", "-m", "m.gguf", "-md", "d.gguf"]
    with nullcontext() if fits else pytest.raises(Refused, match="a draft needs the same vocabulary"):
        require_extras(model, [base, draft], argv)


OURS = {"qwen3.vocab_size": 500, "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.add_bos_token": True}
OURS |= {"tokenizer.ggml.bos_token_id": 1, "tokenizer.ggml.eos_token_id": 2, "general.type": "model"}


@pytest.mark.parametrize(
    ("its", "why"),
    [
        ({"tokenizer.ggml.model": "llama"}, "states tokenizer.ggml.model 'llama' and the model 'gpt2': a draft needs"),
        ({"tokenizer.ggml.add_bos_token": False}, "states tokenizer.ggml.add_bos_token False and the model True"),
        ({"tokenizer.ggml.bos_token_id": 7}, "states tokenizer.ggml.bos_token_id 7 and the model 1"),
        ({"tokenizer.ggml.eos_token_id": 7}, None),  # neither adds it
        ({"tokenizer.ggml.bos_token_id": None}, None),
        ({"general.type": "adapter"}, "its draft: it is a LoRA adapter, and no model."),
        ({"general.architecture": "clip"}, "its draft: it is a projector, and no model."),
    ],
)
def test_a_draft_of_as_many_tokens_has_them_by_the_same_rules_as_its_model(tiny, its, why):
    model = Model.model_validate(EXTRA | {"draft": {"source": {"path": "d.gguf"}}})
    base, draft = header_with(tiny, EXPERTS, **OURS), header_with(tiny, EXPERTS, **OURS | its)
    argv = ["llama-server", "-m", "m.gguf", "-md", "d.gguf"]
    with pytest.raises(Refused, match=why) if why else nullcontext():
        require_extras(model, [base, draft], argv)
