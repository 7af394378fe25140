"""What a check of the API finds where a promise is kept, broken, or not there; the answers are a script's."""

from __future__ import annotations

import asyncio
import json
import math
import threading
from dataclasses import replace

import pytest

from corral.contract import anthropic_sdk, chat, document, errors, native, probabilities, reach, survey, tools
from corral.contract.check import Finding, State, checks_of
from corral.contract.survey import Row
from tests.support.scripted_api import scripted

USAGE = {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7}


def found(check, answer, *, native_path="", limit_s=60.0):
    """What *check* finds at a server with this *answer*."""

    async def ask(root):
        async with reach.opened(root, "m", native=native_path) as way:
            return await survey.finding(check, way, limit_s=limit_s)

    with scripted(answer) as (root, _):
        return asyncio.run(ask(root))


def always(status, body):
    return lambda _path, _body: (status, body)


def completion(content="4", finish="stop", *, usage=USAGE, logprobs=None, **message):
    choice = {"index": 0, "finish_reason": finish, "message": {"role": "assistant", "content": content, **message}}
    return {"id": "x", "model": "m", "usage": usage, "choices": [{**choice, "logprobs": logprobs}]}


def without_tools(body):
    """*body* for each request, of a server whose model has no tools."""
    return lambda path, _: (200, {"chat_template_caps": {"supports_tools": False}} if path == "/props" else body)


def called(name, arguments):
    call = {"id": "1", "type": "function", "function": {"name": name, "arguments": arguments}}
    return completion(None, "tool_calls", tool_calls=[call])


def events(*chunks, done=True):
    return [f"data: {json.dumps(chunk)}\n\n" for chunk in chunks] + ["data: [DONE]\n\n"] * done


def piece(content=None, finish=None, **more):
    return {"id": "x", "choices": [{"index": 0, "delta": {"content": content}, "finish_reason": finish}], **more}


def probable(*shares, text="a"):
    top = [{"token": chr(97 + at), "logprob": math.log(share)} for at, share in enumerate(shares)]
    content = [{"token": text, "logprob": math.log(shares[0]), "top_logprobs": top}] * 2
    return completion(logprobs={"content": content})


