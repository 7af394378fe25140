"""Each fault of an endpoint or a model fails with a reason of its own.

The endpoint is the stub of tests.support.stub_endpoint, which states why.
"""

from __future__ import annotations

import pytest

from corral.smoke import runner
from corral.smoke.questions import Subject
from tests.support.engine_process import wait_for
from tests.support.smoke_run import EYES, TEXT, outcome, reason_of, smoke
from tests.support.stub_endpoint import (
    answers,
    dies,
    drips,
    event,
    fails_to_load,
    first_loads,
    floods,
    hangs_up,
    in_turn,
    replies,
    serve,
    stalls,
    streamed,
)

# --- one reason for each fault of an answer -------------------------------------------------------------------------


def test_a_failed_load_has_the_cause_and_the_command_of_the_log():
    assert reason_of(fails_to_load) == (
        'failed to load: "unspecific error: upstream command exited prematurely"; see: corral logs text'
    )


def test_a_failed_load_is_recognised_in_newer_builds():
    error = {"message": "unspecific error: health check timed out", "type": "server_error", "code": "x"}
    reason = reason_of(replies(500, {"src": "llama-swap", "error": error}))
    assert reason.startswith('failed to load: "unspecific error: health check timed out"')


@pytest.mark.parametrize("code", ["load-failed", "no-room"])
def test_a_failed_load_is_recognised_behind_the_door(code):
    error = {"message": "The model text could not be loaded.", "type": "server_error", "code": code}
    reason = reason_of(replies(503, {"error": error}, Retry_After="30"))
    assert reason == 'failed to load: "The model text could not be loaded."; see: corral logs text'


def test_the_end_of_an_engine_is_asked_again_behind_the_door_too():
    error = {"message": "The engine of the model ended during the request.", "code": "engine-ended"}
    with serve("text", acts={("text", "*"): first_loads(replies(502, {"error": error}))}) as stub:
        status, reason = outcome(smoke(stub, TEXT), "text", "answer")
    assert (status, stub.asked) == ("failed", [("text", "answer")] * 2)
    assert "the model's process died after it was ready" in reason


def test_a_500_of_the_model_itself_is_no_failed_load():
    assert (
        reason_of(replies(500, {"error": {"message": "boom", "code": 500}}))
        == 'HTTP 500: "boom"; see: corral logs text'
    )


def test_an_empty_502_means_that_the_process_died():
    assert reason_of(dies) == (
        "HTTP 502 with an empty body: the model's process died after it was ready; see: corral logs text"
    )


def test_an_empty_502_from_a_model_that_lives_is_asked_again():
    act = first_loads(in_turn(replies(502, "", ""), answers("OK")))
    with serve("text", acts={("text", "answer"): act}) as stub:
        report = smoke(stub, TEXT)
    status, reason = outcome(report, "text", "answer")
    assert status == "passed"
    assert reason == (
        'answered "OK" (requested twice: the first answer was a 502 while llama-swap called the model ready)'
    )
    assert stub.loads == ["text"]


def test_an_empty_502_is_asked_again_only_once():
    with serve("text", acts={("text", "*"): first_loads(replies(502, "", ""))}) as stub:
        status, reason = outcome(smoke(stub, TEXT), "text", "answer")
    assert (status, stub.asked) == ("failed", [("text", "answer")] * 2)
    assert "requested twice" in reason


def test_too_many_requests_at_once_has_its_own_reason():
    error = {"message": "too many requests", "code": "concurrency_limit"}
    reason = reason_of(replies(429, {"error": error}, Retry_After="1"))
    assert reason.startswith('HTTP 429: more requests at a time than its concurrencyLimit ("too many requests")')


def test_a_missing_key_names_the_variable():
    reason = reason_of(replies(401, {"error": {"message": "Invalid API Key", "code": 401}}))
    assert 'refuses our API key ("Invalid API Key")' in reason
    assert "CORRAL_API_KEY" in reason


def test_an_unknown_model_has_its_own_reason():
    reason = reason_of(replies(404, {"error": "no router for requested model", "src": "llama-swap"}))
    assert 'the endpoint does not know text ("no router for requested model")' in reason
    assert reason.endswith("; to have it served: corral up --detach")


