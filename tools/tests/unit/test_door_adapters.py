"""Adapters at the guard: which version a name means, and that of a request nothing else is changed."""

from __future__ import annotations

import json

import pytest

from corral.door.adapters import parse, text_of
from corral.door.config import Misconfigured, read_config
from corral.files import write_atomically
from tests.support.guard_process import CLIENTS, run_guard, settings, stub_llama_swap

CHAT = "/v1/chat/completions"
ADAPTERS = {
    "tiny-text:sql": {"model": "tiny-text", "versions": ["v1", "v2"]},
    "tiny-vision:art": {"model": "tiny-vision", "versions": ["v1"]},
}
ASKED = {"model": "tiny-text:sql", "messages": [{"role": "user", "content": "Hi"}]}


@pytest.fixture
def stub():
    with stub_llama_swap() as stub:
        yield stub


@pytest.fixture
def versions(tmp_path):
    return tmp_path / "versions.json"


@pytest.fixture
def guard(stub, tmp_path, versions):
    with run_guard(tmp_path, stub.port, adapters=ADAPTERS, chosen_versions=str(versions)) as guard:
        yield guard


def body_of(request: bytes) -> bytes:
    head, _, body = request.partition(b"\r\n\r\n")
    (length,) = [line.partition(b": ")[2] for line in head.split(b"\r\n") if line.startswith(b"Content-Length")]
    assert int(length) == len(body)
    return body


def served(guard, stub, name="tiny-text:sql"):
    """The name of the model that llama-swap gets."""
    assert guard.post(ASKED | {"model": name}).status == 200
    return json.loads(body_of(stub.requests[-1]))["model"]


def test_nothing_but_the_name_of_the_model_is_changed(guard, stub):
    sent = (
        b'{ "tools":[{"model":"tiny-text:sql"}],\n "model"\t:  "tiny-text:sql" , "t": 1.0e3,'
        b' "messages": [{"role":"user", "content":"say \\"model\\":\\"tiny-text:sql\\" \\u00e9"}]}'
    )
    assert guard.post(sent).status == 200
    assert body_of(stub.requests[0]) == sent.replace(b'  "tiny-text:sql" ,', b'  "tiny-text:sql@v1" ,')
    assert guard.next_record()["adapter"] == "sql@v1"


@pytest.mark.parametrize("escaped", [b'{"model":"tiny-text\\u003asql"}', b'{"mode\\u006c":"tiny-text:sql"}'])
def test_a_name_with_escapes_is_refused(guard, stub, escaped):
    answer = guard.post(escaped)
    assert (answer.status, answer.error["code"], stub.requests) == (400, "model-escaped", [])


def test_the_version_that_serves_is_read_again_when_it_changes(guard, stub, versions):
    assert served(guard, stub) == "tiny-text:sql@v1"
    write_atomically(versions, text_of({"tiny-text:sql": ["v2", "v1"]}))
    assert served(guard, stub) == "tiny-text:sql@v2"
    versions.unlink()
    assert served(guard, stub) == "tiny-text:sql@v1"


def test_a_version_that_there_is_no_more_is_passed_over(guard, stub, versions):
    write_atomically(versions, text_of({"tiny-text:sql": ["v9", "v2"], "gone:x": ["v1"]}))
    assert served(guard, stub) == "tiny-text:sql@v2"


def test_a_file_that_cannot_be_used_leaves_the_version_before_it(guard, stub, versions):
    write_atomically(versions, text_of({"tiny-text:sql": ["v2"]}))
    assert served(guard, stub) == "tiny-text:sql@v2"
    for text in ("{", "{}", '{"version": 2, "chosen": {}}', '{"version": 1, "chosen": {"tiny-text:sql": "v1"}}'):
        write_atomically(versions, text)
        assert served(guard, stub) == "tiny-text:sql@v2"
        assert str(versions) in guard.next_record("versions-kept")["reason"]


