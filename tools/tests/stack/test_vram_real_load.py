"""The engine takes what was predicted: real loads of small models beside the count without their weights."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import numpy as np
import pytest

from corral import paths
from corral.demo import tiny_gguf
from corral.engine import log_lines
from corral.errors import EngineCannotPredict
from corral.vram.gguf_header import canonical, parse
from corral.vram.oracle import ask
from tests.support import task_models
from tests.support.adapters import header_of, write_adapter
from tests.support.engine_process import PLAIN_FLAGS, engine, post, question, wait_for

pytestmark = pytest.mark.timeout(120)

MIB = 1 << 20
FLAGS = ("-np", "1", "-ngl", "99", "-fa", "on")
LINES = {
    "weights": r"load_tensors: +CPU\w* model buffer size = +([0-9.]+) MiB",
    "context": r"llama_kv_cache: +CPU KV buffer size = +([0-9.]+) MiB",
    "compute": r"sched_reserve: +CPU compute buffer size = +([0-9.]+) MiB",
    "projector": r"(?:load_hparams: model size: +|reserve_compute_meta: +CPU compute buffer size = +)([0-9.]+) MiB",
}


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return tiny_gguf.write_all(tmp_path_factory.mktemp("tiny"))


def loaded(folder, *flags):
    """MiB by what they are for, as the loading engine prints them (each rounded to 0.01); and how many buffers."""
    with engine(folder, *flags, *FLAGS, "--log-verbosity", "4") as running:
        running.wait_until_ready()
        log = running.output
    found = {kind: [float(size) for size in re.findall(pattern, log)] for kind, pattern in LINES.items()}
    return {kind: (sum(sizes), len(sizes)) for kind, sizes in found.items()}


def predicted(files, *flags):
    headers = [canonical(parse(path.read_bytes(), file_size=path.stat().st_size)) for path in files]
    (found,) = ask(headers, [["llama-server", *map(str, flags), *FLAGS, *PLAIN_FLAGS]], gpu=False)
    return found.host


@pytest.mark.parametrize("more", [(), ("-ub", "64"), ("-ctk", "q8_0", "-ctv", "q8_0"), ("-np", "2")])
def test_a_text_model_takes_what_was_predicted(tiny, tmp_path, more):
    flags = ("-m", tiny.text, *more)
    real, host = loaded(tmp_path, *flags), predicted([tiny.text], *flags)
    for kind in ("weights", "context", "compute"):
        mib, buffers = real[kind]
        assert buffers == 1, kind
        assert getattr(host, kind) / MIB == pytest.approx(mib, abs=0.0051), kind


def test_a_projector_takes_what_was_predicted(tiny, tmp_path):
    flags = ("-m", tiny.vision, "--mmproj", tiny.projector, "--image-max-tokens", "64")
    real, host = loaded(tmp_path, *flags), predicted([tiny.vision, tiny.projector], *flags)
    mib, buffers = real["projector"]
    assert buffers == 2
    assert host.projector / MIB == pytest.approx(mib, abs=0.02)


LAYERED = 1000
"""Width of the feed-forward part of the base of adapters and drafts."""
DRAFT = ("-md", "draft.gguf", "--spec-type", "draft-simple", "--spec-draft-ngl", "99")
DRAFT += ("--no-spec-draft-backend-sampling",)
WHOLE_TEXTS = ("-b", "2048", "-ub", "2048")
CASES = {
    "embedding": ("embedding.gguf", [], ("--embedding", *WHOLE_TEXTS)),
    "embedding by an encoder": ("encoder.gguf", [], ("--embedding", "-b", "1024", "-ub", "1024")),
    "reranker": ("reranker.gguf", [], ("--rerank", *WHOLE_TEXTS)),
    "no adapter, no draft": ("base.gguf", [], ()),
    "adapter of rank 16": ("base.gguf", ["rank-16.gguf"], ("--lora", "rank-16.gguf")),
    "adapter of rank 64": ("base.gguf", ["rank-64.gguf"], ("--lora", "rank-64.gguf")),
    "adapter of rank 4000, and one of rank 16": (
        *("base.gguf", ["rank-4000.gguf", "rank-16.gguf"]),
        ("--lora-scaled", "rank-4000.gguf:1,rank-16.gguf:0.5"),
    ),
    "draft model": ("base.gguf", ["draft.gguf"], DRAFT),
    "draft model with a cache of q8_0, and an adapter": (
        *("base.gguf", ["draft.gguf", "rank-16.gguf"]),
        (*DRAFT, "--spec-draft-type-k", "q8_0", "--spec-draft-type-v", "q8_0", "-np", "2", "--lora", "rank-16.gguf"),
    ),
}
PARTS = ("weights", "context", "compute", "adapters", "draft")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Models of other tasks; a base of two layers with adapters of several ranks, and a wider draft model."""
    folder = tmp_path_factory.mktemp("parts")
    task_models.write_embedding(folder / "embedding.gguf")
    task_models.write_encoder(folder / "encoder.gguf")
    task_models.write_reranker(folder / "reranker.gguf")
    tiny_gguf.write_text(folder / "base.gguf", vision=True, n_ff=LAYERED)
    tiny_gguf.write_text(folder / "draft.gguf", vision=True, n_ff=2 * LAYERED)
    base = header_of(folder / "base.gguf")
    write_adapter(folder / "rank-16.gguf", base, 16)
    write_adapter(folder / "rank-64.gguf", base, 64)
    write_adapter(folder / "rank-4000.gguf", base, 4000, of=("ffn_up",), kind=np.float16)
    return folder


