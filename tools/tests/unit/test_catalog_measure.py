"""A model's VRAM rows: measured by the real engine from its header alone, declared where it cannot, never guessed."""

from __future__ import annotations

import pytest

from corral.agent.lock_file import LockedFile
from corral.catalog.argv import llama_server_argv
from corral.catalog.digest import argv_sha256
from corral.catalog.intent import DeclaredVram, Model, Source
from corral.engine import embedded
from corral.engine.embedded import ENGINE
from corral.errors import EngineCannotMeasure, ProgramMissing, Refused, UnreadableHeader
from corral.hub.resolve import Resolved
from corral.lock import headers
from corral.lock.predict import EngineMeasurer
from corral.lock.predicted import MIB, mib
from corral.vram import from_header
from tests.support import gguf_models

QWEN, PROJECTOR = "qwen3-8b-q4km", "mmproj-qwen3vl-8b-f16"
VISION = {"modalities": ("text", "image"), "context": 3072}


@pytest.fixture
def catalog(tmp_path):
    """A catalog folder with sparse models in it."""
    for name in (QWEN, "qwen3vl-8b-q4km", PROJECTOR):
        gguf_models.write(name, tmp_path / f"{name}.gguf")
    return tmp_path


def locked(catalog, *names):
    """What `resolve` says about files on disk, less their hashes, which nobody looks at here."""
    files = [catalog / f"{name}.gguf" for name in names]
    return Resolved(
        None,
        None,
        None,
        tuple(
            LockedFile(file.name, "projector" if "mmproj" in file.name else "model", file.stat().st_size, "0" * 64)
            for file in files
        ),
    )


def measure(catalog, *names, known=(), **intent):
    intent = {"context": 16384, "modalities": ("text",), **intent}
    model = Model(source=Source(path=f"{names[0]}.gguf"), card="t4", **intent)
    resolved = locked(catalog, *names)
    argv = llama_server_argv("m", model, resolved.files)
    return model, argv, EngineMeasurer(catalog).measure("m", model, resolved, argv, known)


def test_the_rows_are_what_the_engine_says_and_add_up(catalog):
    _, argv, found = measure(catalog, QWEN)
    rows = found.vram

    assert (rows.engine, rows.argv_sha256, rows.context_trained) == (ENGINE, argv_sha256(argv), 40960)
    assert rows.gpu.weights == 4_671_766_528
    assert rows.gpu.context == 16384 * 36 * 2 * 1024 * 2
    assert rows.gpu_total == rows.gpu.total + sum(rule.bytes for rule in rows.rules)
    assert 6900 < mib(rows.gpu_total) < 7100
    assert [rung.context for rung in rows.ladder] == [2048, 4096, 8192, 16384, 32768, 40960]
    assert rows.ladder[3].gpu_total == rows.gpu_total
    assert list(rows.problems()) == []
    assert (rows.projector_type, rows.declared, rows.unmeasured) == (None, None, None)


def test_a_projector_has_rows_and_a_type(catalog):
    _, _, found = measure(catalog, "qwen3vl-8b-q4km", PROJECTOR, **VISION)

    assert found.vram.projector_type == "F16"
    assert found.vram.gpu.projector > 1_159_000_000
    assert len(found.vram.headers) == 2
    assert set(found.headers) == set(found.vram.headers)


def test_with_the_headers_at_hand_nothing_is_read(catalog):
    _, _, first = measure(catalog, QWEN)
    headers.write(catalog, first.headers)
    (catalog / f"{QWEN}.gguf").unlink()
    (catalog / f"{QWEN}.gguf").touch()  # as long as it must be, and nothing in it

    _, _, again = measure(catalog, QWEN, known=first.vram.headers, context=8192)

    assert again.vram.gpu.weights == first.vram.gpu.weights
    assert again.vram.gpu.context * 2 == first.vram.gpu.context
    assert again.vram.ladder == first.vram.ladder


def test_a_damaged_header_is_read_anew(catalog):
    _, _, first = measure(catalog, QWEN)
    headers.write(catalog, first.headers)
    next((catalog / "headers").iterdir()).write_bytes(b"")

    _, _, again = measure(catalog, QWEN, known=first.vram.headers)

    assert again == first


def test_rows_are_current_only_for_their_own_command_line_and_headers(catalog):
    model, argv, found = measure(catalog, QWEN)
    measurer = EngineMeasurer(catalog)
    assert not measurer.is_current(model, found.vram, argv), "the headers are not there yet"
    headers.write(catalog, found.headers)

    assert measurer.is_current(model, found.vram, argv)
    assert not measurer.is_current(model, found.vram, [*argv, "--swa-full"])
    assert not measurer.is_current(model, found.vram.model_copy(update={"engine": "b1"}), argv)
    assert not measurer.is_current(model, found.vram.model_copy(update={"rules_version": 0}), argv)
    declared = model.model_copy(update={"vram": DeclaredVram(declared_mib=9000, why="seen")})
    assert not measurer.is_current(declared, found.vram, argv)


