"""What the hub says about a model, through the real hub client and a hub on loopback."""

from __future__ import annotations

import json
import socket
from dataclasses import replace
from unittest.mock import Mock

import pytest
from huggingface_hub import HfApi, constants

from corral.catalog.intent import Model
from corral.demo.hub import Answer, Hub, RepoContent
from corral.errors import HubUnavailable, HubUnreachable, Refused
from corral.hub.resolve import resolve

REPO = "org/model-GGUF"
FILES = {
    "README.md": b"# model",
    "Q4_K_M/model-Q4_K_M-00001-of-00002.gguf": b"first",
    "Q4_K_M/model-Q4_K_M-00002-of-00002.gguf": b"second",
    "model-Q8_0.gguf": b"whole",
    "mmproj-F16.gguf": b"projector",
    "mmproj-BF16.gguf": b"other projector",
}


def model(modalities=("text",), **source):
    source = {"repo": REPO, "quant": "Q4_K_M"} | source
    source = {key: value for key, value in source.items() if value is not None}
    return Model.model_validate({"source": source, "card": "t4", "context": 4096, "modalities": list(modalities)})


class ListsNoHashes(Hub):
    """A hub whose tree says nothing of LFS; the HEAD of a file still does."""

    def answer(self, request):
        answer = super().answer(request)
        if "/tree/" not in request.path:
            return answer
        entries = [{**entry, "lfs": None} for entry in json.loads(answer.content)]
        body = json.dumps(entries).encode()
        return replace(answer, content=body, length=len(body))


class ListsNothing(Hub):
    """A hub in trouble, which would have its clients wait for an hour."""

    def answer(self, request):
        return Answer(503, {"Retry-After": "3600"}) if "/tree/" in request.path else super().answer(request)


@pytest.fixture
def start(monkeypatch):
    """Start a hub of a kind; HF_ENDPOINT names it."""
    running = []

    def started(kind=Hub, **content):
        hub = kind({REPO: RepoContent(**{"files": FILES, **content})}).__enter__()
        running.append(hub)
        monkeypatch.setenv("HF_ENDPOINT", hub.endpoint)
        return hub

    yield started
    for hub in running:
        hub.__exit__(None, None, None)


def test_a_split_model_has_all_shards_in_order_with_size_and_sha256(start, tmp_path):
    start(licence="mit")

    found = resolve(model(), tmp_path)

    assert [(file.path, file.role, file.size) for file in found.files] == [
        ("Q4_K_M/model-Q4_K_M-00001-of-00002.gguf", "model", 5),
        ("Q4_K_M/model-Q4_K_M-00002-of-00002.gguf", "model", 6),
    ]
    assert found.files[0].sha256 == "a7937b64b8caa58f03721bb6bacf5c78cb235febe0e70b1b84cd99541461a08e"
    assert (found.repo, found.licence) == (REPO, "mit")


def test_a_vision_model_has_its_projector_last(start, tmp_path):
    start()

    found = resolve(model(["text", "image"], quant="Q8_0"), tmp_path)

    assert [(file.path, file.role) for file in found.files] == [
        ("model-Q8_0.gguf", "model"),
        ("mmproj-F16.gguf", "projector"),
    ]


def test_a_text_model_takes_no_projector_along(start, tmp_path):
    start()

    assert [file.path for file in resolve(model(quant="Q8_0"), tmp_path).files] == ["model-Q8_0.gguf"]


def test_a_branch_becomes_the_commit_that_it_is_now(start, tmp_path):
    hub = start()
    first = resolve(model(), tmp_path).revision
    second = hub.update(REPO, RepoContent(files={**FILES, "new": b"x"}))

    assert resolve(model(), tmp_path).revision == second != first
    assert resolve(model(), tmp_path, revision=first).revision == first


def test_a_repository_without_a_licence_has_none(start, tmp_path):
    start(licence=None)

    assert resolve(model(), tmp_path).licence is None


def test_a_listing_without_hashes_is_completed_file_by_file(start, tmp_path):
    start()
    listed = resolve(model(), tmp_path)
    start(ListsNoHashes)

    assert resolve(model(), tmp_path).files == listed.files


def test_a_gated_repository_names_the_page_and_the_variable(start, tmp_path, monkeypatch):
    hub = start(token="secret")

    with pytest.raises(Refused, match="org/model-GGUF is gated, and no token was given") as caught:
        resolve(model(), tmp_path)
    assert caught.value.next_step == f"Accept its terms at {hub.endpoint}/{REPO}, then: export HF_TOKEN=<your token>"

    monkeypatch.setenv("HF_TOKEN", "wrong")
    with pytest.raises(Refused, match="the token in HF_TOKEN has no access"):
        resolve(model(), tmp_path)

    monkeypatch.setenv("HF_TOKEN", "secret")
    assert resolve(model(), tmp_path).repo == REPO


