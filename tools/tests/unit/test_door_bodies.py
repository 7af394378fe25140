"""What a request may have in its body."""

import json

import pytest

from corral.door import bodies
from corral.door.config import Client
from corral.door.refusals import Refusal

HOSTS = {"images.example", "images.example:8443"}
DATA = "data:image/png;base64,iVBORw0KGgo="


def read(body):
    return bodies.read_document(body if isinstance(body, bytes) else body.encode())


def code(act, *arguments):
    with pytest.raises(Refusal) as refused:
        act(*arguments)
    return refused.value.code


NOT_JSON = {
    "nothing": b"",
    "text": b"hello",
    "a form": b"model=tiny-text",
    "a list": b'[{"model": "m"}]',
    "a name twice": b'{"model": "a", "model": "b"}',
    "a name twice, once with an escape": b'{"model": "a", "m\\u006fdel": "b"}',
    "a name twice, deep": b'{"a": [{"url": 1, "url": 2}]}',
    "NaN": b'{"a": NaN}',
    "Infinity": b'{"a": -Infinity}',
    "a comment": b'{"a": 1} // {"a": 2}',
    "a comma too much": b'{"a": 1,}',
    "two documents": b'{"a": 1}{"a": 2}',
    "a byte order mark": b'\xef\xbb\xbf{"a": 1}',
    "UTF-16": '{"a": 1}'.encode("utf-16"),
    "UTF-16 without a mark": '{"a": 1}'.encode("utf-16-le"),
    "bytes that are no UTF-8": b'{"a": "\xff"}',
    "an overlong slash": b'{"a": "\xc0\xaf"}',
    "half a character in UTF-8": b'{"a": "\xed\xa0\x80"}',
    "a line break in a text": b'{"a": "\n"}',
    "an unknown escape": b'{"a": "\\x41"}',
    "single quotation marks": b"{'a': 1}",
    "half a character as a name": b'{"\\ud800": 1}',
    "a number of many digits": b'{"a": ' + b"1" * 5000 + b"}",
    "lists within lists": b'{"a": ' + b"[" * 50_000 + b"]" * 50_000 + b"}",
    "objects within objects": b'{"a":' * 50_000 + b"1" + b"}" * 50_000,
}


@pytest.mark.parametrize("case", NOT_JSON)
def test_what_parsers_may_read_differently_is_refused(case):
    assert code(read, NOT_JSON[case]) == "body-not-json"


@pytest.mark.parametrize("depth", [101, 500])
def test_a_document_is_as_deep_as_a_person_writes_it(depth):
    def document(depth):
        return read('{"a": ' + "[" * (depth - 1) + "]" * (depth - 1) + "}")

    bodies.require_local_media(document(100), ())
    assert code(bodies.require_local_media, document(depth), ()) == "body-not-json"


@pytest.mark.parametrize(
    "body",
    [
        b'{"a": "' + b"x" * (16 << 20) + b'"}',
        b'{"a": [' + b"{}," * 200_000 + b"0]}",
        b'{"a": [' + b"[]," * 200_000 + b"0]}",
        b'{"a": [' + b"0," * 1_100_000 + b"0]}",
    ],
    ids=["text", "objects", "lists", "numbers"],
)
def test_more_than_a_context_holds_is_refused_before_it_is_parsed(body):
    assert code(read, body) == "body-too-large"


def test_an_image_may_be_larger_than_the_text_may():
    document = read(json.dumps({"image_url": {"url": DATA + "A" * (40 << 20)}, "text": "é"}))

    assert document["image_url"]["url"].startswith(DATA)
    assert document["text"] == "é"
    bodies.require_local_media(document, ())