def test_more_may_be_declared_than_was_measured(catalog):
    _, _, found = measure(catalog, QWEN, vram=DeclaredVram(declared_mib=8000, why="nvidia-smi under load"))

    assert found.vram.gpu_total == 8000 * MIB
    assert found.vram.is_declared
    assert found.vram.measured < 7100 * MIB
    assert list(found.vram.problems()) == []


def test_less_may_not(catalog):
    """What the homelab did that corral learns from: it budgeted 5000 MiB for this model, and nothing noticed."""
    with pytest.raises(Refused, match="declares 5,000 MiB, and the engine measures 7,0") as caught:
        measure(catalog, QWEN, vram=DeclaredVram(declared_mib=5000, why="the log said so"))
    assert "set declared_mib to 70" in caught.value.next_step


def test_a_context_beyond_the_trained_one_needs_stretched_positions(catalog):
    with pytest.raises(Refused, match="its context is 50,000, and it was trained for 40,960 tokens") as caught:
        measure(catalog, QWEN, context=50_000)
    assert "m.yaml" in caught.value.next_step

    _, _, found = measure(catalog, QWEN, context=50_000, args={"rope-scaling": "yarn", "rope-scale": 2})
    assert found.vram.gpu.context > 7_000_000_000
    assert found.vram.context_trained == 40_960


@pytest.mark.parametrize(
    "args",
    [
        {"rope-scaling": "none"},
        {"rope-scaling": "none", "rope-scale": 2},
        {"rope-scale": 1},
        {"rope-freq-scale": 1},
        {"yarn-orig-ctx": 32768},
    ],
)
def test_what_does_not_stretch_positions_is_no_rope_scaling(catalog, args):
    with pytest.raises(Refused, match="was trained for") as caught:
        measure(catalog, QWEN, context=50_000, args=args)
    assert "args: {rope-scaling: yarn, rope-scale: 2}" in caught.value.next_step


@pytest.mark.parametrize("args", [{"rope-scale": 2}, {"rope-freq-scale": 0.5}, {"rope-freq-base": 5_000_000}])
def test_what_stretches_positions_is_rope_scaling(catalog, args):
    assert measure(catalog, QWEN, context=50_000, args=args)[2].vram.context_trained == 40_960


def test_many_slots_of_a_trained_context_are_fine(catalog):
    _, _, found = measure(catalog, QWEN, context=20_480, parallel=4)

    assert found.vram.gpu.context == 4 * 20_480 * 36 * 2 * 1024 * 2


@pytest.fixture
def unknown(catalog):
    """A model of an architecture that this engine has never heard of."""
    path = catalog / f"{QWEN}.gguf"
    with path.open("r+b") as file:
        data = file.read(1 << 16)
        file.seek(0)
        file.write(data.replace(b"qwen3", b"zwen9"))
    return catalog


def test_what_the_engine_does_not_know_is_an_error_that_offers_a_declaration(unknown):
    with pytest.raises(EngineCannotMeasure, match="unknown model architecture") as caught:
        measure(unknown, QWEN)
    assert "declared_mib" in caught.value.next_step


def test_or_is_declared_with_the_reason_beside_it(unknown):
    _, _, found = measure(unknown, QWEN, vram=DeclaredVram(declared_mib=7000, why="seen on a T4"))
    rows = found.vram

    assert (rows.gpu, rows.host, rows.rules, rows.ladder, rows.context_trained) == (None, None, (), (), None)
    assert rows.gpu_total == 7000 * MIB
    assert "unknown model architecture" in rows.unmeasured
    assert (rows.declared.mib, rows.declared.why) == (7000, "seen on a T4")
    assert rows.is_declared
    assert list(rows.problems()) == []


def test_a_file_that_is_no_gguf_is_an_error_unless_declared(catalog):
    (catalog / "odd.gguf").write_bytes(b"GGJT" + bytes(1000))

    with pytest.raises(UnreadableHeader, match="begins with b'GGJT'"):
        measure(catalog, "odd")

    _, _, found = measure(catalog, "odd", vram=DeclaredVram(declared_mib=10, why="tried it"))
    assert (found.vram.headers, found.headers) == ((), {})
    assert "begins with b'GGJT'" in found.vram.unmeasured


def test_two_roads_that_disagree_stop_the_lock_with_both_numbers(catalog, monkeypatch):
    """No model is known on which they do, so one of them is bent here."""
    true = from_header._weights
    monkeypatch.setattr(from_header, "_weights", lambda tensors: (true(tensors)[0] + 1, true(tensors)[1]))

    with pytest.raises(EngineCannotMeasure, match="4,671,766,528 bytes, the header gives 4,671,766,529"):
        measure(catalog, QWEN)


def test_without_the_engine_the_error_says_where_to_lock(catalog, monkeypatch):
    """A declaration is no way round it: it is not known then that the engine cannot."""
    monkeypatch.setattr(embedded, "WHEEL_VERSION", "2026.99.1")

    with pytest.raises(ProgramMissing, match="cannot be measured here: The embedded engine is xllamacpp") as caught:
        measure(catalog, QWEN, vram=DeclaredVram(declared_mib=9000, why="seen"))
    assert "pip install xllamacpp==2026.99.1" in caught.value.next_step
    assert "commit lock.json and headers/" in caught.value.next_step
