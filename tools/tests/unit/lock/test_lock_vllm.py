"""A model that vLLM serves: its files, its facts, its seat and its command line, from a hub on loopback."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from corral.agent.fetch import fetch
from corral.agent.lock_file import lock_in, read_lock
from corral.agent.store import Store
from corral.agent.warm import warm
from corral.catalog import catalog
from corral.demo.hub import Hub, RepoContent
from corral.errors import CatalogInvalid, CorralError
from corral.lock import headers, lock
from corral.lock.predict import Predictor
from corral.lock.relock import relock, resolve_on_hub
from corral.seating import chart, contexts
from corral.vram import vllm_seat
from corral.vram.prediction import MIB
from tests.support import safetensors
from tests.support.locked_catalog import write_sources

REPO = "org/tiny"
INTENT = {
    "source": {"repo": REPO},
    "engine": "vllm",
    "card": "t4",
    "context": 2048,
    "modalities": ["text"],
    "parallel": 4,
}
T4 = {"vram_mib": 15360, "compute_capability": "7.5", "tenants": {"photos": {"budget_mib": 2000}}}


@pytest.fixture
def locked(tmp_path, monkeypatch):
    """Lock a catalog as `corral lock` does, over a hub with the given files; returns the lock."""

    def lock_it(files=None, card=T4, **intent):
        folder = write_sources(tmp_path / "catalog", {"tiny": {**INTENT, **intent}}, {"t4": card})
        with Hub({REPO: RepoContent(files=safetensors.repository() if files is None else files)}) as hub:
            monkeypatch.setenv("HF_ENDPOINT", hub.endpoint)
            wanted = catalog.load(folder)
            present = lock.read(wanted.lock_file)
            found = relock(wanted, present, resolve_on_hub, Predictor(wanted))
            requests = [one.path for one in hub.log]
        headers.write(folder, found.headers)
        lock.write(wanted.lock_file, found.lock)
        return found.lock, requests

    return lock_it


def flag(entry, name):
    return entry.argv[entry.argv.index(name) + 1]


def test_the_lock_has_every_part_of_the_folder_with_its_sha256_and_no_program(locked, tmp_path):
    found, _ = locked()
    entry, content = found.models["tiny"], safetensors.repository()
    names = ["model.safetensors", "config.json", "tokenizer.json", "tokenizer_config.json"]
    assert [file.path for file in entry.files] == names
    assert [file.sha256 for file in entry.files] == [hashlib.sha256(content[name]).hexdigest() for name in names]
    # What the agent reads of it becomes the links of the set, under their own names.
    assert list(read_lock(tmp_path / "catalog" / "lock.json").models["tiny"].links) == names


def test_the_agent_publishes_the_folder_with_exactly_its_parts_and_warms_its_weights(locked, tmp_path, monkeypatch):
    locked()
    store, content = Store(tmp_path / "store"), safetensors.repository()
    with Hub({REPO: RepoContent(files=content)}) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.endpoint)
        fetch(read_lock(tmp_path / "catalog" / "lock.json"), store)
    published = {one.name: one.read_bytes() for one in (store.root / "tiny").iterdir()}
    names = ("model.safetensors", "config.json", "tokenizer.json", "tokenizer_config.json")
    assert published == {name: content[name] for name in names}
    assert [one.file for one in warm(read_lock(tmp_path / "catalog" / "lock.json"), store)] == ["model.safetensors"]


@pytest.mark.parametrize("path", ["sub/config.json", ".config.json"])
def test_a_part_with_another_path_than_a_plain_name_is_no_lock(path):
    part = {"path": path, "role": "part", "size": 1, "sha256": "a" * 64}
    entry = {"repo": REPO, "revision": "b" * 40, "files": [part]}
    with pytest.raises(CorralError, match="plain name"):
        lock_in(Path("lock.json"), {"models": {"tiny": entry}})


def test_a_lock_of_a_model_on_vllm_is_fresh_and_made_again_without_the_hub(locked, tmp_path):
    first, _ = locked()
    assert list(lock.stale(catalog.load(tmp_path / "catalog"))) == []
    again, requests = locked()
    assert again.text() == first.text()
    assert requests == []


def test_another_context_is_predicted_from_the_facts_that_were_kept(locked):
    first, _ = locked()
    second, requests = locked(context=4096)
    assert requests == []
    more = second.models["tiny"].predicted.gpu.context - first.models["tiny"].predicted.gpu.context
    per_token = 2 * 2 * 16 * 2 * 2  # K and V, heads, their width, bytes, layers
    assert more == 4 * 2048 * per_token


def test_the_weights_count_in_the_number_format_that_they_are_served_in(locked):
    for dtype, size in (("float16", 2), ("float32", 4)):
        found, _ = locked(vllm={"dtype": dtype})
        assert found.models["tiny"].predicted.gpu.weights == (512 * 64 + 128 * 64) * size


def test_the_head_of_tied_embeddings_takes_nothing(locked):
    tensors = {**safetensors.TENSORS, "lm_head.weight": ("BF16", (512, 64))}
    tied, _ = locked(safetensors.repository(**{"model.safetensors": safetensors.file(tensors)}))
    assert tied.models["tiny"].predicted.gpu.weights == (512 * 64 + 128 * 64) * 2


def test_the_share_of_the_card_is_the_seat_less_what_vllm_does_not_count(locked):
    found, _ = locked()
    entry = found.models["tiny"]
    share = float(flag(entry, "--gpu-memory-utilization"))
    budget = entry.predicted.gpu_bytes - vllm_seat.UNCOUNTED
    assert share == pytest.approx(budget / (15360 * MIB), abs=1e-4)
    assert share * 15360 * MIB >= budget
    assert share < 0.1


def test_a_declared_figure_raises_the_share(locked):
    found, _ = locked(vram={"declared_mib": 7680 + 612, "why": "more KV pages for more users"})
    assert flag(found.models["tiny"], "--gpu-memory-utilization") == "0.5000"


def test_the_length_and_the_requests_at_once_are_those_of_the_intent(locked):
    found, _ = locked()
    entry = found.models["tiny"]
    assert flag(entry, "--max-model-len") == "2048"
    assert flag(entry, "--max-num-seqs") == "4"
    assert flag(entry, "--dtype") == "float16"


def test_a_model_on_vllm_is_alone_in_its_group_and_never_unloaded(locked):
    found, _ = locked(group="main", ttl=600)
    intent = found.models["tiny"].intent
    assert (intent.group, intent.ttl) == ("tiny", 0)
    assert chart.of(found).cards["t4"].groups["tiny"].mib == found.models["tiny"].seat.mib


def test_each_rule_has_its_source(locked):
    found, _ = locked()
    rules = found.models["tiny"].predicted.rules
    assert {rule.name for rule in rules} == {
        "vllm-sampler",
        "vllm-cuda-graphs",
        "vllm-workspaces",
        "vllm-memory-that-pytorch-does-not-see",
        "vllm-cuda-context",
    }
    assert all(rule.bytes and len(rule.source) > 30 for rule in rules)


def test_without_graphs_none_are_counted(locked):
    found, _ = locked(vllm={"cuda_graphs": False})
    entry = found.models["tiny"]
    assert "--enforce-eager" in entry.argv
    assert "vllm-cuda-graphs" not in {rule.name for rule in entry.predicted.rules}


def test_the_largest_context_is_searched_by_the_same_rules(locked, tmp_path):
    found, _ = locked()
    wanted = catalog.load(tmp_path / "catalog")
    assert contexts.largest(wanted, found, chart.of(found))["tiny"].tokens == 8192  # what it was trained for


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (
            {"quantization_config": {"quant_method": "mxfp4"}},
            "mxfp4, which vLLM 0.32.0 runs from compute capability 8.0",
        ),
        ({"quantization_config": {"quant_method": "gguf"}}, "quantised by gguf; corral knows vLLM's rules for: awq"),
        ({"architectures": ["MambaForCausalLM"]}, "its architecture is MambaForCausalLM"),
        ({"sliding_window": 4096}, "its attention has a sliding window"),
        ({"num_hidden_layers": "2"}, "num_hidden_layers: Input should be a valid integer"),
        ({"num_key_value_heads": 3}, "num_attention_heads is no multiple of num_key_value_heads"),
        ({"max_position_embeddings": 1024}, "its context is 2,048, and it was trained for 1,024 tokens"),
    ],
)
def test_what_the_card_or_the_rules_cannot_is_refused(locked, config, words):
    with pytest.raises(CorralError, match=words):
        locked(safetensors.repository(config))


def test_awq_weights_run_on_a_turing_card(locked):
    found, _ = locked(safetensors.repository({"quantization_config": {"quant_method": "awq"}}))
    assert found.models["tiny"].predicted.gpu_bytes


def test_an_architecture_that_the_rules_do_not_count_is_locked_with_a_declared_figure(locked):
    why = {"declared_mib": 4000, "why": "nvidia-smi on another machine"}
    found, _ = locked(safetensors.repository({"architectures": ["MambaForCausalLM"]}), vram=why)
    entry = found.models["tiny"]
    assert (entry.seat.mib, entry.seat.basis) == (4000, "declared")
    assert entry.predicted.unmeasured


@pytest.mark.parametrize(
    ("dtype", "cache", "capability", "place"),
    [("bfloat16", "auto", "7.5", "vllm.dtype"), ("float16", "fp8", "8.6", "vllm.kv_cache_dtype")],
)
def test_a_number_format_that_the_card_lacks_is_refused_with_its_source(tmp_path, dtype, cache, capability, place):
    intent = {**INTENT, "vllm": {"dtype": dtype, "kv_cache_dtype": cache}}
    folder = write_sources(tmp_path, {"tiny": intent}, {"t4": {"vram_mib": 9999, "compute_capability": capability}})
    with pytest.raises(CatalogInvalid) as caught:
        catalog.load(folder)
    [problem] = caught.value.problems
    assert problem.where.endswith(place)
    assert "vllm/platforms/cuda.py" in problem.message
    write_sources(tmp_path, {"tiny": intent}, {"t4": {"vram_mib": 9999, "compute_capability": "9.0"}})
    catalog.load(folder)


def test_no_other_model_has_the_group_of_a_model_on_vllm(tmp_path):
    other = {**INTENT, "source": {"repo": REPO, "quant": "F16"}, "engine": "llama.cpp", "group": "tiny"}
    folder = write_sources(tmp_path, {"tiny": INTENT, "other": other}, {"t4": T4})
    with pytest.raises(CatalogInvalid, match="alone in the group of its name"):
        catalog.load(folder)


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({"config.json": b""}, "no proper size"),
        ({"model.safetensors": b"short"}, "it has 5 bytes"),
        ({"model.safetensors": b"\xff" * 64}, "its header would have"),
        ({"model.safetensors": safetensors.file(safetensors.TENSORS) + b"x"}, "its tensors have"),
    ],
)
def test_files_that_are_not_whole_are_refused(locked, files, words):
    with pytest.raises(CorralError, match=words):
        locked(safetensors.repository(**files))


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ({"dtype": "Q9", "shape": [1], "data_offsets": [0, 1]}, "unknown number format"),
        ({"dtype": "F32", "shape": [4], "data_offsets": [0, 8]}, "are not those of its shape"),
        ({"dtype": "F32", "shape": [1], "data_offsets": [4, 8]}, "are not those of its shape"),
        ({"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}, "greater than or equal to 0"),
        ({"dtype": "F32", "shape": ["1"], "data_offsets": [0, 4]}, "valid integer"),
        ({"dtype": "F32"}, "Field required"),
    ],
)
def test_a_header_that_lies_about_its_tensors_is_refused(locked, entry, words):
    whole = safetensors.file({}, a=entry)
    with pytest.raises(CorralError, match=words):
        locked(safetensors.repository(**{"model.safetensors": whole + b"1234"}))


def test_a_model_in_numbered_files_is_whole_or_refused(locked, tmp_path):
    one, two = ({name: tensor} for name, tensor in safetensors.TENSORS.items())
    files = safetensors.repository()
    del files["model.safetensors"]
    files |= {"model-00001-of-00002.safetensors": safetensors.file(one), "model.safetensors.index.json": b"{}"}
    with pytest.raises(CorralError, match=r"missing: model-00002-of-00002\.safetensors"):
        locked(files)
    found, _ = locked(files | {"model-00002-of-00002.safetensors": safetensors.file(two)})
    assert found.models["tiny"].predicted.gpu.weights == (512 * 64 + 128 * 64) * 2
    (tmp_path / "catalog" / "lock.json").unlink()
    with pytest.raises(CorralError, match="which another file has too"):
        locked(files | {"model-00002-of-00002.safetensors": safetensors.file(one)})


def test_one_key_moves_a_model_between_the_engines(tmp_path):
    intent = {**INTENT, "source": {"repo": "org/tiny-GGUF", "quant": "F16"}, "vllm": {"source": {"repo": REPO}}}
    folder = write_sources(tmp_path, {"tiny": intent}, {"t4": T4})
    assert catalog.load(folder).models["tiny"].weights.repo == REPO
    write_sources(tmp_path, {"tiny": intent | {"engine": "llama.cpp"}}, {"t4": T4})
    assert catalog.load(folder).models["tiny"].weights.repo == "org/tiny-GGUF"


def test_facts_of_another_kind_are_refused(tmp_path, locked):
    locked()
    [kept] = (tmp_path / "catalog" / "headers").glob("*.json.gz")
    assert headers.read(tmp_path / "catalog", kept.name.removesuffix(".json.gz"))
    with pytest.raises(CorralError, match="cannot be read"):
        vllm_seat.Facts.parse(json.dumps({"kind": "other"}).encode())
