"""The engine takes what was predicted: real loads of small models beside the count without their weights."""

from __future__ import annotations

import re

import pytest

from corral.demo import tiny_gguf
from corral.vram.gguf_header import canonical, parse
from corral.vram.oracle import ask
from tests.support.engine_process import PLAIN_FLAGS, engine

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
