"""Asking a model the cases of a set: faults of an endpoint are never an answer, and each has its reason.

The stub is for faults that real engines cannot be made to show; ``tests/stack/test_eval.py`` asks real ones.
"""

from __future__ import annotations

import asyncio
import re

import pytest

from corral.errors import CannotRun, Refused
from corral.evaluation import asking, cases, judging
from corral.evaluation.asking import Asking
from corral.smoke.endpoint import Endpoint
from tests.support import eval_sets
from tests.support.engine_process import free_port
from tests.support.eval_sets import NUMBER, schema
from tests.support.stub_endpoint import answers, completion, hangs_up, in_turn, replies, serve, stalls, streamed

RIGHT = '{"age": 34}'


@pytest.fixture(scope="module")
def of(tmp_path_factory):
    expected = {f"c{at}": {"expect": {"age": 34}} for at in (1, 2, 3)}
    return cases.load(eval_sets.write(tmp_path_factory.mktemp("set"), expected, schema=schema(age=NUMBER), system="S."))


def ask(root, of, **how):
    async def go():
        async with Endpoint(root) as api:
            return await asking.ask(api, of, Asking("m", **how))

    return asyncio.run(go())


def cut_off(exchange):
    """The connection ends in the middle of the body."""
    exchange.send_response(200)
    exchange.send_header("Content-Type", "application/json")
    exchange.send_header("Content-Length", "1000")
    exchange.end_headers()
    exchange.wfile.write(b'{"choices": [{"message": {"content": "{\\"age\\": 34}"')
    exchange.close_connection = True


def without(*path):
    """A completion that is right but for what is missing at *path*."""
    document = completion(RIGHT)
    at = document
    for step in path[:-1]:
        at = at[step]
    del at[path[-1]]
    return replies(200, document)


NO_ANSWERS = {
    "no JSON": (answers("She is 34."), "no valid JSON"),
    "JSON in a sentence": (answers(f"Here it is: {RIGHT}"), "no valid JSON"),
    "JSON in a block of Markdown": (answers(f"```json\n{RIGHT}\n```"), "no valid JSON"),
    "two objects": (answers(RIGHT * 2), "no valid JSON"),
    "a name twice": (answers('{"age": 34, "age": 35}'), "an object has a name twice"),
    "NaN": (answers('{"age": NaN}'), "NaN and Infinity are no JSON"),
    "a list": (answers("[34]"), "not by the schema"),
    "another name": (answers('{"years": 34}'), "not by the schema"),
    "more than the schema allows": (answers('{"age": 34, "name": "Anna"}'), "not by the schema"),
    "another type": (answers('{"age": "34"}'), "not by the schema at age"),
    "beyond a limit": (answers('{"age": 101}'), "not by the schema at age"),
    "nested without end": (answers("[" * 100_000), "nested too deep|no valid JSON"),
    "very long": (answers('{"age": 34}' + " " * 200_000), "more than 100,000 characters"),
    "empty": (answers(""), "no valid JSON"),
    "no text": (answers({"age": 34}), "no whole chat completion"),
    "null": (answers(None), "no whole chat completion"),
    "cut off by the tokens": (replies(200, completion(RIGHT, finish_reason="length")), "it was cut off"),
    "without an end": (without("choices", 0, "finish_reason"), "no whole chat completion"),
    "without a message": (without("choices", 0, "message"), "no whole chat completion"),
    "without a choice": (replies(200, {"choices": []}), "no whole chat completion"),
    "an answer that is a list": (replies(200, "[1]"), "no whole chat completion"),
    "not JSON at all": (replies(200, "OK", "text/plain"), "invalid JSON"),
    "an error with 200": (replies(200, {"error": {"message": "out of memory"}}), "with an error in it"),
    "a stream that nothing asked for": (streamed(RIGHT), "invalid JSON"),
    "a cut stream": (streamed(RIGHT, done=False, finish_reason=None), "invalid JSON"),
    "HTTP 500": (replies(500, {"error": {"message": "NaN in a tensor"}}), "HTTP 500"),
    "HTTP 429": (replies(429, {"error": {"message": "too many"}}), "HTTP 429"),
    "HTTP 400": (replies(400, {"error": {"message": "request exceeds the context size"}}), "HTTP 400"),
    "HTTP 413": (replies(413, "too large", "text/plain"), "HTTP 413"),
}


