"""Golden answers: what is asked, what an answer is, the distance, the verdict and the file; no engine runs."""

from __future__ import annotations

import copy
import json
import math
import re

import pytest

from corral.catalog import catalog
from corral.catalog.golden import Golden as Intent
from corral.errors import CatalogInvalid, Refused
from corral.golden import asking, comparison, questions, record
from corral.golden.asking import Asked, NoAnswer
from corral.golden.comparison import ACROSS_LIMIT, QUESTION, SAME_LIMIT
from corral.golden.questions import Question
from corral.golden.record import Golden, Place
from corral.smoke.images import RGB
from tests.support import golden, smoke_catalog

AGE = Question("age", ({"role": "user", "content": "How old?"},), {"type": "object", "required": ["age"]})
PLAIN = Question("plain", ({"role": "user", "content": "Go on."},))
OWN = """
questions:
  triage:
    models: [eyes]
    messages: [{role: system, content: You triage.}, {role: user, content: Which is urgent.}]
    images: [red, blue]
    schema: {type: object, properties: {urgent: {type: integer}}}
  prose:
    messages: [{role: user, content: Another one.}]
"""


def token(text, logprob, *others):
    top = [{"token": text, "logprob": logprob}, *({"token": one, "logprob": value} for one, value in others)]
    return {"token": text, "logprob": logprob, "top_logprobs": top}


def completion(content, *tokens, **more):
    message = {"role": "assistant", "content": content}
    choice = {"message": message, "finish_reason": "stop", "logprobs": {"content": list(tokens)}}
    return {"choices": [choice], "usage": {"prompt_tokens": 10}, **more}


THREE = completion('{"age": 34, "at": [1, {}]}', token("{", -0.1, ("[", -2.5)), token("34", -0.5, ("35", -1.0)))


def asked(document=THREE, question=AGE, **problems):
    answers = {} if document is None else {question.name: asking.read(document, question)}
    return Asked(answers, problems, 10.0, "b1")


@pytest.fixture
def kept():
    return golden.recorded(asked())


@pytest.fixture
def own(tmp_path):
    folder = smoke_catalog.write(tmp_path / "c", {"eyes": {"modalities": ["text", "image"]}, "text": {}})
    (folder / "golden.yaml").write_text(OWN)
    return folder


def test_questions_of_the_operator_come_beside_corrals_own_or_replace_one_by_its_name(own):
    read = catalog.load(own)
    eyes, text = ({one.name: one for one in questions.of(read, model)} for model in ("eyes", "text"))
    assert eyes.keys() - text.keys() == {"triage", "images", "images-swapped"}
    assert text["prose"].messages == ({"role": "user", "content": "Another one."},)
    assert [part["type"] for part in eyes["triage"].messages[-1]["content"]] == ["image_url", "image_url", "text"]
    assert eyes["triage"].schema["properties"] == {"urgent": {"type": "integer"}}


def test_questions_change_nothing_that_is_served_so_the_lock_does_not_name_them(own):
    assert "golden.yaml" not in catalog.load(own).sources


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (("[eyes]", "[nose]"), r"golden.yaml:4: questions.triage.models: there is no model nose"),
        (("role: user, content: Which", "role: assistant, content: Which"), "must end with one of the user"),
        (("type: object", "type: array"), "schema must have type: object"),
        (("[red, blue]", "[red, mauve]"), "must be one of 'red' or 'blue'"),
        (("images:", "pictures:"), "unknown key pictures"),
    ],
)
def test_wrong_questions_are_refused_with_their_line(own, wrong, message):
    (own / "golden.yaml").write_text(OWN.replace(*wrong))
    with pytest.raises(CatalogInvalid, match=message):
        catalog.load(own)


def test_a_question_for_a_model_without_a_chat_is_refused_with_its_line(tmp_path):
    folder = smoke_catalog.write(tmp_path / "c", {"eyes": {"task": "embedding"}, "text": {}})
    (folder / "golden.yaml").write_text(OWN.replace("images: [red, blue]", ""))
    with pytest.raises(CatalogInvalid, match=r"golden.yaml:4: questions.triage.models: the task of eyes is embedding"):
        catalog.load(folder)


def test_every_colour_that_may_be_asked_for_can_be_drawn():
    items = Intent.model_json_schema()["$defs"]["GoldenQuestion"]["properties"]["images"]["items"]
    assert items["enum"]
    assert set(items["enum"]) <= RGB.keys()


