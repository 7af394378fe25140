"""The prediction of a model: by the real engine from its header alone, declared where it cannot, never guessed."""

from __future__ import annotations

from fractions import Fraction

import pytest
from pydantic import ValidationError

from corral.agent.lock_file import LockedFile
from corral.catalog.argv import llama_server_argv
from corral.catalog.catalog import Catalog
from corral.catalog.intent import DeclaredVram, Model
from corral.catalog.source import Source
from corral.engine import embedded
from corral.engine.embedded import ENGINE
from corral.errors import EngineCannotPredict, ProgramMissing, Refused, UnreadableHeader
from corral.hub.resolved import Resolved
from corral.lock import headers
from corral.lock.predict import Predictor, require_declared
from corral.vram import from_header, rules
from corral.vram.prediction import Prediction, mib
from corral.vram.rules import RULES_VERSION
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
    """What `resolve` returns for files on disk, but for their hashes, which are not read here."""
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


def of(folder):
    """As much of a catalog as a predictor needs."""
    return Catalog(folder, {}, {})


def predict(catalog, *names, known=(), runs=None, **intent):
    intent = {"context": 16384, "modalities": ("text",), **intent}
    model = Model(source=Source(path=f"{names[0]}.gguf"), card="t4", **intent)
    resolved = locked(catalog, *names)
    argv = llama_server_argv("m", model, resolved.files)
    return model, argv, Predictor(of(catalog)).predict("m", model, resolved, argv, known, runs)


@pytest.fixture(scope="module")
def qwen(tmp_path_factory):
    """The model of the plain intent, and what is predicted for it."""
    folder = tmp_path_factory.mktemp("qwen")
    gguf_models.write(QWEN, folder / f"{QWEN}.gguf")
    model, _, found = predict(folder, QWEN)
    return model, found


def test_the_rows_are_what_the_engine_counts_and_add_up(qwen):
    rows = qwen[1].prediction

    assert (rows.engine, rows.rules_version, rows.context_trained) == (ENGINE, RULES_VERSION, 40960)
    assert rows.gpu.weights == 4_671_766_528
    assert rows.gpu.context == 16384 * 36 * 2 * 1024 * 2
    assert rows.gpu_bytes == rows.gpu.total + sum(rule.bytes for rule in rows.rules)
    assert 6900 < mib(rows.gpu_bytes) < 7100
    assert [rung.context for rung in rows.ladder] == [2048, 4096, 8192, 16384, 32768, 40960]
    assert rows.ladder[3].gpu_bytes == rows.gpu_bytes
    assert (rows.projector_type, rows.unmeasured) == (None, None)


def test_what_a_build_that_takes_more_runs_has_a_row_for_it_in_the_seat_and_on_every_rung(catalog, qwen, monkeypatch):
    monkeypatch.setattr(rules, "LLAMA_CPP_BUILD", "b11063")
    alone = qwen[1].prediction
    found = predict(catalog, QWEN, runs="b11549")[2].prediction

    share = Fraction(found.gpu_bytes - alone.gpu_bytes, alone.gpu.total)
    assert Fraction(1, 1000) < share < Fraction(1, 10)
    assert [rule.name for rule in found.rules] == [
        *(rule.name for rule in alone.rules[:-1]),
        "engine-drift",
        alone.rules[-1].name,
    ]
    rows = zip(alone.ladder, found.ladder, strict=True)
    assert all(0.9 * share < Fraction(new.gpu_bytes - old.gpu_bytes, old.gpu_bytes) <= share for old, new in rows)
    assert rules.drift_of(found) == rules.expected_drift(found, "b11549")
    assert rules.drift_of(found) != rules.expected_drift(found, None)


def test_a_projector_has_rows_and_a_type(catalog):
    _, _, found = predict(catalog, "qwen3vl-8b-q4km", PROJECTOR, **VISION)

    assert found.prediction.projector_type == "F16"
    assert found.prediction.gpu.projector > 1_159_000_000
    assert len(found.prediction.headers) == 2
    assert set(found.headers) == set(found.prediction.headers)


def test_with_the_headers_beside_the_lock_nothing_is_read(catalog, qwen):
    _, first = qwen
    headers.write(catalog, first.headers)
    (catalog / f"{QWEN}.gguf").unlink()
    (catalog / f"{QWEN}.gguf").touch()  # as long as it must be, and nothing in it

    _, _, again = predict(catalog, QWEN, known=first.prediction.headers, context=8192)

    assert again.prediction.gpu.weights == first.prediction.gpu.weights
    assert again.prediction.gpu.context * 2 == first.prediction.gpu.context
    assert again.prediction.ladder == first.prediction.ladder


def test_a_damaged_header_is_read_anew(catalog, qwen):
    _, first = qwen
    headers.write(catalog, first.headers)
    next((catalog / "headers").iterdir()).write_bytes(b"")

    _, _, again = predict(catalog, QWEN, known=first.prediction.headers)

    assert again == first


def test_a_prediction_is_current_only_for_this_engine_these_rules_and_sound_headers(catalog, qwen):
    _, found = qwen
    predictor = Predictor(of(catalog))
    assert not predictor.is_current(found.prediction), "the headers are not there yet"
    headers.write(catalog, found.headers)

    assert predictor.is_current(found.prediction)
    assert not predictor.is_current(found.prediction.model_copy(update={"engine": "b1"}))
    assert not predictor.is_current(found.prediction.model_copy(update={"rules_version": RULES_VERSION + 1}))
    next((catalog / "headers").iterdir()).write_bytes(b"")
    assert not predictor.is_current(found.prediction)