def test_only_the_variables_of_the_agent_name_a_token(start, tmp_path, monkeypatch):
    hub = start(token="secret")
    monkeypatch.setenv("HUGGING_FACE_HUB_TOKEN", "secret")
    monkeypatch.setenv("HF_OIDC_RESOURCE", "org")
    with pytest.raises(Refused, match="no token was given"):
        resolve(model(), tmp_path)
    assert {request.headers.get("authorization") for request in hub.log} == {None}

    (tmp_path / "token").write_text("secret\n")
    monkeypatch.setenv("HF_TOKEN_PATH", str(tmp_path / "token"))
    assert resolve(model(), tmp_path).repo == REPO


def test_the_library_is_given_back_as_it_was(start, tmp_path):
    hub = start()
    resolve(model(), tmp_path)
    hub.log.clear()

    assert HfApi(endpoint=hub.endpoint, token=False).model_info(REPO).id == REPO
    assert [request.headers["user-agent"].split("/")[0] for request in hub.log] == ["unknown"]


def test_offline_mode_sends_nothing(start, tmp_path, monkeypatch):
    hub = start()
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)

    with pytest.raises(HubUnavailable, match="HF_HUB_OFFLINE forbids requests"):
        resolve(model(), tmp_path)
    assert hub.log == []


@pytest.mark.parametrize("repo", ["org/na--me", "org/.name", "org/" + "n" * 100])
def test_a_name_that_no_repository_may_have_is_refused(start, tmp_path, repo):
    start()

    with pytest.raises(Refused, match="is no name that a repository of the hub may have"):
        resolve(model(repo=repo), tmp_path)


@pytest.mark.parametrize("path", ["100% Q4_K_M?.gguf", "a#b Q4_K_M;,.gguf", "模型 Q4_K_M.gguf"])
def test_a_name_that_an_address_must_quote_is_found_by_its_head_too(start, tmp_path, path):
    start(ListsNoHashes, files={path: b"weights"})

    [file] = resolve(model(), tmp_path).files
    assert (file.path, file.size) == (path, 7)


def test_a_missing_file_names_repository_and_commit(start, tmp_path):
    hub = start()
    commit = hub.repositories.commit(REPO, "main").id[:12]

    with pytest.raises(Refused, match=rf"org/model-GGUF@{commit}: no GGUF with quant Q5_0; the repository has: .*Q8_0"):
        resolve(model(quant="Q5_0"), tmp_path)


def test_a_hub_in_trouble_is_reported_at_once_and_not_the_catalogs_fault(start, tmp_path):
    hub = start(ListsNothing)

    with pytest.raises(HubUnavailable, match=r"org/model-GGUF/tree/\w+ answers HTTP 503") as caught:
        resolve(model(), tmp_path)
    assert caught.value.next_step == "Try again in a minute: corral lock"
    assert [request.status for request in hub.log] == [200, 503]


@pytest.mark.parametrize("failure", [ConnectionRefusedError("refused"), socket.gaierror("no such name")], ids=repr)
def test_a_hub_without_a_connection_is_unreachable_at_its_address(failure, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", "https://hub.example")
    monkeypatch.setattr(socket, "getaddrinfo", Mock(side_effect=failure))

    with pytest.raises(HubUnreachable, match=r"The hub at https://hub\.example is unreachable"):
        resolve(model(), tmp_path)


def test_a_model_on_disk_is_found_relative_to_the_catalog(tmp_path):
    (tmp_path / "gguf").mkdir()
    for name in ("m-00001-of-00002.gguf", "m-00002-of-00002.gguf", "mmproj-F16.gguf"):
        (tmp_path / "gguf" / name).write_bytes(name.encode())

    found = resolve(model(["text", "image"], repo=None, quant=None, path="gguf/m-00001-of-00002.gguf"), tmp_path)

    assert (found.repo, found.revision) == (None, None)
    assert [(file.path, file.role) for file in found.files] == [
        ("gguf/m-00001-of-00002.gguf", "model"),
        ("gguf/m-00002-of-00002.gguf", "model"),
        ("gguf/mmproj-F16.gguf", "projector"),
    ]


def test_a_model_that_is_not_on_disk_is_refused_with_its_place(tmp_path):
    with pytest.raises(Refused, match=f"source.path gone.gguf: there is no file {tmp_path}/gone.gguf"):
        resolve(model(repo=None, quant=None, path="gone.gguf"), tmp_path)
