"""The requests in flight in llama-swap's stream of events, in the forms of the pinned version and of v250.

The lines are recorded ones, shortened: v250 is in no registry of packages, so no test can run it.
"""

from __future__ import annotations

import json

import pytest

from corral.engine.llama_swap import InFlight, in_flight_in

REQUEST = {"id": "7", "timestamp": "2026-01-01T00:00:10.5Z", "model": "chat", "req_path": "/v1/chat/completions"}
OTHERS = ["event:message", "", 'data:{"type":"modelStatus","data":"[]"}']


def event(**state) -> str:
    return "data:" + json.dumps({"type": "inflight", "data": json.dumps(state)}, separators=(",", ":"))


@pytest.mark.parametrize(
    ("line", "models"),
    [
        pytest.param(event(total=0, requests=[]), [], id="pinned-none"),
        pytest.param(event(total=1, requests=[REQUEST]), ["chat"], id="pinned-one"),
        pytest.param(event(operation="snapshot"), [], id="v250-none"),
        pytest.param(event(operation="snapshot", requests=[REQUEST, REQUEST]), ["chat", "chat"], id="v250-two"),
    ],
)
def test_the_first_complete_state_has_the_requests(line, models):
    found = in_flight_in([*OTHERS, line, event(operation="snapshot", requests=[REQUEST])])
    assert found == [InFlight(model, 1767225610.5) for model in models]


@pytest.mark.parametrize("change", [{"operation": "upsert", "request": REQUEST}, {"operation": "remove", "id": "7"}])
def test_a_change_before_the_complete_state_is_not_taken_for_one(change):
    assert in_flight_in([event(**change), event(operation="snapshot", requests=[REQUEST])])
    assert in_flight_in([event(**change)]) is None


def test_a_state_of_no_known_form_is_no_empty_one():
    with pytest.raises(KeyError):
        in_flight_in([event(total=0)])