def message_events(*kinds):
    bodies = {
        "message_start": {"message": {"id": "x", "type": "message", "role": "assistant", "content": [], "model": "m"}},
        "content_block_start": {"index": 0, "content_block": {"type": "text", "text": ""}},
        "content_block_delta": {"index": 0, "delta": {"type": "text_delta", "text": "4"}},
        "content_block_stop": {"index": 0},
        "message_delta": {"delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 1}},
        "message_stop": {},
    }
    return [f"event: {kind}\ndata: {json.dumps({'type': kind, **bodies[kind]})}\n\n" for kind in kinds]


IN_ORDER = (
    *("message_start", "content_block_start", "content_block_delta", "content_block_stop"),
    *("message_delta", "message_stop"),
)
LAST = {"id": "x", "choices": [], "usage": USAGE}
REFUSED = {"error": {"message": "no", "type": "invalid_request_error"}}
KEPT = {
    "chat": (chat.chat, completion()),
    "stream": (chat.stream, events(piece("4"), piece(finish="stop"))),
    "usage": (chat.stream_usage, events(piece("4"), piece(finish="stop"), LAST)),
    "probabilities": (chat.logprobs, probable(0.6, 0.1, 0.1, 0.1, 0.1)),
    "required": (tools.tool_required, called("weather", '{"city": "Oslo"}')),
    "named": (tools.tool_named, called("clock", "{}")),
    "schema": (tools.json_schema, completion('{"city": "Bern"}')),
    "message": (anthropic_sdk.message_stream, message_events(*IN_ORDER)),
    "adapters": (native.lora_adapters, b"[]"),
}
BROKEN = {
    "no usage": (chat.chat, completion(usage=None), "no usage"),
    "a wrong sum": (chat.chat, completion(usage={**USAGE, "total_tokens": 9}), "the tokens do not add up"),
    "no content": (chat.chat, completion(""), "no content"),
    "no end": (chat.chat, completion(finish=None), "no usual finish_reason"),
    "no choices": (chat.chat, {"object": "something"}, "the answer has another form (TypeError)"),
    "no JSON": (chat.chat, b"<html>", "the answer has another form"),
    "a stream without an end": (chat.stream, events(piece("4")), "0 times a finish_reason"),
    "a stream that goes on": (chat.stream, events(piece("4", "stop"), piece("5")), "content after finish_reason"),
    "a stream without usage": (chat.stream_usage, events(piece("4"), piece(finish="stop")), "no usage in the last"),
    "an empty stream": (chat.stream, events(), "no content"),
    "no probabilities": (chat.logprobs, completion(), "no logprobs"),
    "unsorted": (chat.logprobs, probable(0.1, 0.1, 0.2, 0.1, 0.1), "they are not sorted"),
    "more than all": (chat.logprobs, probable(0.9, 0.1, 0.1, 0.1, 0.1), "more than 1 in sum"),
    "not greedy": (chat.logprobs, probable(0.6, 0.1, 0.1, 0.1, 0.1, text="b"), "another token than the likeliest"),
    "another tool": (tools.tool_named, called("weather", '{"city": "Oslo"}'), "another tool than the named one"),
    "a wrong argument": (tools.tool_required, called("weather", '{"city": "Rome"}'), "arguments that do not fit"),
    "a free answer": (tools.json_schema, completion("Bern"), "the answer does not fit the schema"),
    "events in disorder": (
        anthropic_sdk.message_stream,
        message_events(*IN_ORDER[:3], *reversed(IN_ORDER[3:])),
        "the events are in another order",
    ),
    "an answer to nonsense": (errors.wrong_type, completion(), "HTTP 200, and an answer"),
}


@pytest.mark.parametrize(("check", "body"), KEPT.values(), ids=KEPT)
def test_a_promise_that_is_kept_works(check, body):
    assert found(check, always(200, body)) == Finding(State.WORKS)


@pytest.mark.parametrize(("check", "body", "how"), BROKEN.values(), ids=BROKEN)
def test_an_answer_with_status_200_that_breaks_the_promise_differs(check, body, how):
    state, why = found(check, always(200, body))
    assert state is State.DIFFERS
    assert how in why


def test_an_ignored_tool_choice_differs_and_names_a_template_without_tools():
    state, why = found(tools.tool_required, without_tools(completion("It is sunny.")))
    assert (state, why) == ("differs", "HTTP 200 with prose, the tools are ignored: the model's chat template has none")


@pytest.mark.parametrize("status", [404, 405, 501])
@pytest.mark.parametrize("check", [chat.chat, chat.embeddings, anthropic_sdk.message, native.slots])
def test_a_path_that_is_unknown_or_unsupported_is_not_there(check, status):
    body = {"error": {"message": "no", "type": "not_supported_error"}}
    state, how = found(check, always(status, body))
    assert state is State.ABSENT
    assert how.startswith(f"HTTP {status}")


@pytest.mark.parametrize(
    ("status", "body", "finding"),
    [
        (400, REFUSED, (State.WORKS, "")),
        (500, {"error": {"message": "no", "type": "server_error"}}, (State.DIFFERS, "HTTP 500, `server_error`")),
        (400, {"error": "no"}, (State.DIFFERS, "HTTP 400, no `error` object")),
        (400, {"error": {"message": "no"}}, (State.DIFFERS, "HTTP 400, no text `error.type`")),
    ],
)
def test_an_error_has_the_status_and_the_form_of_the_api(status, body, finding):
    assert found(errors.wrong_type, always(status, body)) == finding


def test_an_error_of_messages_in_openais_form_differs():
    how = 'OpenAI\'s form, without `"type": "error"`'
    assert found(anthropic_sdk.message_wrong_type, always(400, REFUSED)) == ("differs", how)
    assert found(anthropic_sdk.message_wrong_type, always(400, {"type": "error", **REFUSED})).state is State.WORKS


def test_a_connection_that_is_closed_and_an_answer_that_never_comes_differ():
    assert found(chat.chat, lambda *_: None) == ("differs", "the connection was closed before the answer was complete")
    over = threading.Event()

    def never(_path, _body):
        over.wait()

    try:
        silent = asyncio.run(_silent(never, over))
    finally:
        over.set()
    assert silent == ("differs", "no complete answer within the time limit")


async def _silent(never, over):
    with scripted(never) as (root, _):
        async with reach.opened(root, "m") as way:
            try:
                return await survey.finding(chat.chat, way, limit_s=0.2)
            finally:
                over.set()


def test_a_slot_that_works_on_after_its_client_has_gone_differs():
    busy = [{"is_processing": True, "n_ctx": 64, "next_token": [{"n_decoded": 9}]}]

    def answer(path, _body):
        return (200, busy) if path == "/slots" else (200, events(piece("4"), piece(finish="stop")))

    assert found(errors.cancellation, answer, limit_s=1.0).state is State.DIFFERS


def test_a_stream_that_ran_to_its_end_is_not_cancelled():
    slots = [{"is_processing": True, "n_ctx": 64, "next_token": [{"n_decoded": 1500}]}]

    def answer(path, _body):
        if path != "/slots":
            return 200, events(piece("4"), piece(finish="stop"))
        now = json.dumps(slots)
        slots[0]["is_processing"] = False
        return 200, now.encode()

    assert found(errors.cancellation, answer) == ("differs", "the engine answers to the end")


def test_a_path_that_is_only_below_upstream_differs_with_where():
    slots = [{"is_processing": False, "n_ctx": 64}]

    def answer(path, _body):
        return (200, slots) if path == "/upstream/m/slots" else (404, {"error": {"type": "not_found_error"}})

    where = "below `/upstream/MODEL`, which is the operator's; without it: HTTP 404, `not_found_error`"
    assert found(native.slots, answer, native_path="/upstream/m") == ("differs", where)
    assert found(native.props, answer, native_path="/upstream/m") == ("not there", "HTTP 404, `not_found_error`")


def test_the_text_of_a_prompt_in_the_slots_differs():
    slots = [{"is_processing": False, "n_ctx": 64, "prompt": "secret"}]
    assert found(native.slots, always(200, slots)) == ("differs", "the text of a prompt is in it")


def test_nothing_of_the_environment_reaches_the_endpoint(monkeypatch):
    for name in ("OPENAI_API_KEY", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID", "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"):
        monkeypatch.setenv(name, "private")
    monkeypatch.setenv("ANTHROPIC_CUSTOM_HEADERS", "X-Mine: private")
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", "X-Mine: private")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("ANTHROPIC_BASE_URL", "http://127.0.0.1:9")

    async def ask(root):
        async with reach.opened(root, "m", key="own") as way:
            for check in (chat.chat, anthropic_sdk.message, native.slots):
                await survey.finding(check, way, limit_s=60)

    with scripted(always(200, completion())) as (root, received):
        asyncio.run(ask(root))
    assert len(received) == 3
    assert "private" not in str(received)
    assert [{one.get("authorization"), one.get("x-api-key")} - {None, "Bearer own", "own"} for one in received] == [
        set()
    ] * 3


def test_each_check_has_its_own_code():
    checks = [check for family in survey.FAMILIES.values() for check in checks_of(family)]
    assert len({check.code for check in checks}) == len(checks) > 40
    assert all(check.title for check in checks)


def test_the_lines_that_differ_are_named():
    rows = [
        Row("A", "x", "one", Finding(State.WORKS), Finding(State.WORKS)),
        Row("A", "y", "two", Finding(State.WORKS), Finding(State.DIFFERS, "so")),
    ]
    before = document.text({"engine": "b1"}, rows)
    assert list(document.drift(before, before)) == []
    rows[0] = replace(rows[0], alone=Finding(State.ABSENT))
    assert list(document.drift(before, document.text({"engine": "b1"}, rows))) == [
        "-| one | **works** | **works** |",
        "+| one | **not there** | **works** |",
    ]
    assert "+| engine | b2 |" in list(document.drift(before, document.text({"engine": "b2"}, rows)))


@pytest.mark.parametrize(
    "body", [{}, {"choices": []}, {"choices": [{"logprobs": {"content": [{"token": 1, "logprob": -1}]}}]}]
)
def test_an_answer_without_probabilities_is_refused(body):
    with pytest.raises(ValueError, match="logprob"):
        probabilities.read(body)


@pytest.mark.parametrize("value", [0.5, float("nan"), True, "x", None])
def test_a_value_that_is_no_logarithm_of_a_probability_is_refused(value):
    content = [{"token": "a", "logprob": value, "top_logprobs": []}]
    with pytest.raises(ValueError, match="logprob"):
        probabilities.read({"choices": [{"logprobs": {"content": content}}]})
