"""When predicted and measured agree, and the sentence when they do not."""

from __future__ import annotations

import pytest

from corral.catalog.intent import DeclaredVram, Model
from corral.catalog.intent import Source as Files
from corral.catalog.ledger import Ledger, Measurement, Source, argv_sha256
from corral.lock.lock import Lock
from corral.measure.comparison import LIMIT, compare
from corral.vram.prediction import MIB, Bytes, Rule
from tests.support import locked_catalog
from tests.support.locked_catalog import prediction

ARGV = ("llama-server", "-m", "model.gguf")
CONTEXT = Rule(name="cuda-context-and-pools", bytes=100 * MIB, source="a driver")
COPIES = Rule(name="f16-scratch-for-quantised-kv", bytes=10 * MIB, source="a kernel")
MEASURED = 1110 * MIB
"""What the driver should find: 1000 MiB of buffers, and both rules."""


def locked(*, declared: int | None = None, unmeasured: str | None = None) -> Lock:
    parts = Bytes(weights=900 * MIB, context=60 * MIB, compute=40 * MIB, projector=0)
    known = {"gpu": parts, "host": parts, "rules": (CONTEXT, COPIES), "gpu_bytes": MEASURED}
    nothing = {"gpu": None, "host": None, "rules": (), "gpu_bytes": None, "unmeasured": unmeasured}
    model = Model(
        source=Files(repo="org/m", quant="Q8_0"),
        card="t4",
        context=1024,
        modalities=("text",),
        vram=DeclaredVram(declared_mib=declared // MIB, why="measured") if declared else None,
    )
    predicted = prediction(MIB, headers=("c" * 64,), **(nothing if unmeasured else known))
    entry = locked_catalog.entry("m", model, predicted, argv=ARGV)
    return Lock(sources={}, images={}, cards={}, models={"m": entry})


def measured(size: int, *, source: Source = "nvidia-smi", device: str = "Tesla T4", **changes) -> Measurement:
    on_card = device != "CPU"
    facts = {
        "model": "m",
        "argv_sha256": argv_sha256(ARGV),
        "engine": "a build",
        "device": device,
        "source": source,
        "date": "2026-11-21T14:42:47Z",
        "gpu_bytes": size if on_card else 0,
        "host_bytes": None if on_card else size,
        "predicted_gpu_bytes": 1 if on_card else 0,
        "predicted_host_bytes": 1000 * MIB,
    }
    return Measurement(**facts | changes)


def problem(lock: Lock, one: Measurement) -> str:
    compared, outdated = compare(lock, Ledger(measurements=(one,)))
    assert not outdated
    (only,) = compared
    return only.problem


@pytest.mark.parametrize("factor", [1.001 - LIMIT, 1.0, 0.999 + LIMIT])
def test_up_to_the_limit_they_agree(factor):
    assert problem(locked(), measured(round(MEASURED * factor))) == ""


@pytest.mark.parametrize(("factor", "word"), [(0.96, "4.0% less"), (1.04, "4.0% more")])
def test_beyond_the_limit_both_figures_are_named(factor, word):
    message = problem(locked(), measured(round(MEASURED * factor)))
    assert f"m: predicted 1,110 MiB, measured {-(-round(MEASURED * factor) // MIB):,} MiB on Tesla T4" in message
    assert word in message


def test_the_driver_counts_all_rules_and_the_engine_only_those_in_its_own_buffers():
    assert problem(locked(), measured(1110 * MIB)) == ""
    assert problem(locked(), measured(1010 * MIB)) != ""
    assert problem(locked(), measured(1010 * MIB, source="engine-report")) == ""
    assert problem(locked(), measured(1110 * MIB, source="engine-report")) != ""


def test_the_lock_of_now_counts_and_not_the_one_of_the_measurement():
    assert problem(locked(), measured(MEASURED, predicted_gpu_bytes=9999 * MIB)) == ""


def test_without_a_card_the_host_is_compared_with_what_was_predicted_then():
    on_cpu = {"source": "engine-report", "device": "CPU"}
    assert problem(locked(), measured(1000 * MIB, **on_cpu)) == ""
    assert "measured 1,100 MiB on CPU" in problem(locked(), measured(1100 * MIB, **on_cpu))


def test_a_declaration_that_covers_the_measurement_settles_it():
    assert problem(locked(declared=2000 * MIB), measured(1900 * MIB)) == ""
    assert problem(locked(unmeasured="a new architecture", declared=2000 * MIB), measured(1500 * MIB)) == ""


def test_a_declaration_below_the_measurement_is_named():
    message = problem(locked(unmeasured="a new architecture", declared=2000 * MIB), measured(2001 * MIB))
    assert "declared 2,000 MiB, measured 2,001 MiB" in message


def test_a_measurement_of_another_command_line_or_model_is_left_over():
    others = (measured(MEASURED, argv_sha256="f" * 64), measured(MEASURED, model="gone"))
    assert compare(locked(), Ledger(measurements=others)) == ([], list(others))
