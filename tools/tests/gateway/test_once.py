"""A request is sent once, and nothing but a request loads a model: counted by the engines that start."""

from __future__ import annotations

import json
import os
import signal
import statistics
import sys
import time

import pytest

from corral.engine import engine_process
from tests.support.engine_process import Stream, question, wait_for
from tests.support.gateway import KEY, STREAMS, proxy, rendered


def ask(litellm, model, **more):
    return litellm.post("/v1/chat/completions", question("Hello.", model=model, **more))


def test_a_load_that_cannot_succeed_starts_its_engine_once(litellm, stack):
    before = stack.starts("lame")
    status, body = ask(litellm, "lame")
    assert (status, stack.starts("lame") - before) == (503, 1), body


def test_it_is_tried_again_with_the_next_request(litellm, stack):
    """No cooldown of LiteLLM answers in the model's place: what was mended since would not be noticed."""
    before = stack.starts("lame")
    assert [ask(litellm, "lame")[0] for _ in range(6)] == [503] * 6
    assert stack.starts("lame") - before == 6


def test_a_client_that_asks_for_repetitions_gets_them(litellm, stack):
    """docs/clients.md states it: it is the client's own decision, and none of corral's settings."""
    before = stack.starts("lame")
    status, _ = ask(litellm, "lame", num_retries=1)
    assert (status, stack.starts("lame") - before) == (503, 2)


def test_with_the_defaults_of_litellm_the_same_load_is_started_three_times(stack, tmp_path):
    """The reason for the settings, and proof that the counter counts."""
    config = rendered(stack)
    listed = [one for one in config["model_list"] if one["model_name"] == "lame"]
    for one in listed:
        del one["litellm_params"]["num_retries"], one["litellm_params"]["max_retries"]
    before = stack.starts("lame")
    with proxy(tmp_path, {"model_list": listed, "general_settings": config["general_settings"]}) as defaults:
        status, _ = ask(defaults, "lame")
    assert (status, stack.starts("lame") - before) == (503, 3)


def test_the_fallback_of_the_catalog_answers_for_a_model_that_cannot_be_loaded(litellm, stack):
    before = stack.starts("shy")
    status, body = ask(litellm, "shy")
    assert (status, stack.starts("shy") - before) == (200, 1), body
    assert body["choices"][0]["message"]["content"] == "OK"


def test_a_fallback_answers_a_stream_that_has_not_begun(litellm, stack):
    before = stack.starts("shy")
    stream = Stream(litellm.endpoint, "shy", 20, api_key=KEY, begins=False)
    stream.join()
    assert (stream.is_whole, stack.starts("shy") - before) == (True, 1)


def test_no_health_check_and_no_probe_loads_a_model(litellm, stack):
    stack.unload_all()
    before = stack.starts()
    paths = ("/health", "/health?model=text", "/health/readiness", "/health/liveliness", "/v1/models", "/model/info")
    status = {path: litellm.get(path)[0] for path in paths}
    assert status == dict.fromkeys(paths, 200) | {"/health?model=text": 503}  # LiteLLM: it has not checked it
    assert stack.starts() == before
    assert not stack.running.client().residents()


@pytest.mark.parametrize("model", ["slow", "mortal"], ids=["without-a-fallback", "with-a-fallback"])
def test_a_stream_whose_engine_is_killed_ends_without_its_end_and_is_not_repeated(litellm, stack, model):
    assert ask(litellm, model, max_tokens=1)[0] == 200
    before = stack.starts(), stack.requests("text")
    stream = Stream(litellm.endpoint, model, 300, api_key=KEY)
    (proxied,) = [one.proxy for one in stack.running.client().residents() if one.model == model]
    engine = engine_process.find(model, int(proxied.rpartition(":")[2]), stack.running.engines())
    os.kill(engine.pid, signal.SIGKILL)
    stream.join()
    wait_for(lambda: not stack.running.client().in_flight(), what="the end of the request")
    assert not stream.is_whole
    assert (stack.starts(), stack.requests("text")) == before
    assert any(b'"error"' in line for line in stream.lines[-3:]), stream.lines[-3:]


def test_fifty_streams_at_once_are_whole_and_what_they_take_is_printed(litellm, stack, record_property, capsys):
    """The figure is for the log: no bound, because the machine does other work too."""
    assert ask(litellm, "busy", max_tokens=1)[0] == 200
    taken = {}
    for way, root in {"door": stack.running.endpoint, "LiteLLM": litellm.endpoint}.items():
        one = [_seconds(root, 1) for _ in range(3)]
        taken[way] = {"one": statistics.median(one), "fifty": _seconds(root, STREAMS)}
    added = {load: round(1000 * (taken["LiteLLM"][load] - taken["door"][load])) for load in ("one", "fifty")}
    record_property("milliseconds", json.dumps(taken))
    with capsys.disabled():
        sys.stderr.write(
            f"\nstreams of 20 tokens, s: one by the door {taken['door']['one']:.3f}, through LiteLLM "
            f"{taken['LiteLLM']['one']:.3f}; {STREAMS} at once {taken['door']['fifty']:.2f} and "
            f"{taken['LiteLLM']['fifty']:.2f}: it adds {added['one']} ms and {added['fifty']} ms\n"
        )


def _seconds(root: str, streams: int) -> float:
    """How long *streams* streams of 20 tokens take, all at once and all whole."""
    begin = time.monotonic()
    found = [Stream(root, "busy", 20, api_key=KEY, begins=False) for _ in range(streams)]
    for stream in found:
        stream.join()
    assert [stream.is_whole for stream in found] == [True] * streams
    return time.monotonic() - begin