def test_a_load_that_never_ends_has_its_own_reason():
    loading = replies(503, {"error": {"message": "Loading model", "type": "unavailable_error", "code": 503}})
    reason = reason_of(loading, limit_s=0.3)
    assert reason.startswith(
        'no answer within 0.3 s: its status was "loading" (503) all the time; see: corral logs text'
    )


def test_a_load_that_ends_is_waited_for(monkeypatch):
    monkeypatch.setattr(runner, "_LOADING_POLL_S", 0.01)
    loading = replies(503, {"error": {"message": "Loading model", "type": "unavailable_error", "code": 503}})
    with serve("text", acts={("text", "answer"): in_turn(loading, loading, answers("OK"))}) as stub:
        assert smoke(stub, TEXT).passed


def test_a_503_for_another_cause_is_not_waited_for():
    assert reason_of(replies(503, "no healthy upstream", "text/plain")).startswith('HTTP 503: "no healthy upstream"')


def test_a_redirect_names_the_right_address():
    reason = reason_of(replies(308, "", "", Location="https://host/"))
    assert reason == "HTTP 308: it sends us to https://host/; give that address: --endpoint URL"


def test_an_error_in_a_200_is_no_answer():
    reason = reason_of(replies(200, {"error": {"message": "CUDA error"}}))
    assert reason == 'HTTP 200 with an error in it: "CUDA error"; see: corral logs text'


def test_a_web_page_is_no_answer():
    reason = reason_of(replies(200, "<!doctype html><h1>It works</h1>", "text/html"))
    assert reason.startswith('HTTP 200 with a web page, no answer: "<!doctype html><h1>It works</h1>"')


def test_invalid_json_is_no_answer():
    assert reason_of(replies(200, '{"choices": [')).startswith('HTTP 200 with invalid JSON: "{"choices": ["')


def test_json_nested_without_end_is_no_answer():
    assert "invalid JSON" in reason_of(replies(200, "[" * 200_000))


@pytest.mark.parametrize("body", [{}, {"choices": []}, {"choices": [{"text": "OK"}]}, {"choices": "OK"}])
def test_json_of_another_shape_is_no_answer(body):
    assert reason_of(replies(200, body)).startswith("this is no chat completion, it has no choices[0].message")


def test_thoughts_without_an_answer_have_their_own_reason():
    reason = reason_of(answers("", reasoning_content="hm", finish_reason="length"))
    assert reason == (
        "empty answer: all tokens went to thinking (finish_reason length); raise max_tokens where you ask, "
        'or set reasoning: "off" for text and run: corral lock && corral up --detach'
    )


@pytest.mark.parametrize("content", ["", None])
def test_an_empty_answer_is_no_answer(content):
    assert reason_of(answers(content)).startswith("empty answer, and no thoughts either (finish_reason stop)")


def test_whitespace_is_no_answer():
    assert reason_of(answers(" \n\n")).startswith("the answer is only whitespace: a wrong chat template")


def test_an_answer_that_is_no_text_is_no_answer():
    assert reason_of(answers(["OK"])) == 'the answer\'s content is no text: "["OK"]"'


def test_a_wrong_answer_shows_what_was_expected_and_what_was_received():
    assert reason_of(answers("KO")) == ('wrong answer: expected "OK", got "KO"; are the weights whole? corral verify')


def test_white_space_around_the_expected_answer_does_not_matter():
    with serve("text", acts={("text", "answer"): answers("\n OK \n")}) as stub:
        assert smoke(stub, TEXT).passed


def test_any_answer_will_do_where_none_is_expected():
    with serve("text", acts={("text", "answer"): answers("Certainly! OK.")}) as stub:
        assert smoke(stub, Subject("text")).passed


def test_an_answer_without_finish_reason_may_be_cut():
    assert reason_of(answers("OK", finish_reason=None)).startswith("the answer has no finish_reason")


def test_a_stall_ends_at_the_limit():
    reason = reason_of(stalls, limit_s=0.2)
    assert reason.startswith(
        "no answer within 0.2 s: it hangs, or its load takes longer than that; see: corral logs text"
    )