def reported(running):
    """MiB by part, as the engine has printed its buffers; those after the load of the draft begins are the draft's."""
    running.wait_until_ready()
    load = wait_for(lambda: log_lines.whole_load(running.output), what="the end of the load in the log")
    main, _, draft = load.partition("loading draft model")
    uses = {"model": "weights", "KV": "context", "compute": "compute", "LoRA": "adapters"}
    found = dict.fromkeys(PARTS, 0.0)
    for one in log_lines.buffers(main):
        if part := uses.get(one.use):
            found[part] += one.size / MIB
    found["draft"] = sum(one.size for one in log_lines.buffers(draft) if one.use in uses) / MIB
    return found


def rows(folder, logs):
    """Of each case: its name, the predicted bytes and the engine's MiB of every part."""
    for name, (model, more, flags) in CASES.items():
        files = [folder / one for one in (model, *more)]
        headers = [canonical(header_of(one)) for one in files]
        (found,) = ask(headers, [["llama-server", "-m", model, *PLAIN_FLAGS, *FLAGS, *flags]], gpu=False)
        absolute = [_absolute(word, folder) for word in flags]
        with engine(logs, "-m", folder / model, *FLAGS, *absolute, "--log-verbosity", "4") as running:
            yield name, [getattr(found.host, part) for part in PARTS], reported(running)


def _absolute(word, folder):
    """*word* with the folder before each file in it."""
    return ",".join(str(folder / one) if ".gguf" in one else one for one in word.split(","))


def test_tasks_adapters_and_drafts_take_what_was_predicted_and_the_documentation_has_it(folder, tmp_path):
    table = []
    for name, ours, theirs in rows(folder, tmp_path):
        for part, size in zip(PARTS, ours, strict=True):
            # Each buffer is rounded to 0.01 MiB; a draft has three.
            rounding = 0.0051 * (4 if part == "draft" else 2 if part == "adapters" else 1)
            assert size / MIB == pytest.approx(theirs[part], abs=rounding), (name, part)
        table.append(f"| {name} | {' | '.join(f'{size:,}' for size in ours)} | {sum(theirs.values()):.2f} |")
    document = (paths.REPOSITORY / "docs" / "architecture" / "vram.md").read_text()
    missing = [row for row in table if row not in document]
    assert not missing, "\n".join(table)


def test_a_drafted_answer_takes_no_more_than_the_load(folder, tmp_path):
    absolute = [_absolute(word, folder) for word in DRAFT]
    with engine(tmp_path, "-m", folder / "base.gguf", *FLAGS, *absolute, "--log-verbosity", "4") as running:
        loaded = reported(running)
        assert loaded["draft"] > 1
        status, body = post(f"{running.root}/v1/chat/completions", question("Hello."))
        assert (status, json.loads(body)["timings"]["draft_n"] > 0) == (200, True), body
        after = running.output[running.output.index("model loaded") :]
    assert not [one for one in log_lines.buffers(after) if one.use in ("compute", "KV", "model")]


def test_an_adapter_of_another_model_is_refused_with_its_name(folder, tmp_path):
    other = tmp_path / "other.gguf"
    write_adapter(other, header_of(folder / "base.gguf"), 4, architecture="qwen3")
    with pytest.raises(EngineCannotPredict, match=r"other\.gguf"):
        predicted([folder / "base.gguf", other], "-m", folder / "base.gguf", "--lora", "other.gguf")


@pytest.mark.parametrize("more", [(), ("-np", "3"), (*DRAFT, "-np", "3", "--spec-draft-n-max", "6"), ("--embedding",)])
def test_as_many_outputs_are_counted_as_llama_server_reserves(folder, tmp_path, more):
    absolute = [_absolute(word, folder) for word in more]
    words = ["-m", str(folder / "base.gguf"), *PLAIN_FLAGS, *FLAGS, *absolute]
    with engine(tmp_path, *words[:2], *FLAGS, *absolute, "--log-verbosity", "4") as running:
        reported(running)
        (real, *_) = re.findall(r"n_outputs_max += (\d+)", running.output)
    program = (
        "import sys; from corral.engine import embedded; from corral.vram import oracle_child as child;"
        "params = embedded.parse(sys.argv[1:]).params; child._as_llama_server_does(params);"
        "print('counted', params.n_outputs_max)"
    )
    done = subprocess.run([sys.executable, "-c", program, *words], capture_output=True, text=True, check=True)
    assert done.stdout.split()[-1] == real