@pytest.mark.parametrize(
    "hidden",
    [
        '"data:{0}", "image_url": "http://evil.example"',
        '"x\\"data:{0}", "image_url": "http://evil.example"',
        '"data:{0}\\", \\"a\\": \\"", "image_url": "http://evil.example"',
        '"data:{0}\\\\", "image_url": "http://evil.example"',
        '"data:image/png;base64,\\", "image_url": "http://evil.example", "b": "{0}"',
        '{{"data:{0}": 1, "image_url": "http://evil.example"}}',
    ],
)
def test_no_member_is_overlooked_behind_a_long_data_address(hidden):
    body = '{"model": "m", "a": ' + hidden.format("A" * 5000) + "}"
    try:
        document = read(body)
    except Refusal as refused:
        assert refused.code == "body-not-json"  # noqa: PT017 - both are a refusal
        with pytest.raises(ValueError):
            json.loads(body)
    else:
        whole = json.loads(body)
        assert document.keys() == whole.keys()
        assert (code(bodies.require_local_media, document, ())) == "remote-media"


def test_many_data_addresses_are_read_as_one_is():
    images = [{"url": DATA + "A" * 2000, "n": n} for n in range(1500)]

    assert [one["n"] for one in read(json.dumps({"images": images}))["images"]] == list(range(1500))


REMOTE = [
    {"messages": [{"content": [{"type": "image_url", "image_url": {"url": "http://10.0.0.1/a.png"}}]}]},
    {"messages": [{"content": [{"type": "image_url", "image_url": "http://10.0.0.1/a.png"}]}]},
    {"messages": [{"content": [{"type": "image_url", "image_url": ["https://10.0.0.1/a.png"]}]}]},
    {"messages": [{"content": [{"type": "video_url", "video_url": {"url": "https://10.0.0.1/a.mp4"}}]}]},
    {"messages": [{"content": [{"type": "input_audio", "input_audio": {"data": "http://10.0.0.1/a.wav"}}]}]},
    {"messages": [{"content": [{"type": "input_video", "input_video": {"data": "http://10.0.0.1/a.mp4"}}]}]},
    {"messages": [{"content": [{"type": "file", "file": {"file_data": "http://10.0.0.1/a.pdf"}}]}]},
    {"messages": [{"content": [{"type": "image", "source": {"type": "url", "url": "http://10.0.0.1/a.png"}}]}]},
    {"input": [{"content": [{"type": "input_image", "image_url": "http://10.0.0.1/a.png"}]}]},
    {"prompt": {"prompt_string": "<__media__>", "multimodal_data": ["http://10.0.0.1/a.png"]}},
    {"image_data": [{"data": "http://10.0.0.1/a.png", "id": 1}]},
    {"a": {"b": {"Image_URL": "http://10.0.0.1/a.png"}}},
    {"tools": [{"type": "mcp", "server_url": "http://10.0.0.1/"}]},
]
ADDRESSES = [
    "http://10.0.0.1/",
    "HTTP://10.0.0.1/",
    " http://10.0.0.1/",
    "\thttps://10.0.0.1/",
    "http:10.0.0.1",
    "http:/10.0.0.1",
    "file:///etc/passwd",
    "FILE:///etc/passwd",
    "ftp://10.0.0.1/",
    "gopher://10.0.0.1/",
    "Data:text/html,x",
    "https://images.example.evil.example/",
    "https://evil.example/images.example",
    "https://images.example@evil.example/",
    "https://images.example/x@evil.example/",
    "https://images.example\\@evil.example/",
    "https://images.example:80/",
    "https://images.example:8443:80/",
    "https://images.example?@evil.example/",
    "https://images.example#@evil.example/",
    "https://images.example%00.evil.example/",
    "https://IMAGES.example/",
    "https://images.example/\r\nHost: evil.example",
    "https://images.example/ x",
    "https://[::1]/",
    "http://2130706433/",
]


@pytest.mark.parametrize("document", REMOTE, ids=json.dumps)
def test_media_that_the_engine_would_fetch_is_refused_wherever_it_stands(document):
    assert code(bodies.require_local_media, document, HOSTS) == "remote-media"


@pytest.mark.parametrize("address", ADDRESSES)
def test_an_address_is_refused_unless_its_host_is_permitted_for_every_reader(address):
    document = {"messages": [{"content": [{"type": "image_url", "image_url": {"url": address}}]}]}

    assert code(bodies.require_local_media, document, HOSTS) == "remote-media"