@pytest.mark.parametrize("fault", [stalls, drips], ids=["a-stall", "dripping"])
def test_the_limit_of_a_check_is_firm(fault):
    with serve("text", acts={("text", "*"): fault}) as stub:
        report = smoke(stub, TEXT, limit_s=0.2)
        assert not stub.closing.is_set()  # until then, neither ends by itself
    (line,) = [line for line in report.checks if (line.model, line.check) == ("text", "answer")]
    assert line.status == "failed"
    assert line.seconds >= 0.2


def stalls_mid_stream(exchange):
    exchange.begin("text/event-stream")
    exchange.wfile.write(event({"choices": [{"index": 0, "delta": {"content": "O"}, "finish_reason": None}]}))
    exchange.stub.closing.wait()


@pytest.mark.parametrize(
    ("check", "act", "running", "why"),
    [
        ("answer", first_loads(stalls), {}, "silent for 1 s, though its model is loaded"),
        ("stream", stalls_mid_stream, {"text": "ready"}, "silent for 1 s after "),
        ("stream", stalls_mid_stream, None, "silent for 1 s after "),
    ],
    ids=["a-stall", "in-a-stream", "in-a-stream-without-running"],
)
def test_a_loaded_model_that_is_silent_has_failed_long_before_the_limit(check, act, running, why):
    with serve("text", running=running, acts={("text", check): act}) as stub:
        report = smoke(stub, TEXT, limit_s=3600, silence_s=1.0)
    status, reason = outcome(report, "text", check)
    assert (status, reason.startswith(why)) == ("failed", True), reason


def test_a_load_may_be_silent_for_longer_than_its_model_afterwards():
    def loads_slowly(exchange):
        exchange.stub.running["text"] = "starting"
        before = len(exchange.stub.paths)
        wait_for(lambda: exchange.stub.paths[before:].count("/running") > 8, what="two silences of four polls each")
        answers("OK")(exchange)

    with serve("text", acts={("text", "answer"): loads_slowly}) as stub:
        report = smoke(stub, TEXT, limit_s=3600, silence_s=1.0)
    assert outcome(report, "text", "answer")[0] == "passed"


def test_dripping_bytes_do_not_stretch_the_limit():
    reason = reason_of(drips, limit_s=3.0)
    assert reason.startswith("no complete answer within 3 s: ")
    assert "bytes arrived, and no end" in reason


def test_a_connection_cut_before_the_answer_has_its_own_reason():
    assert reason_of(hangs_up).startswith("the connection was closed before the answer was complete")


def test_an_answer_without_end_has_its_own_reason():
    assert reason_of(floods).startswith("the answer is larger than 8 MiB: it was cut off there")


def test_the_text_of_a_server_cannot_reach_the_terminal_as_control_codes():
    reason = reason_of(answers("\x1b[2J\ud800\u202eevil\n"))
    assert reason.isprintable()
    assert "\\x1b[2J\\ud800\\u202eevil\\n" in reason


def test_a_long_answer_is_clipped_in_the_reason():
    assert len(reason_of(answers("x" * 10_000))) < 500


def test_away_from_the_local_stack_the_reason_points_to_llama_swaps_own_log():
    assert "see: curl -N http://127.0.0.1:" in reason_of(fails_to_load, is_local=False)


# --- images ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    ["red, blue", "Red and blue.", "**RED**\n**BLUE**", "The first image is red; the second is blue. So: red, blue."],
)
def test_colours_in_order_pass(text):
    with serve("eyes", acts={("eyes", "images-red-blue"): answers(text)}) as stub:
        assert outcome(smoke(stub, EYES), "eyes", "images")[0] == "passed"


@pytest.mark.parametrize(
    "text",
    ["blue, red", "red", "red, red", "redblue", "reddish, bluer", "red, blue, green", "red, white, blue", "OK"],
)
def test_any_other_colours_fail(text):
    reason = reason_of(answers(text), check="images", subject=EYES)
    assert reason.startswith(f'wrong answer: shown red, then blue; got "{text}"')


