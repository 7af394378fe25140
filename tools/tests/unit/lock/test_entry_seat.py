"""The seat: the largest of what is predicted, declared and measured, and which of them it is."""

from __future__ import annotations

import pytest

from corral.catalog.intent import DeclaredVram, Model
from corral.catalog.ledger import OnCard
from corral.catalog.source import Source
from corral.vram.prediction import MIB
from tests.support import locked_catalog
from tests.support.locked_catalog import prediction


def entry(predicted, declared, measured):
    model = Model(source=Source(repo="org/m", quant="Q8_0"), card="t4", context=1, modalities=("text",))
    if declared:
        model = model.model_copy(update={"vram": DeclaredVram(declared_mib=declared, why="a test")})
    nothing = {"gpu": None, "host": None, "rules": (), "gpu_bytes": None, "unmeasured": "it crashed"}
    found = prediction(predicted) if predicted else prediction(MIB, **nothing)
    facts = {"device": "Tesla T4", "source": "nvidia-smi", "engine": "b1", "date": "2026-11-21T00:00:00Z"}
    on_card = OnCard(gpu_bytes=measured, **facts) if measured is not None else None
    return locked_catalog.entry("m", model, found, measured=on_card)


@pytest.mark.parametrize(
    ("predicted", "declared", "measured", "size", "mib", "basis"),
    [
        (5 * MIB, None, None, 5 * MIB, 5, "predicted"),
        (5 * MIB + 1, None, None, 5 * MIB + 1, 6, "predicted"),
        (5 * MIB, 6, None, 6 * MIB, 6, "declared"),
        (5 * MIB, 6, 6 * MIB + 1, 6 * MIB + 1, 7, "measured"),
        (5 * MIB, None, 4 * MIB, 5 * MIB, 5, "predicted"),
        (5 * MIB, None, 0, 5 * MIB, 5, "predicted"),
        (None, 6, None, 6 * MIB, 6, "declared"),
        (None, 6, 7 * MIB, 7 * MIB, 7, "measured"),
        (5 * MIB, 5, 5 * MIB, 5 * MIB, 5, "predicted"),
        (5 * MIB, 6, 6 * MIB, 6 * MIB, 6, "declared"),
    ],
)
def test_the_largest_claim_is_the_seat(predicted, declared, measured, size, mib, basis):
    seat = entry(predicted, declared, measured).seat

    assert (seat.bytes, seat.mib, seat.basis) == (size, mib, basis)
