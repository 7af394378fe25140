"""What a client gets through LiteLLM with corral's configuration: answers of each kind, errors with their reasons."""

from __future__ import annotations

import json
import os
import signal

import pytest

from corral.engine import engine_process
from tests.support.engine_process import Stream, question, stop, wait_for
from tests.support.gateway import CALL, KEY, WRONG_KEY

WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather of a city.",
        "parameters": {"type": "object", "properties": {"warm": {"type": "boolean"}}, "required": ["warm"]},
    },
}


def chat(litellm, *content, **parameters):
    status, body = litellm.post("/v1/chat/completions", question(*content, **parameters))
    assert status == 200, body
    return body


@pytest.mark.parametrize("name", ["text", "chat", "org/text"])
def test_a_chat_is_answered_under_each_name_of_the_model(litellm, name):
    assert chat(litellm, "Are you there?", model=name)["choices"][0]["message"]["content"] == "OK"


def test_every_name_of_the_catalog_is_listed(litellm):
    status, body = litellm.get("/v1/models")
    assert status == 200
    names = {one["id"] for one in body["data"]}
    of_catalog = "text chat org/text busy tools lame shy slow mortal vector rank eyes"
    assert names == {*of_catalog.split(), "caller"}


def test_a_stream_has_every_token_and_its_end(litellm):
    stream = Stream(litellm.endpoint, "text", 20, api_key=KEY, begins=False)
    stream.join()
    assert stream.is_whole
    assert len([line for line in stream.lines if b'"content":' in line]) >= 20


@pytest.mark.parametrize("order", [("red", "blue"), ("blue", "red")])
def test_images_arrive_in_their_order(litellm, order):
    assert chat(litellm, *order, model="eyes")["choices"][0]["message"]["content"] == ", ".join(order)


def test_tools_are_in_the_prompt_of_the_engine(litellm):
    plain, more = (chat(litellm, "How warm is it?", model="tools", **tools) for tools in ({}, {"tools": [WEATHER]}))
    assert more["usage"]["prompt_tokens"] > plain["usage"]["prompt_tokens"] + 50


def test_the_call_of_a_tool_arrives_whole(litellm):
    body = chat(litellm, "How warm is it?", model="caller", tools=[WEATHER])
    (call,) = body["choices"][0]["message"]["tool_calls"]
    assert (call["id"], call["function"]) == (CALL["id"], CALL["function"])
    assert body["choices"][0]["finish_reason"] == "tool_calls"


def test_the_call_of_a_tool_arrives_in_a_stream(litellm):
    stream = Stream(litellm.endpoint, "caller", 1, api_key=KEY, begins=False)
    stream.join()
    events = [json.loads(line[6:]) for line in stream.lines if line.startswith(b"data: {")]
    calls = [call for one in events for call in one["choices"][0]["delta"].get("tool_calls") or ()]
    assert [(call["id"], call["function"]) for call in calls] == [(CALL["id"], CALL["function"])]
    assert stream.is_whole


def test_an_embedding_is_that_of_the_engine(litellm, stack):
    status, body = litellm.post("/v1/embeddings", {"model": "vector", "input": ["abc", "xyz"]})
    assert status == 200, body
    assert [len(one["embedding"]) for one in body["data"]] == [320, 320]
    assert body["data"][0]["embedding"] != body["data"][1]["embedding"]


@pytest.mark.parametrize("documents", [["xyz", "abc"], ["abc", "xyz"]])
def test_a_ranking_has_the_relevant_document_first(litellm, documents):
    status, body = litellm.post("/v1/rerank", {"model": "rank", "query": "cab", "documents": documents})
    assert status == 200, body
    assert documents[max(body["results"], key=lambda one: one["relevance_score"])["index"]] == "abc"


def test_the_refusal_of_a_load_arrives_with_its_reason(litellm):
    status, body = litellm.post("/v1/chat/completions", question("Hello.", model="lame"))
    assert status == 503, body
    assert "load" in body["error"]["message"]
    assert "lame" in body["error"]["message"]


def test_a_prompt_that_is_too_long_is_the_clients_error(litellm):
    status, body = litellm.post("/v1/chat/completions", question("long " * 2000, model="text"))
    assert status == 400, body
    assert "context" in body["error"]["message"]


def test_an_image_for_a_model_without_images_is_an_error(litellm):
    status, body = litellm.post("/v1/chat/completions", question("red", model="text"))
    assert status >= 400
    assert "image input is not supported" in body["error"]["message"]


def test_a_model_that_is_not_listed_is_the_clients_error(litellm):
    status, body = litellm.post("/v1/chat/completions", question("Hello.", model="gpt-5"))
    assert status == 400
    assert "gpt-5" in body["error"]["message"]


@pytest.mark.parametrize(
    ("key", "status", "word"),
    [("", 401, "No api key passed in"), (WRONG_KEY, 400, "No connected db")],
    ids=["no-key", "wrong-key"],
)
def test_without_the_master_key_nothing_is_answered_and_nothing_loaded(litellm, stack, key, status, word):
    """A wrong key is 400 where LiteLLM has no PostgreSQL: it might be one of the virtual keys, which would be there."""
    before = stack.starts()
    found, body = litellm.post("/v1/chat/completions", question("Hello.", model="text"), api_key=key)
    assert (found, word in body["error"]["message"]) == (status, True), body
    assert litellm.get("/v1/models", api_key=key)[0] == status
    assert stack.starts() == before


def test_one_request_too_many_gets_429_and_the_others_their_answers(litellm, stack):
    chat(litellm, "Hello.", model="slow", max_tokens=1)
    waiting = stack.running.client()
    (proxied,) = [one.proxy for one in waiting.residents() if one.model == "slow"]
    engine = engine_process.find("slow", int(proxied.rpartition(":")[2]), stack.running.engines())
    stop(engine.pid)  # none of the ten ends before the eleventh is answered
    try:
        streams = [Stream(litellm.endpoint, "slow", 5, api_key=KEY, begins=False) for _ in range(10)]
        wait_for(
            lambda: [one.model for one in waiting.in_flight()].count("slow") == 10, limit_s=180, what="ten requests"
        )
        status, body = litellm.post("/v1/chat/completions", question("Hello.", model="slow"))
    finally:
        os.kill(engine.pid, signal.SIGCONT)
    for stream in streams:
        stream.join()
    assert status == 429, body
    assert [stream.is_whole for stream in streams] == [True] * 10