def test_a_question_is_greedy_from_no_cache_and_bound_where_fields_matter():
    bound, free = AGE.body("m", thinks=True), PLAIN.body("m", thinks=True)
    for body in (bound, free):
        assert (body["temperature"], body["cache_prompt"], body["logprobs"]) == (0, False, True)
    assert bound["response_format"]["json_schema"]["schema"] == AGE.schema
    assert bound["chat_template_kwargs"] == {"enable_thinking": False}
    assert free["max_tokens"] == questions.FIRST_TOKENS
    assert "response_format" not in free
    assert AGE.sha256 != PLAIN.sha256


def test_fields_are_the_leaves_of_the_json():
    assert asking.read(THREE, AGE).fields == {"age": 34, "at.0": 1, "at.1": "{}"}


@pytest.mark.parametrize("content", ["no JSON", '["age"]', '{"name": "Anna"}', "[" * 3000])
def test_what_is_not_the_required_object_has_no_fields(content):
    assert asking.read(completion(content, token("x", -1)), AGE).fields is None


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (completion("OK"), "no log-probabilities"),
        (completion("OK", token("x", None)), "no numbers"),
        (completion("OK", token("x", math.nan)), "no numbers"),
        (completion("OK", token("x", 0.5)), "no numbers"),
        (completion("OK", token("x", "low")), "no chat completion"),
        (completion(["OK"], token("x", -1)), "no chat completion"),
        (completion("OK", {"token": "x"}), "no chat completion"),
        (completion("OK", {"token": "x", "top_logprobs": []}), "no chat completion"),
        (completion("OK", token("x", -1)) | {"usage": {"prompt_tokens": "ten"}}, "no chat completion"),
        (completion("OK", token("x", -1)) | {"usage": 7}, "no chat completion"),
        ({"choices": []}, "no chat completion"),
        ([], "no chat completion"),
        (None, "no chat completion"),
    ],
)
def test_what_is_no_answer_is_none_and_named(document, message):
    with pytest.raises(NoAnswer, match=message):
        asking.read(document, AGE)


def test_only_the_first_tokens_are_kept_and_a_part_of_a_character_is_readable():
    parts = [token("�", -1) | {"bytes": [0xF0, 0x9F]}] * 20
    parts[0]["top_logprobs"][0]["bytes"] = [0xF0, 0x9F]
    places = asking.read(completion("OK", *parts), PLAIN).tokens
    assert len(places) == questions.FIRST_TOKENS
    assert places[0] == Place(token="\\xf0\\x9f", top={"\\xf0\\x9f": -1.0})


def test_the_distance_is_the_mean_difference_of_the_recorded_tokens():
    before = Place(token="a", top={"a": -0.5, "b": -2.0})
    assert comparison.distance(before, before) == 0
    assert comparison.distance(before, Place(token="a", top={"a": -0.7, "b": -1.6})) == pytest.approx(0.3)


def test_a_token_that_is_not_listed_any_more_is_at_most_as_likely_as_the_last_one():
    before = Place(token="a", top={"a": -0.5, "b": -2.0})
    assert comparison.distance(before, Place(token="c", top={"c": -0.5, "d": -3.0})) == pytest.approx((2.5 + 1.0) / 2)
    assert comparison.distance(before, Place(token="c", top={"c": -0.1, "d": -0.2})) == 0


def shifted(by):
    """``THREE`` with each log-probability lower by *by*."""
    document = copy.deepcopy(THREE)
    for one in document["choices"][0]["logprobs"]["content"]:
        for each in one["top_logprobs"]:
            each["logprob"] -= by
    return document


@pytest.mark.parametrize(
    ("by", "here", "across"),
    [
        (SAME_LIMIT - 0.01, "passed", "passed"),
        (SAME_LIMIT + 0.01, "failed", "passed"),
        (ACROSS_LIMIT - 0.01, "failed", "passed"),
        (ACROSS_LIMIT + 0.01, "failed", "failed"),
    ],
)
def test_the_limit_is_narrow_only_where_engine_and_machine_are_known_and_the_same(kept, by, here, across):
    now = asked(shifted(by))
    unknown = golden.HERE.model_copy(update={"engine": "unknown"})
    nothing_known = kept.model_copy(update={"serving": unknown})
    assert golden.check(kept, now, asks=[AGE]).state == here
    for where in (golden.ELSEWHERE, unknown, golden.HERE.model_copy(update={"machine": "another"})):
        assert golden.check(kept, now, where, [AGE]).state == across
    assert golden.check(nothing_known, now, unknown, [AGE]).state == across