@pytest.mark.parametrize(("more", "declared"), [(0, 0), (1, 1), (900, 900)])
def test_as_much_as_is_predicted_or_more_may_be_declared(catalog, qwen, more, declared):
    model, found = qwen
    enough = DeclaredVram(declared_mib=mib(found.prediction.gpu_bytes) + more, why="nvidia-smi under load")

    require_declared(of(catalog), "m", model.model_copy(update={"vram": enough}), found.prediction)
    assert enough.declared_mib == mib(found.prediction.gpu_bytes) + declared


def test_less_may_not(catalog, qwen):
    """What the homelab did that corral learns from: it budgeted 5000 MiB for this model."""
    model, found = qwen
    less = DeclaredVram(declared_mib=5000, why="the log had it")

    with pytest.raises(Refused, match="declares 5,000 MiB, and the engine predicts 7,0") as caught:
        require_declared(of(catalog), "m", model.model_copy(update={"vram": less}), found.prediction)
    assert "set declared_mib to 70" in caught.value.next_step


@pytest.mark.parametrize(
    ("harm", "why"),
    [
        ({"gpu_bytes": 1}, "add up to"),
        ({"gpu_bytes": None}, "add up to"),
        ({"rules": ()}, "add up to"),
        ({"host": None}, "must have gpu and host"),
        ({"gpu": None, "host": None}, "must have gpu and host"),
        ({"unmeasured": "it crashed"}, "must have gpu and host"),
        ({"gpu": {"weights": -1, "context": 0, "compute": 0, "projector": 0}}, "greater than or equal to 0"),
        ({"gpu": {"weights": 1, "context": 0, "compute": 0}}, "Field required"),
    ],
)
def test_a_prediction_whose_parts_contradict_one_another_is_none(qwen, harm, why):
    whole = qwen[1].prediction.model_dump()
    Prediction.model_validate(whole)

    with pytest.raises(ValidationError, match=why):
        Prediction.model_validate(whole | harm)


def test_a_context_beyond_the_trained_one_needs_stretched_positions(catalog):
    with pytest.raises(Refused, match="its context is 50,000, and it was trained for 40,960 tokens") as caught:
        predict(catalog, QWEN, context=50_000)
    assert "m.yaml" in caught.value.next_step

    _, _, found = predict(catalog, QWEN, context=50_000, args={"rope-scaling": "yarn", "rope-scale": 2})
    assert found.prediction.gpu.context > 7_000_000_000
    assert found.prediction.context_trained == 40_960


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
        predict(catalog, QWEN, context=50_000, args=args)
    assert "args: {rope-scaling: yarn, rope-scale: 2}" in caught.value.next_step


@pytest.mark.parametrize("args", [{"rope-scale": 2}, {"rope-freq-scale": 0.5}, {"rope-freq-base": 5_000_000}])
def test_what_stretches_positions_is_rope_scaling(catalog, args):
    assert predict(catalog, QWEN, context=50_000, args=args)[2].prediction.context_trained == 40_960


def test_many_slots_of_a_trained_context_are_fine(catalog):
    _, _, found = predict(catalog, QWEN, context=20_480, parallel=4)

    assert found.prediction.gpu.context == 4 * 20_480 * 36 * 2 * 1024 * 2


@pytest.fixture
def unknown(catalog):
    """A model of an architecture that this engine does not know."""
    path = catalog / f"{QWEN}.gguf"
    with path.open("r+b") as file:
        data = file.read(1 << 16)
        file.seek(0)
        file.write(data.replace(b"qwen3", b"zwen9"))
    return catalog


def test_what_the_engine_does_not_know_is_an_error_that_offers_a_declaration(unknown):
    with pytest.raises(EngineCannotPredict, match="unknown model architecture") as caught:
        predict(unknown, QWEN)
    assert "declared_mib" in caught.value.next_step


def test_or_its_prediction_holds_the_reason_where_it_is_declared(unknown):
    _, _, found = predict(unknown, QWEN, vram=DeclaredVram(declared_mib=7000, why="measured on a T4"))
    rows = found.prediction

    assert (rows.gpu, rows.host, rows.rules, rows.ladder, rows.context_trained) == (None, None, (), (), None)
    assert rows.gpu_bytes is None
    assert "unknown model architecture" in rows.unmeasured


def test_a_file_that_is_no_gguf_is_an_error_unless_declared(catalog):
    (catalog / "odd.gguf").write_bytes(b"GGJT" + bytes(1000))

    with pytest.raises(UnreadableHeader, match="begins with b'GGJT'"):
        predict(catalog, "odd")

    _, _, found = predict(catalog, "odd", vram=DeclaredVram(declared_mib=10, why="tried it"))
    assert (found.prediction.headers, found.headers) == ((), {})
    assert "begins with b'GGJT'" in found.prediction.unmeasured


def test_two_roads_that_disagree_stop_the_lock_with_both_numbers(catalog, monkeypatch):
    """No model is known on which they do, so one of them is bent here."""
    true = from_header._weights
    monkeypatch.setattr(from_header, "_weights", lambda tensors: (true(tensors)[0] + 1, true(tensors)[1]))

    with pytest.raises(EngineCannotPredict, match="4,671,766,528 bytes, the header gives 4,671,766,529"):
        predict(catalog, QWEN)


def test_without_the_engine_the_error_names_where_to_lock(catalog, monkeypatch):
    """A declaration is no way round it: it is not known then that the engine cannot."""
    monkeypatch.setattr(embedded, "WHEEL_VERSION", "2026.99.1")

    with pytest.raises(ProgramMissing, match="cannot be predicted here: The embedded engine is xllamacpp") as caught:
        predict(catalog, QWEN, vram=DeclaredVram(declared_mib=9000, why="measured"))
    assert "pip install xllamacpp==2026.99.1" in caught.value.next_step
    assert "commit lock.json and headers/" in caught.value.next_step