@pytest.mark.parametrize(("act", "reason"), NO_ANSWERS.values(), ids=list(NO_ANSWERS))
def test_a_fault_is_never_an_answer_and_the_next_case_is_asked(of, act, reason):
    """The first request, which loads, is right; so are the answers to the first case and the last."""
    with serve("m") as stub:
        stub.acts["m", "*"] = in_turn(answers(RIGHT), answers(RIGHT), act, answers(RIGHT))
        found = ask(stub.root, of)
        verdict = judging.judge(of, found)
    assert (verdict.state, verdict.parsed, verdict.right, verdict.expected) == ("failed", 2, 2, 3)
    first, second, third = found.answers
    assert (first.fields, third.fields) == ({"age": 34}, {"age": 34})
    assert second.fields is None
    assert re.search(reason, second.problem), second.problem
    assert len(second.problem) < 600
    assert len(second.text) <= 4000


@pytest.mark.parametrize(
    ("act", "problem"),
    [
        (replies(200, completion(RIGHT, finish_reason="length")), "not whole: it was cut off"),
        (replies(200, completion(RIGHT, finish_reason="content_filter")), "not whole: this is no whole"),
        (replies(200, {"choices": []}), "not whole: this is no whole chat completion"),
        (replies(500, {"error": {"message": "NaN in a tensor"}}), "no answer: HTTP 500"),
    ],
    ids=["cut off", "filtered", "no completion", "HTTP 500"],
)
def test_only_whole_answers_have_seconds_so_that_a_model_that_is_cut_off_is_not_fast(of, act, problem):
    with serve("m") as stub:
        stub.acts["m", "*"] = act
        found = ask(stub.root, of)
        verdict = judging.judge(of, found)
    assert [one.seconds for one in found.answers] == [None] * 3
    assert all(one.problem.startswith(problem) for one in found.answers), found.answers
    assert (verdict.spread.n, verdict.seconds) == (0, ())


def test_an_answer_that_is_whole_and_not_parsed_has_seconds(of):
    with serve("m") as stub:
        stub.acts["m", "*"] = answers("She is 34.")
        found = ask(stub.root, of)
    assert all(one.seconds > 0 and one.problem.startswith("not parsed: ") for one in found.answers)


def test_the_seconds_of_the_first_request_are_those_of_the_load_whole_or_not(of):
    with serve("m") as stub:
        stub.acts["m", "*"] = replies(200, completion(RIGHT, finish_reason="length"))
        assert ask(stub.root, of).first_answer_s > 0


@pytest.mark.parametrize("act", [hangs_up, cut_off], ids=["no answer at all", "cut in the middle"])
def test_after_a_broken_connection_the_model_is_not_asked_again_and_nothing_is_right(of, act):
    with serve("m") as stub:
        stub.acts["m", "*"] = in_turn(answers(RIGHT), answers(RIGHT), act, answers(RIGHT))
        found = ask(stub.root, of)
        requests = len(stub.asked)
    assert [one.fields for one in found.answers] == [{"age": 34}, None, None]
    assert "the connection broke" in found.answers[1].problem
    assert found.answers[2].problem.startswith("not asked: the model was not there any more after c2")
    assert (found.answers[1].seconds, found.answers[2].seconds, requests) == (None, None, 3)
    assert judging.judge(of, found).right == 1


def test_an_answer_that_never_ends_is_no_answer(of):
    with serve("m") as stub:
        stub.acts["m", "*"] = in_turn(answers(RIGHT), stalls)
        found = ask(stub.root, of, limit_s=0.2)
    assert {one.fields is None for one in found.answers} == {True}
    assert "no answer within 0.2 s" in found.answers[0].problem


