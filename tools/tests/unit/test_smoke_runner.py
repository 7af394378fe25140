"""Which model is checked, in which order, and how often it is loaded.

The endpoint is the stub of tests.support.stub_endpoint, which states why.
"""

from __future__ import annotations

import socket

import pytest

from corral.errors import CannotRun
from corral.smoke.questions import Subject
from tests.support import stub_endpoint
from tests.support.smoke_run import EYES, TEXT, outcome, smoke
from tests.support.stub_endpoint import (
    answers,
    dies,
    fails_to_load,
    first_loads,
    hangs_up,
    in_turn,
    replies,
    serve,
    stalls,
)

# --- an honest endpoint ---------------------------------------------------------------------------------------------


def test_an_honest_endpoint_passes_every_check():
    with serve("eyes", "text") as stub:
        report = smoke(stub, TEXT, EYES)
    assert report.passed
    assert report.endpoint == stub.root
    assert [(line.model, line.check, line.status) for line in report.checks] == [
        ("*", "liveness", "passed"),
        ("*", "catalog", "passed"),
        ("text", "answer", "passed"),
        ("text", "stream", "passed"),
        ("eyes", "answer", "passed"),
        ("eyes", "images", "passed"),
        ("eyes", "images-swapped", "passed"),
        ("eyes", "stream", "passed"),
    ]


def test_a_pass_shows_its_evidence():
    with serve("eyes") as stub:
        report = smoke(stub, EYES)
    assert outcome(report, "eyes", "images") == ("passed", 'answered "red, blue"')
    assert outcome(report, "eyes", "images-swapped") == ("passed", 'answered "blue, red"')
    assert outcome(report, "eyes", "stream") == ("passed", 'streamed "OK"')


def test_liveness_states_that_it_proves_little():
    with serve("text") as stub:
        report = smoke(stub, TEXT)
    assert outcome(report, "*", "liveness") == (
        "passed",
        "liveness only: this is 200 even when no model can load",
    )


def test_each_step_is_reported_when_it_happens():
    lines = []
    with serve("text") as stub:
        smoke(stub, TEXT, report=lines.append)
    assert [line.split()[:3] for line in lines] == [
        ["passed", "*", "liveness"],
        ["passed", "*", "catalog"],
        ["text", "is", "not"],
        ["passed", "text", "answer"],
        ["passed", "text", "stream"],
    ]
    assert lines[2] == "text is not resident: its first check loads it …"


def test_the_key_is_enough_where_one_is_wanted():
    with serve("text", api_key="secret") as stub:
        assert smoke(stub, TEXT, api_key="secret").passed


# --- order and loads ------------------------------------------------------------------------------------------------


def test_resident_models_come_first_and_each_is_loaded_at_most_once():
    subjects = [Subject(name, sees=True) for name in ("a", "b", "c")]
    with serve("a", "b", "c", running={"b": "ready"}) as stub:
        assert smoke(stub, *subjects).passed
    assert [model for model, _ in stub.asked] == ["b"] * 4 + ["a"] * 4 + ["c"] * 4
    assert stub.loads == ["a", "c"]


def test_a_model_that_is_starting_counts_as_resident():
    with serve("a", "b", running={"b": "starting"}) as stub:
        smoke(stub, Subject("a"), Subject("b"))
    assert stub.asked[0] == ("b", "answer")


def test_a_model_that_is_stopping_does_not_count_as_resident():
    with serve("a", "b", running={"b": "stopping"}) as stub:
        smoke(stub, Subject("a"), Subject("b"))
    assert stub.asked[0] == ("a", "answer")


def test_the_stream_is_the_last_question_to_a_model():
    with serve("eyes") as stub:
        smoke(stub, EYES)
    assert stub.asked[-1] == ("eyes", "stream")


@pytest.mark.parametrize("fault", [fails_to_load, dies, stalls, hangs_up], ids=lambda fault: fault.__name__)
def test_a_model_that_is_gone_is_not_loaded_a_second_time(fault):
    with serve("eyes", acts={("eyes", "*"): fault}) as stub:
        report = smoke(stub, EYES, limit_s=0.3 if fault is stalls else 10)
    assert stub.asked == [("eyes", "answer")]
    assert len(stub.loads) <= 1
    assert outcome(report, "eyes", "stream") == (
        "skipped",
        "not checked: the model is not there after the check answer, and a question would load it again",
    )


def test_a_wrong_answer_does_not_keep_the_other_checks_from_being_made():
    with serve("eyes", acts={("eyes", "answer"): first_loads(answers(""))}) as stub:
        report = smoke(stub, EYES)
    assert outcome(report, "eyes", "answer")[0] == "failed"
    assert outcome(report, "eyes", "images")[0] == "passed"
    assert outcome(report, "eyes", "stream")[0] == "passed"


def test_a_model_that_fails_does_not_keep_the_others_from_being_asked():
    with serve("eyes", "text", acts={("text", "*"): fails_to_load}) as stub:
        report = smoke(stub, TEXT, EYES)
    assert outcome(report, "text", "answer")[0] == "failed"
    assert outcome(report, "eyes", "stream")[0] == "passed"


# --- resident only --------------------------------------------------------------------------------------------------


def test_resident_only_never_causes_a_load():
    with serve("eyes", "text", running={"text": "ready"}) as stub:
        report = smoke(stub, EYES, TEXT, resident_only=True)
    assert stub.loads == []
    assert {model for model, _ in stub.asked} == {"text"}
    assert report.passed
    assert outcome(report, "eyes", "images") == (
        "skipped",
        "not resident, and --resident-only never causes a load",
    )


