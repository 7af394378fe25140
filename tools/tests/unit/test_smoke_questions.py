"""The requests follow from the catalog."""

from __future__ import annotations

import pytest

from corral.catalog import catalog
from corral.errors import Refused
from corral.smoke.questions import DEFAULT_PROMPT, MAX_TOKENS, MAX_TOKENS_THINKING, Subject, subjects
from tests.support import smoke_catalog


def load(folder, **models):
    return catalog.load(smoke_catalog.write(folder, models))


def test_a_text_model_is_asked_for_an_answer_and_a_stream(tmp_path):
    (subject,) = subjects(load(tmp_path, words={}))
    assert subject == Subject("words", sees=False, thinks=True, prompt=DEFAULT_PROMPT, expect=None)
    assert subject.checks == ("answer", "stream")


def test_a_vision_model_is_shown_images_both_ways_before_the_stream(tmp_path):
    (subject,) = subjects(load(tmp_path, eyes={"modalities": ["text", "image"]}))
    assert subject.checks == ("answer", "images", "images-swapped", "stream")


def test_the_catalogs_own_question_is_asked(tmp_path):
    (subject,) = subjects(load(tmp_path, sums={"smoke": {"prompt": "1+1=?", "expect": "2"}}))
    assert (subject.prompt, subject.expect) == ("1+1=?", "2")
    assert subject.body("answer")["messages"] == [{"role": "user", "content": "1+1=?"}]


def test_an_expectation_alone_keeps_the_general_question(tmp_path):
    (subject,) = subjects(load(tmp_path, yes={"smoke": {"expect": "OK"}}))
    assert (subject.prompt, subject.expect) == (DEFAULT_PROMPT, "OK")


def test_a_model_that_may_think_gets_tokens_to_think_with(tmp_path):
    by_id = {
        subject.model: subject.body("answer")["max_tokens"]
        for subject in subjects(load(tmp_path, auto={}, on={"reasoning": "on"}, off={"reasoning": "off"}))
    }
    assert by_id == {"auto": MAX_TOKENS_THINKING, "off": MAX_TOKENS, "on": MAX_TOKENS_THINKING}


def test_questions_leave_nothing_to_chance():
    body = Subject("m").body("stream")
    assert (body["model"], body["temperature"], body["stream"]) == ("m", 0, True)
    assert body == Subject("m").body("stream")


def test_the_two_image_questions_differ_in_the_order_alone():
    subject = Subject("eyes", sees=True)
    one, other = (subject.body(check)["messages"][0]["content"] for check in ("images", "images-swapped"))
    assert (one[0], one[1], one[2]) == (other[1], other[0], other[2])
    assert one[0] != one[1]


def test_only_the_named_models_are_asked(tmp_path):
    assert [subject.model for subject in subjects(load(tmp_path, a={}, b={}, c={}), ["c", "a"])] == ["c", "a"]


def test_a_model_that_is_not_in_the_catalog_is_refused_with_the_list(tmp_path):
    with pytest.raises(Refused, match=r"No model nosuch .* It has: a, b"):
        subjects(load(tmp_path, a={}, b={}), ["nosuch"])


ADAPTERS = [
    {"source": {"repo": "org/l", "file": "a.gguf"}},
    {"source": {"repo": "org/l", "file": "b.gguf"}, "name": "sql", "smoke": {"prompt": "rows?", "expect": "3"}},
    {"source": {"repo": "org/l", "file": "c.gguf"}, "name": "art", "smoke": {"prompt": "colour?", "expect": "red"}},
    {"source": {"repo": "org/l", "file": "d.gguf"}, "name": "art", "version": "v2"},
]


def test_an_adapter_is_asked_by_its_name_with_its_own_question_and_several_versions_each(tmp_path):
    model = {"smoke": {"prompt": "1+1=?", "expect": "2"}, "adapters": ADAPTERS}
    assert [(one.model, one.prompt, one.expect, one.base) for one in subjects(load(tmp_path, m=model))] == [
        ("m", "1+1=?", "2", "m"),
        ("m:sql", "rows?", "3", "m"),
        ("m:art", "1+1=?", None, "m"),  # which of its versions serves is not in the catalog
        ("m:art@v1", "colour?", "red", "m"),
        ("m:art@v2", "1+1=?", None, "m"),
    ]


def test_adapters_are_named_alone_and_one_that_there_is_not_is_refused(tmp_path):
    catalog = load(tmp_path, m={"adapters": ADAPTERS}, other={})
    assert [one.model for one in subjects(catalog, ["other", "m:art@v2"])] == ["other", "m:art@v2"]
    with pytest.raises(Refused, match=r"No adapter m:none .* of m: m:sql, m:art, m:art@v1, m:art@v2"):
        subjects(catalog, ["m:none"])