def test_a_model_with_one_fixed_answer_fails_one_way_round():
    with serve("eyes", acts={("eyes", "images-blue-red"): answers("red, blue")}) as stub:
        report = smoke(stub, EYES)
    assert outcome(report, "eyes", "images")[0] == "passed"
    status, reason = outcome(report, "eyes", "images-swapped")
    assert status == "failed"
    assert reason.startswith('wrong answer: shown blue, then red; got "red, blue"')


def test_a_server_without_a_projector_has_its_own_reason():
    refusal = replies(
        500, {"error": {"message": "image input is not supported - hint: you may need to provide the mmproj"}}
    )
    with serve("eyes", acts={("eyes", "images-red-blue"): refusal}) as stub:
        report = smoke(stub, EYES)
    assert "the server runs without a projector (HTTP 500" in outcome(report, "eyes", "images")[1]
    assert outcome(report, "eyes", "stream")[0] == "passed"


# --- streams --------------------------------------------------------------------------------------------------------


def stream_reason(act):
    with serve("text", acts={("text", "stream"): act}) as stub:
        report = smoke(stub, TEXT)
    status, reason = outcome(report, "text", "stream")
    assert (outcome(report, "text", "answer")[0], status) == ("passed", "failed")
    return reason


def test_a_stream_that_just_ends_was_cut():
    assert stream_reason(streamed("O", finish_reason=None, done=False)) == (
        'stream ended without [DONE]: the model\'s process died mid-answer, after "O"; see: corral logs text'
    )


def test_a_stream_cut_within_a_line_was_cut():
    act = streamed("O", finish_reason=None, done=False, extra=b'data: {"choi')
    assert stream_reason(act).startswith("stream ended without [DONE]")


def test_a_finish_reason_alone_does_not_end_a_stream():
    assert stream_reason(streamed("OK", done=False)).startswith("stream ended without [DONE]")


def test_a_stream_without_finish_reason_may_be_cut():
    assert stream_reason(streamed("OK", finish_reason=None)).startswith("the stream has no finish_reason")


@pytest.mark.parametrize(
    "extra",
    [
        event({"error": {"code": 500, "message": "decode failed"}}),
        b'error: {"code": 500, "message": "decode failed"}\n\n',
        b'{"error": "decode failed"}\n',
    ],
    ids=["an-event", "an-error-field", "a-bare-line"],
)
def test_an_error_inside_a_stream_is_no_answer(extra):
    assert (
        stream_reason(streamed("OK", extra=extra))
        == 'HTTP 200 with an error in it: "decode failed"; see: corral logs text'
    )


def test_a_load_that_fails_inside_a_stream_is_a_failed_load():
    late = b'{"src":"llama-swap","error":"unspecific error: upstream command exited prematurely"}'
    reason = stream_reason(streamed("", reasoning="loading", finish_reason=None, done=False, extra=late))
    assert reason.startswith("HTTP 200 with an error in it; failed to load: ")


def test_thoughts_alone_are_no_stream_of_an_answer():
    act = streamed("", reasoning="hm", finish_reason="length")
    assert stream_reason(act).startswith("empty answer: all tokens went to thinking (finish_reason length)")


def test_a_stream_of_nothing_is_no_answer():
    assert stream_reason(streamed("")).startswith("empty answer, and no thoughts either")


def test_a_wrong_streamed_answer_fails():
    assert stream_reason(streamed("KO")).startswith('wrong answer: expected "OK", got "KO"')


def test_a_whole_answer_in_place_of_a_stream_fails():
    assert stream_reason(answers("OK")) == (
        "requested a stream, got application/json: something in between does not pass streams on"
    )


def test_noise_in_a_stream_fails():
    assert stream_reason(streamed("OK", extra=b"<br>oops\n")).startswith(
        'the stream holds a line that is no event: "<br>'
    )


def test_comments_and_event_names_in_a_stream_are_no_noise():
    act = streamed("OK", extra=b": ping\r\n\r\nevent: message\r\nretry: 3\r\nid: 7\r\n\r\n")
    with serve("text", acts={("text", "stream"): act}) as stub:
        assert smoke(stub, TEXT).passed


def test_fifty_runs_against_an_honest_endpoint_pass():
    with serve("eyes", "text") as stub:
        assert all(smoke(stub, TEXT, EYES).passed for _ in range(50))