@pytest.mark.parametrize(
    "body",
    [
        '{"image_url": {"url": "http://10.0.0.1/"}}',
        '{"image\\u005furl": {"\\u0075rl": "http:\\u002f\\u002f10.0.0.1"}}',
        '{"image_url": {"url": "\\u0068ttp:\\/\\/10.0.0.1/"}}',
        '{"\\u0069\\u006d\\u0061\\u0067\\u0065\\u005f\\u0075\\u0072\\u006c": "\\u0066ile:///etc/passwd"}',
    ],
)
def test_escapes_hide_no_address(body):
    assert code(bodies.require_local_media, read(body), ()) == "remote-media"


@pytest.mark.parametrize(
    "document",
    [
        {"image_url": {"url": DATA, "detail": "auto"}},
        {"image_url": {"url": "https://images.example/a.png?b=c"}},
        {"image_url": {"url": "https://images.example"}},
        {"image_url": {"url": "http://images.example:8443/a.png"}},
        {"input_audio": {"data": "UklGRg==", "format": "wav"}},
        {"source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}},
        {"messages": [{"content": "Read http://10.0.0.1/ and file:///etc/passwd"}]},
        {"messages": [{"content": [{"type": "text", "text": "http://10.0.0.1/"}]}]},
        {"messages": [{"content": [{"type": "tool_use", "input": {"url": "http://10.0.0.1/"}}]}]},
        {"messages": [{"tool_calls": [{"function": {"arguments": '{"url": "http://10.0.0.1/"}'}}]}]},
        {"tools": [{"function": {"parameters": {"properties": {"url": {"type": "string", "description": "a: b"}}}}}]},
    ],
    ids=json.dumps,
)
def test_what_the_engine_fetches_nothing_for_is_accepted(document):
    bodies.require_local_media(document, HOSTS)


_INPUT = {"type": "tool_use", "input": {"url": "http://10.0.0.1/"}}


@pytest.mark.parametrize(
    "document",
    [
        {"messages": [{"content": [_INPUT | {"type": "text"}]}]},
        {"messages": [{"content": [{"type": "tool_use", "image_url": "http://10.0.0.1/", "input": {}}]}]},
        {"messages": [{"content": [{"type": "tool_result", "content": [_INPUT]}]}]},
        {"messages": [{"content": _INPUT}]},
        {"messages": [{"content": [[_INPUT]]}]},
        {"messages": [_INPUT]},
        {"input": [{"content": [_INPUT]}]},
        {"type": "tool_use", "input": [{"content": [{"type": "input_image", "image_url": "http://10.0.0.1/"}]}]},
    ],
    ids=json.dumps,
)
def test_only_the_input_of_a_call_may_name_a_page(document):
    assert code(bodies.require_local_media, document, ()) == "remote-media"


MODELS = {"qwen3-8b": "qwen3-8b", "gpt-4o": "qwen3-8b", "org/other": "other"}
SOME = Client("some", frozenset({"qwen3-8b"}), None)
ALL = Client("all", None, None)


def test_a_model_is_named_by_its_id_or_an_alias():
    assert bodies.model_of({"model": "gpt-4o"}, MODELS.get, SOME) == "qwen3-8b"
    assert bodies.model_of({"model": "org/other"}, MODELS.get, ALL) == "other"


@pytest.mark.parametrize("name", ["org/other", "nothing", "", "qwen3-8b ", "QWEN3-8B", "../qwen3-8b"])
def test_another_models_name_and_no_models_name_have_the_same_answer(name):
    with pytest.raises(Refusal) as refused:
        bodies.model_of({"model": name}, MODELS.get, SOME)

    assert (refused.value.status, refused.value.code) == (404, "model-not-found")
    assert not name or name not in refused.value.message


@pytest.mark.parametrize(
    "document", [{}, {"model": None}, {"model": 1}, {"model": ["qwen3-8b"]}, {"Model": "qwen3-8b"}]
)
def test_a_body_without_a_model_is_refused(document):
    assert code(bodies.model_of, document, MODELS.get, ALL) == "model-missing"
