"""All rows of one model, and the ladder of contexts beside them."""

from __future__ import annotations

from functools import cache

import pytest

from corral.agent.lock_file import LockedFile
from corral.catalog.argv import llama_server_argv
from corral.catalog.intent import Model
from corral.errors import EngineCannotPredict
from corral.vram import from_header, predict
from corral.vram.oracle import ask
from corral.vram.predict import predict_model, total
from corral.vram.rules import rules
from tests.support import gguf_models

MIB = 1 << 20
DRAFT = {"source": {"repo": "org/small", "quant": "Q4_K_M"}}


def predicted(name, projector=None, headers=None, **intent):
    intent = {"source": {"repo": "org/name", "quant": "Q4_K_M"}, "card": "t4", "context": 16384} | intent
    intent.setdefault("modalities", ["text", "image"] if projector else ["text"])
    model = Model.model_validate(intent)
    files = [LockedFile(f"{name}.gguf", "model", 1, "0" * 64)]
    files += [LockedFile("qwen3-4b-q4km.gguf", "draft", 1, "2" * 64)] if model.draft else []
    files += [LockedFile(f"{projector}.gguf", "projector", 1, "1" * 64)] if projector else []
    headers = headers or [gguf_models.header(file.path.removesuffix(".gguf")) for file in files]
    argv = llama_server_argv("m", model, files)
    return predict_model("m", model, files, headers, argv, names=["0" * 64]), headers, argv, model, files


@cache
def plain(name):
    """The prediction of the model *name* without a projector and with no other key, its headers and command line."""
    return predicted(name)[:3]


def test_the_total_is_the_engines_count_and_every_rule():
    found, headers, argv = plain("qwen3-8b-q4km")
    (alone,) = ask(headers, [argv])
    assert (found.gpu, found.host, found.context_trained) == (alone.gpu, alone.host, 40960)
    assert found.rules == rules(headers, alone)
    assert found.gpu_bytes == found.gpu.total + sum(rule.bytes for rule in found.rules)
    assert found.projector_type is None


def test_the_ladder_goes_by_doubling_to_the_trained_context():
    found, _, _ = plain("qwen3-8b-q4km")
    assert [rung.context for rung in found.ladder] == [2048, 4096, 8192, 16384, 32768, 40960]
    assert next(rung for rung in found.ladder if rung.context == 16384).gpu_bytes == found.gpu_bytes


@pytest.mark.parametrize(
    ("name", "projector", "intent"),
    [
        ("gemma3-4b-q4km", None, {}),
        ("qwen3.6-27b-q2k", None, {}),
        ("qwen3-8b-q4km", None, {"args": {"cache-type-k": "q8_0", "cache-type-v": "q8_0"}, "parallel": 2}),
        ("qwen3vl-8b-q4km", "mmproj-qwen3vl-8b-q8", {"context": 3072}),
        ("qwen3-8b-q4km", None, {"draft": DRAFT, "args": {"spec-draft-type-k": "q8_0", "spec-draft-type-v": "q8_0"}}),
        ("qwen3vl-8b-q4km", "mmproj-qwen3vl-8b-q8", {"context": 3072, "draft": DRAFT}),
    ],
)
def test_every_rung_is_what_a_model_with_that_context_would_be_predicted_at(name, projector, intent):
    found, headers, _, model, files = predicted(name, projector, **intent)
    rungs = found.ladder[::3]
    others = [Model.model_validate(model.model_dump(exclude_unset=True) | {"context": one.context}) for one in rungs]
    answers = ask(headers, [llama_server_argv("m", other, files) for other in others], cuda="all")
    for rung, alone in zip(rungs, answers, strict=True):
        # Buffers' alignment differs by as little from rung to rung.
        assert abs(rung.gpu_bytes - total(alone, rules(headers, alone))) < 4096
        assert rung.host_bytes == alone.host.total
    assert len(found.ladder) >= 6


def test_a_window_makes_the_ladder_flatter_than_the_context_is_long():
    found, _, _, _, _ = predicted("gemma3-4b-q4km")
    totals = {rung.context: rung.gpu_bytes for rung in found.ladder}
    plain = 34 * 2 * 4 * 256 * 2
    assert totals[32768] - totals[16384] < 0.2 * 16384 * plain


def test_a_rung_that_the_intent_forbids_is_left_out():
    found, _, _, _, _ = predicted("qwen3vl-8b-q4km", "mmproj-qwen3vl-8b-f16", image_max_tokens=4096)
    assert [rung.context for rung in found.ladder][:2] == [8192, 16384]
    assert found.projector_type == "F16"


def test_a_rung_that_the_engine_cannot_answer_ends_the_ladder_and_not_the_prediction(monkeypatch):
    def with_a_bad_flag(model_id, model, files):
        argv = llama_server_argv(model_id, model, files)
        return [*argv, "--nonsense"] if model.context == 8192 else argv

    monkeypatch.setattr(predict, "llama_server_argv", with_a_bad_flag)
    found, _, _, _, _ = predicted("qwen3-8b-q4km")
    assert [rung.context for rung in found.ladder] == [2048, 4096]


def test_the_header_and_the_engine_must_agree(monkeypatch):
    monkeypatch.setattr(
        from_header, "disagreements", lambda *_: ["weights: the engine counts 2 bytes, the header gives 1"]
    )
    with pytest.raises(EngineCannotPredict, match="engine counts 2 bytes, the header gives 1"):
        predicted("qwen3-0.6b-q8")


def test_the_engine_must_have_read_the_trained_context_of_the_header():
    header = gguf_models.header("qwen3-0.6b-q8")
    lying = gguf_models.header("qwen3-0.6b-q8", context_length=4096)
    mixed = type(header)(**{**vars(header), "metadata": lying.metadata})
    with pytest.raises(EngineCannotPredict, match="trained context: the engine states 40,960, the header 4,096"):
        predicted("qwen3-0.6b-q8", headers=[mixed])