def test_without_a_file_that_can_be_used_no_version_is_guessed(stub, tmp_path, versions):
    versions.write_text("{")
    with run_guard(tmp_path, stub.port, adapters=ADAPTERS, chosen_versions=str(versions)) as guard:
        answer = guard.post(ASKED)
        assert (answer.status, answer.error["code"]) == (503, "versions-unknown")
        assert served(guard, stub, "tiny-text:sql@v2") == "tiny-text:sql@v2"
        assert served(guard, stub, "gpt-4o") == "gpt-4o"


def test_a_key_for_a_model_is_one_for_its_adapters_and_no_others(guard, stub):
    assert guard.post(ASKED, key="key-of-second").status == 200
    there, nothing = (
        guard.post(ASKED | {"model": name}, key="key-of-second").body for name in ("tiny-vision:art", "tiny-text:none")
    )
    assert there == nothing
    assert json.loads(there)["error"]["code"] == "model-not-found"


def test_an_adapter_is_no_model_on_the_paths_of_an_operator(guard, stub):
    answer = guard.get("/upstream/tiny-text:sql/v1/models", key="operator-key")
    assert (answer.status, answer.error["code"], stub.requests) == (404, "no-adapter-here", [])
    assert "/upstream/tiny-text/v1/models" in answer.error["message"]


def test_an_operators_request_to_the_engine_itself_gets_no_adapter(guard, stub):
    path = "/upstream/tiny-text/v1/chat/completions"
    for name in ("tiny-text:sql", "tiny-text:sql@v2"):
        answer = guard.post(ASKED | {"model": name}, path=path, key="operator-key")
        assert (answer.status, answer.error["code"], stub.requests) == (404, "no-adapter-here", [])
    assert guard.post(ASKED | {"model": "tiny-text"}, path=path, key="operator-key").status == 200


def test_an_adapter_on_another_card_gets_its_version_there(stub, tmp_path, versions):
    with stub_llama_swap() as other:
        peer = {"host": "127.0.0.1", "port": other.port, "models": ["tiny-text"]}
        with run_guard(tmp_path, stub.port, adapters=ADAPTERS, peers={"p40": peer}) as guard:
            assert guard.post(ASKED).status == 200
            assert json.loads(body_of(other.requests[0])) == ASKED
            assert stub.requests == []


def test_the_list_has_the_adapters_of_the_models_that_a_key_may_use(guard, stub):
    data = [{"id": name, "object": "model"} for name in ("tiny-text", "tiny-vision")]
    stub.fail(200, {"object": "list", "data": data}, path="/v1/models")
    listed = json.loads(guard.get("/v1/models", key="key-of-second").body)["data"]
    assert [(one["id"], one.get("parent"), one.get("version")) for one in listed] == [
        ("tiny-text", None, None),
        ("tiny-text:sql", "tiny-text", "v1"),
    ]
    assert CLIENTS["second"]["models"] == ["tiny-text"]


@pytest.mark.parametrize(
    ("adapters", "problem"),
    [
        ({"tiny-text:sql": {"model": "nothing", "versions": ["v1"]}}, "must be the id of a model"),
        ({"other:sql": {"model": "tiny-text", "versions": ["v1"]}}, "must be the id of a model"),
        ({"tiny-text:SQL": {"model": "tiny-text", "versions": ["v1"]}}, "must be the id of a model"),
        ({"tiny-text:sql": {"model": "tiny-text", "versions": []}}, "must have one or more"),
        ({"tiny-text:sql": {"model": "tiny-text", "versions": ["v1", "v1"]}}, "none twice"),
        ({"tiny-text:sql": {"model": "tiny-text", "versions": ["v@1"]}}, "of the form"),
        ({"tiny-text:sql": {"model": "tiny-text"}}, "versions is missing"),
    ],
)
def test_adapters_are_configured_below_a_model_with_versions_or_refused(tmp_path, adapters, problem):
    path = tmp_path / "guard.json"
    path.write_text(json.dumps(settings(tmp_path, 1, adapters=adapters)))
    with pytest.raises(Misconfigured, match=problem):
        read_config(path)


def test_the_file_is_read_as_it_is_written():
    assert parse(text_of({"b:x": ["v2", "v1"], "a:y": []})) == {"b:x": ["v2", "v1"]}
