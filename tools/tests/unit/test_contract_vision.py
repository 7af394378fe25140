"""What the contract of a vision model makes of answers, of the engine's log and of a committed file."""

from __future__ import annotations

import copy
import itertools
import json

import pytest

from corral.contract import vision, vision_document
from corral.contract.vision import ORDERS, Found
from corral.engine import log_lines
from corral.smoke.endpoint import Reply
from corral.smoke.images import RGB

TEN = list(ORDERS[0])
PROMISES = {
    "layers": {"on_card": 0, "of": 3, "projector": "CPU", "why": "no usable GPU found"},
    "health": {"while_loading": 503, "loaded": 200},
    "order": [{"side_px": side, "shown": TEN, "named": TEN} for side in (256, 896)],
    "stream": {"named": TEN, "done": True},
    "schema": {"form": "f", "named": TEN},
    "images_per_request": {"256": 29, "896": 12, "tried_up_to": 64},
}
MEASURED = {"boot": {"n": 3, "median_seconds": 1.0, "least_seconds": 0.5, "most_seconds": 2.0}, "answers": []}


def reply(document, status=200):
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    return Reply(status, "application/json", body)


def changed(path, value):
    """The promises with *value* at *path*."""
    promises = copy.deepcopy(PROMISES)
    *parents, last = path
    inner = promises
    for key in parents:
        inner = inner[key]
    inner[last] = value
    return promises


def test_no_two_images_can_change_places_without_another_answer():
    pairs = list(zip(*ORDERS, strict=True))
    assert len(pairs) >= 10
    assert len(set(pairs)) == len(pairs)
    assert all(one != other for order in ORDERS for one, other in itertools.pairwise(order))
    assert {colour for order in ORDERS for colour in order} <= RGB.keys()


def test_a_model_that_keeps_all_promises_breaks_none():
    assert vision._broken(PROMISES, None) == []
    assert vision._broken(PROMISES, 12) == []


@pytest.mark.parametrize(
    ("path", "value", "sentence"),
    [
        (("layers", "on_card"), None, "is not known"),
        (("health", "while_loading"), 200, "/health"),
        (("order", 0, "named"), TEN[::-1], "it names yellow, blue"),
        (("order", 1, "named"), [], "it names none"),
        (("order", 0, "named"), None, "10 images of 256 pixels do not fit into its context"),
        (("stream", "done"), False, "[DONE]"),
        (("stream", "named"), TEN[1:], "streamed"),
        (("schema", "named"), None, "no JSON"),
        (("images_per_request", "896"), 9, "images_per_request is 10, and its context takes 9"),
    ],
)
def test_each_promise_that_is_not_kept_is_named(path, value, sentence):
    (broken,) = vision._broken(changed(path, value), 10)
    assert sentence in broken


def test_ten_large_images_that_do_not_fit_are_a_fact_and_no_breach():
    assert vision._broken(changed(("order", 1, "named"), None), None) == []


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[" * 100_000,
        [],
        {},
        {"choices": []},
        {"choices": [{"message": {"content": 1}}], "usage": {"prompt_tokens": 1}},
        {"choices": [{"message": {"content": "red"}}], "usage": {"prompt_tokens": "1"}},
        {"choices": [{"message": {"content": "red"}}], "usage": {"prompt_tokens": -1}},
        {"choices": [{"message": "red"}], "usage": {"prompt_tokens": 1}},
        {"choices": [{"message": {"content": "red"}}]},
    ],
    ids=lambda body: str(body)[:40],
)
def test_an_answer_of_another_form_is_none(body):
    with pytest.raises(ValueError, match="no chat completion"):
        vision.content_of(reply(body))


def test_an_answer_is_its_content_and_the_tokens_of_its_prompt():
    document = {"choices": [{"message": {"content": "Red, then GREEN."}}], "usage": {"prompt_tokens": 196}}
    content, tokens = vision.content_of(reply(document))
    assert (vision.named(content), tokens) == (["red", "green"], 196)