def test_a_model_that_does_not_load_has_no_answers_and_its_reason(of):
    refused = {"error": "unspecific error: upstream command exited prematurely", "src": "llama-swap"}
    with serve("m") as stub:
        stub.acts["m", "*"] = replies(500, refused)
        loaded = []
        found = ask(stub.root, of, once_loaded=lambda: loaded.append(1))
        assert len(stub.asked) == 1
    assert loaded == []
    assert {one.problem for one in found.answers} == {found.answers[0].problem}
    assert "failed to load" in found.answers[0].problem
    assert judging.judge(of, found).state == "failed"


def test_the_first_request_counts_for_the_load_alone(of):
    with serve("m") as stub:
        stub.acts["m", "*"] = in_turn(answers("not parsed"), answers(RIGHT))
        lines = []
        found = ask(stub.root, of, rounds=2, report=lines.append)
        assert len(stub.asked) == 7
    assert [one.round for one in found.answers] == [1, 1, 1, 2, 2, 2]
    assert {one.problem for one in found.answers} == {""}
    assert found.first_answer_s > 0
    assert lines[-1] == "m: 6 of 6 answers, 6 parsed"


@pytest.mark.parametrize(
    "message",
    ["Failed to initialize samplers: failed to parse grammar", "JSON schema error at #: x", "response_format"],
)
def test_a_schema_that_the_engine_refuses_is_an_error_with_the_case_and_the_remedy(of, message):
    with serve("m") as stub:
        stub.acts["m", "*"] = in_turn(answers(RIGHT), answers(RIGHT), replies(400, {"error": {"message": message}}))
        with pytest.raises(Refused, match="refuses the schema of case c2") as error:
            ask(stub.root, of)
    assert "Write it with fewer or smaller limits" in error.value.next_step


def test_an_endpoint_where_no_server_listens_cannot_be_evaluated(of):
    with pytest.raises(CannotRun, match="the connection broke"):
        ask(f"http://127.0.0.1:{free_port()}", of)


def test_a_server_that_goes_away_in_the_middle_leaves_what_it_answered(of):
    with serve("m") as stub:

        def last(exchange):
            exchange.server.shutdown()
            exchange.server.socket.close()
            answers(RIGHT)(exchange)

        stub.acts["m", "*"] = in_turn(answers(RIGHT), last)
        found = ask(stub.root, of)
    assert [one.fields for one in found.answers] == [{"age": 34}, None, None]
    assert "the connection broke" in found.answers[1].problem


def test_a_request_is_greedy_from_no_cache_bound_and_has_its_images_in_order(tmp_path):
    (tmp_path / "a.png").write_bytes(b"\x89PNG\r\n\x1a\n1")
    (tmp_path / "b.jpg").write_bytes(b"\xff\xd8\xff2")
    shown = {"c1": {"prompt": "Which?", "images": ["b.jpg", "a.png", "b.jpg"]}}
    found = cases.load(eval_sets.write(tmp_path, shown, schema=schema(age=NUMBER), system="S.", answer_tokens=9))
    asked = asking.body(found.cases[0], found, "m", thinks=True)
    system, user = asked["messages"]
    assert system == {"role": "system", "content": "S."}
    kinds = [part["image_url"]["url"].partition(";")[0] for part in user["content"][:-1]]
    assert kinds == ["data:image/jpeg", "data:image/png", "data:image/jpeg"]
    assert user["content"][-1] == {"type": "text", "text": "Which?"}
    assert (asked["temperature"], asked["cache_prompt"], asked["max_tokens"]) == (0, False, 9)
    assert asked["response_format"]["json_schema"]["schema"] == schema(age=NUMBER)
    assert asked["chat_template_kwargs"] == {"enable_thinking": False}
    assert "chat_template_kwargs" not in asking.body(found.cases[0], found, "m", thinks=False)