def test_another_field_fails_and_is_named_before_the_first_other_token(kept):
    other = completion('{"age": 38, "at": [1, {}]}', token("{", -0.1, ("[", -2.5)), token("38", -0.5, ("34", -1.0)))
    found = golden.check(kept, asked(other), golden.ELSEWHERE, [AGE])
    (one,) = found.compared
    assert (found.state, one.state) == ("failed", "failed")
    assert one.differences[0] == "field age: 34 → 38"
    assert one.differences[1].startswith("token 2: '34' (-0.50) → '38' (-0.50), distance ")
    assert one.texts == ('{"age": 34, "at": [1, {}]}', '{"age": 38, "at": [1, {}]}')


def test_nothing_after_the_first_other_token_is_compared(kept):
    other = completion('{"age": 34, "at": [1, {}]}', token("[", -0.1, ("{", -2.5)), token("7", -9.0, ("8", -9.0)))
    (one,) = golden.check(kept, asked(other), golden.ELSEWHERE, [AGE]).compared
    assert len(one.distances) == 1


def test_a_likely_other_token_alone_is_no_failure():
    """Where two tokens are as likely as each other, rounding chooses."""
    before = completion("a", token("a", -0.70, ("b", -0.71)))
    after = completion("b", token("b", -0.70, ("a", -0.71)))
    kept = golden.recorded(asked(before, PLAIN))
    found = golden.check(kept, asked(after, PLAIN), asks=[PLAIN])
    assert found.state == "passed"
    assert found.compared[0].differences[0].startswith("token 1: 'a' (-0.70) → 'b' (-0.70)")


WORDS = [token(word, -0.1, ("x", -3.0)) for word in ("one", " two", " three")]
END = token("", -0.1, ("x", -3.0))


@pytest.mark.parametrize(
    ("before", "after", "difference"),
    [
        (WORDS, WORDS[:1], "token 2: ' two' (-0.10) → the end"),
        (WORDS[:1], WORDS, "token 2: the end → ' two' (-0.10)"),
        ([*WORDS, END], WORDS[:2], "token 3: ' three' (-0.10) → the end"),
        (WORDS, [*WORDS, END], None),
        ([*WORDS, END], WORDS, None),
        ([*WORDS, END], [*WORDS, END], None),
    ],
)
def test_an_answer_that_ends_earlier_or_later_is_another_one_and_an_end_that_is_not_listed_is_none(
    before, after, difference
):
    kept = golden.recorded(asked(completion("1", *before), PLAIN))
    (one,) = golden.check(kept, asked(completion("2", *after), PLAIN), golden.ELSEWHERE, [PLAIN]).compared
    assert (one.state, one.differences) == (("failed", (difference,)) if difference else ("passed", ()))


def test_an_end_that_is_about_as_likely_as_what_went_on_is_no_failure():
    before = completion("a", token("a", -0.70, ("", -0.71)))
    after = completion("", token("", -0.70, ("a", -0.71)))
    kept = golden.recorded(asked(before, PLAIN))
    assert golden.check(kept, asked(after, PLAIN), asks=[PLAIN]).state == "passed"


@pytest.mark.parametrize(("where", "limit"), [(golden.HERE, SAME_LIMIT), (golden.ELSEWHERE, ACROSS_LIMIT)])
@pytest.mark.parametrize(("over", "state"), [(-0.01, "passed"), (0.01, "failed")])
def test_one_question_that_is_answered_otherwise_fails_however_many_others_are_as_they_were(where, limit, over, state):
    asks = [Question(f"q{number}", PLAIN.messages) for number in range(30)]
    same = completion("1", *[token("a", -0.1)] * questions.FIRST_TOKENS)
    other = completion("2", token("b", -0.1, ("a", -0.1 - QUESTION * limit - over)))
    before, after = (
        Asked({one.name: asking.read(one_of, one) for one, one_of in zip(asks, found, strict=True)}, {}, 10.0, "b1")
        for found in ([same] * 30, [*[same] * 29, other])
    )
    found = golden.check(golden.recorded(before), after, where, asks)
    assert found.distance < limit
    assert (found.state, found.compared[-1].state) == (state, state)
    assert {one.state for one in found.compared[:-1]} == {"passed"}