def test_resident_only_reads_residency_again_before_each_question():
    def is_evicted_by_another_client(exchange):
        exchange.stub.running.clear()
        answers("OK")(exchange)

    with serve("text", running={"text": "ready"}, acts={("text", "answer"): is_evicted_by_another_client}) as stub:
        report = smoke(stub, TEXT, resident_only=True)
    assert stub.loads == []
    assert outcome(report, "text", "answer")[0] == "passed"
    assert outcome(report, "text", "stream")[0] == "skipped"


def test_nothing_resident_is_no_pass():
    with serve("text") as stub:
        report = smoke(stub, TEXT, resident_only=True)
    assert not report.passed
    assert report.failed == ()
    assert stub.asked == stub.loads == []


def test_resident_only_cannot_be_kept_where_residency_is_unknown():
    with (
        serve("text", running=None) as stub,
        pytest.raises(CannotRun, match=r"--resident-only cannot be kept at .*: /running answers HTTP 404"),
    ):
        smoke(stub, TEXT, resident_only=True)
    assert stub.paths == ["/running"]


@pytest.mark.parametrize(
    ("act", "why"),
    [
        (replies(200, "<html>", "text/html"), "/running is not llama-swap's"),
        (replies(200, {"running": {"text": "ready"}}), "/running is not llama-swap's"),
        (replies(200, {"running": [{"model": "text"}]}), "/running is not llama-swap's"),
        (replies(401, {"error": "unauthorized"}), "/running answers HTTP 401"),
        (stalls, r"/running gave no answer within 0\.2 s"),
    ],
    ids=["a-web-page", "no-list", "no-state", "no-key", "a-stall"],
)
def test_an_unreadable_residency_counts_as_unknown(act, why):
    with serve("text", acts={"/running": act}) as stub, pytest.raises(CannotRun, match=why):
        smoke(stub, TEXT, resident_only=True, limit_s=0.2)
    assert stub.loads == stub.asked == []


def test_residency_lost_on_the_way_fails_closed():
    running = replies(200, {"running": [{"model": "text", "state": "ready"}]})
    acts = {"/running": in_turn(running, running, running, replies(404, ""))}
    with serve("text", running={"text": "ready"}, acts=acts) as stub:
        report = smoke(stub, TEXT, resident_only=True)
    status, reason = outcome(report, "text", "stream")
    assert status == "failed"
    assert "it is not known any more whether it is resident; /running answers HTTP 404" in reason
    assert stub.asked == [("text", "answer")]


def test_an_endpoint_without_running_is_smoked_all_the_same():
    lines = []
    with serve("text", running=None, health=404) as stub:
        report = smoke(stub, TEXT, is_local=False, report=lines.append)
    assert report.passed
    assert not any("is not resident" in line for line in lines)
    assert outcome(report, "*", "liveness") == ("skipped", "this endpoint is no llama-swap and has no /health")


# --- the endpoint itself --------------------------------------------------------------------------------------------


def test_an_endpoint_without_a_server_cannot_be_checked():
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        stub = stub_endpoint.Stub(["text"], port=unused.getsockname()[1])
        with pytest.raises(CannotRun, match=f"No server answers at {stub.root}") as error:
            smoke(stub, TEXT)
    assert error.value.next_step == "corral up --detach"


def test_a_sick_llama_swap_fails_liveness():
    with serve("text", health=500) as stub:
        assert outcome(smoke(stub, TEXT), "*", "liveness") == ("failed", 'HTTP 500 from /health: "OK"')


def test_models_missing_and_extra_are_named():
    with serve("text") as stub:
        stub.acts["/v1/models"] = replies(200, {"data": [{"id": "old"}, {"id": "older"}, {"id": "old"}]})
        status, reason = outcome(smoke(stub, TEXT), "*", "catalog")
    assert status == "failed"
    assert "missing: text; not in the catalog: old, older; listed twice: old" in reason


@pytest.mark.parametrize(
    ("act", "why"),
    [
        (replies(401, {"error": "unauthorized", "src": "llama-swap"}), "refuses our API key"),
        (replies(200, "<html><title>Login</title>", "text/html"), "a web page, no answer"),
        (replies(200, "{]"), "invalid JSON"),
        (replies(200, {"models": []}), "holds no list of models"),
        (stalls, "no answer within 0.3 s"),
    ],
    ids=["no-key", "a-web-page", "no-json", "no-list", "a-stall"],
)
def test_a_bad_list_of_models_has_its_own_reason(act, why):
    with serve("text", acts={"/v1/models": act}) as stub:
        status, reason = outcome(smoke(stub, TEXT, limit_s=0.3), "*", "catalog")
    assert status == "failed"
    assert why in reason


def test_an_endpoint_that_goes_away_fails_what_is_left():
    def closes_after_its_answer(exchange):
        exchange.server.shutdown()
        exchange.server.socket.close()
        answers("OK")(exchange)

    with serve("text", acts={("text", "answer"): closes_after_its_answer}) as stub:
        report = smoke(stub, TEXT)
    assert outcome(report, "text", "answer")[0] == "passed"
    status, reason = outcome(report, "text", "stream")
    assert status == "failed"
    assert "no server listens at the endpoint any more" in reason