@pytest.mark.parametrize(
    "text", ["", "{", "[" * 100_000, "[]", '{"colours": 1}', '{"colours": ["mauve"]}', '{"colours": [[]]}']
)
def test_what_a_schema_would_not_allow_has_no_colours(text):
    assert vision.colours_in(text) is None


def test_only_the_refusal_for_want_of_context_counts_as_that():
    assert vision.is_too_long(reply({"error": {"type": "exceed_context_size_error"}}, 400))
    for document, status in (
        ({"error": {"type": "exceed_context_size_error"}}, 500),
        ({"error": {"type": "invalid_request_error"}}, 400),
        ({"error": "exceed_context_size_error"}, 400),
        ([], 400),
    ):
        assert not vision.is_too_long(reply(document, status))


def document(promises, measured=MEASURED):
    return vision_document.contract(
        "m", {"engine": {"build": "b1"}}, Found(promises, measured, ()), date="d", machine="x"
    )


def test_a_promise_that_differs_is_named_by_its_path_and_times_are_none():
    before = document(PROMISES)
    after = document(changed(("order", 1, "named"), TEN[1:]), {**MEASURED, "boot": {"n": 3, "median_seconds": 99.0}})
    lines = vision_document.drift(before, after)
    assert [line.partition(": ")[0] for line in lines] == ["-order.2.named", "+order.2.named"]
    assert vision_document.drift(before, document(PROMISES)) == []
    assert vision_document.times(after, before) == [("boot", "99.000 s", "median of 3", "1.000 s")]


def test_a_promise_that_is_gone_or_new_is_a_difference():
    fewer = {key: value for key, value in PROMISES.items() if key != "stream"}
    there, gone = document(PROMISES), document(fewer)
    assert [line[0] for line in vision_document.drift(there, gone)] == ["-", "-"]
    assert [line[0] for line in vision_document.drift(gone, there)] == ["+", "+"]


@pytest.mark.parametrize("name", ["--flag", "++flag", "-", "@@ -1", " "])
def test_a_promise_of_any_name_that_is_gone_or_new_is_a_difference(name):
    there, gone = document({**PROMISES, name: 1}), document(PROMISES)
    assert vision_document.drift(there, gone) == [f"-{name}: 1"]
    assert vision_document.drift(gone, there) == [f"+{name}: 1"]


def test_a_document_is_read_as_it_was_written_and_one_of_another_form_is_not():
    written = document(PROMISES)
    assert vision_document.read(vision_document.text(written), model="m") == written
    for key, value in (("version", 2), ("contract", "api"), ("model", "n"), ("promises", []), ("measured", None)):
        with pytest.raises(ValueError, match="it "):
            vision_document.read(json.dumps({**written, key: value}), model="m")


def test_times_of_another_form_in_a_committed_file_are_left_out():
    boots = [{"median_seconds": one, "n": 1} for one in (10**400, -1, float("nan"), float("inf"), True, None)]
    rows = [{"answers": [1, {"kind": [], "median_seconds": "1", "n": 1}]}, *({"boot": boot} for boot in boots)]
    for measured in ({}, {"boot": [], "answers": 3}, *rows):
        before = {**document(PROMISES), "measured": measured}
        assert vision_document.times(document(PROMISES), before)[0][-1] == "-"


START = "0.00.000.302 I srv          init: initializing ...\n0.00.009.565 I print_info: n_layer               = 36\n"


@pytest.mark.parametrize(
    ("log", "layers"),
    [
        (
            START + "0.00.1.1 I load_tensors: offloaded 37/37 layers to GPU\nclip_ctx: CLIP using CUDA0 backend\n",
            (37, 37, "CUDA0", "offloaded 37/37 layers to GPU"),
        ),
        ("warning: no usable GPU found, --gpu-layers option will be ignored\n", (0, None, None, "no usable GPU found")),
        (START, (None, 37, None, "the engine's log does not state it")),
        ("", (None, None, None, "the engine's log does not state it")),
    ],
    ids=["on-the-card", "no-card", "silent", "empty"],
)
def test_where_the_layers_are_follows_from_the_engines_log(log, layers):
    found = log_lines.layers(log)
    assert (found.on_card, found.total, found.projector, found.why) == layers