def test_an_answer_that_is_no_json_any_more_lowers_the_parse_rate_and_fails(kept):
    found = golden.check(kept, asked(completion("Anna is", token("{", -0.1, ("[", -2.5)))), asks=[AGE])
    assert (found.state, found.parsed) == ("failed", (1, 0, 1))
    assert "not the required JSON" in found.compared[0].differences[0]


def test_other_tokens_of_the_prompt_fail_as_another_template(kept):
    found = golden.check(kept, asked(THREE | {"usage": {"prompt_tokens": 11}}), asks=[AGE])
    assert found.state == "failed"
    assert "10 → 11: another chat template" in found.compared[0].differences[0]


def test_a_question_that_was_not_asked_so_is_unknown_and_never_passed(kept):
    other = Question("age", AGE.messages, AGE.schema | {"maxProperties": 2})
    for asks in ([other], [AGE, PLAIN], []):
        now = Asked({one.name: asking.read(THREE, one) for one in asks}, {}, None, "b1")
        found = golden.check(kept, now, asks=asks)
        assert found.state == "unknown"
        assert "unknown" in [one.state for one in found.compared]


def test_a_question_without_an_answer_fails_and_one_without_log_probabilities_is_unknown(kept):
    for problem, state in ((NoAnswer("HTTP 500"), "failed"), (NoAnswer("none", is_unknown=True), "unknown")):
        found = golden.check(kept, asked(None, age=problem), asks=[AGE])
        assert (found.state, found.compared[0].differences) == (state, (str(problem),))


def test_what_has_moved_is_named_and_what_is_not_known_is_not_taken_for_the_same():
    other = golden.HERE.model_copy(update={"files": {"other.gguf": "c" * 64}, "argv_sha256": "d" * 64})
    assert list(comparison.moved(golden.HERE, golden.HERE)) == []
    assert list(comparison.moved(golden.HERE, other)) == [
        "file model.gguf: bbbbbbbbbbbb → none",
        "file other.gguf: none → cccccccccccc",
        "command line: aaaaaaaaaaaa → dddddddddddd",
    ]
    nothing = golden.HERE.model_copy(
        update={"engine": "unknown", "machine": "unknown", "files": None, "argv_sha256": None}
    )
    assert list(comparison.moved(nothing, nothing)) == [
        "engine: unknown → unknown",
        "machine: unknown → unknown",
        "files: unknown",
        "command line: unknown",
    ]


def test_the_file_has_one_fact_on_a_line_and_is_read_back_as_it_was(kept, tmp_path):
    golden_answers = Golden(models={"b": kept, "a": kept})
    record.write(tmp_path, golden_answers)
    text = (tmp_path / "golden.json").read_text()
    assert record.read(tmp_path) == golden_answers
    assert json.loads(text) == golden_answers.model_dump(mode="json")
    assert '\n            {"token": "{", "top": {"{": -0.1, "[": -2.5}},\n' in text
    assert text == record.text_of(Golden(models={"a": kept, "b": kept}))
    assert text.index('"a"') < text.index('"b"')


def test_without_a_file_nothing_is_recorded(tmp_path):
    assert record.read(tmp_path).models == {}


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (lambda text: text.replace("-0.1", "0.1"), "top"),
        (lambda text: text.replace('"version": 1', '"version": 2'), "version"),
        (lambda text: text.replace('"date"', '"day"'), "date is missing"),
        (lambda text: re.sub(r'"tokens": \[[^\]]*\]', '"tokens": []', text), "tokens"),
        (lambda text: f"<<<<<<< ours\n{text}", "conflict markers"),
        (lambda text: text[:-5], "golden.json"),
        (lambda _: '{"models": {}}', "it has no version"),
    ],
)
def test_a_file_that_is_not_as_written_is_refused(kept, tmp_path, harm, message):
    record.write(tmp_path, Golden(models={"a": kept}))
    file = tmp_path / "golden.json"
    file.write_text(harm(file.read_text()))
    with pytest.raises(Refused, match=message):
        record.read(tmp_path)
