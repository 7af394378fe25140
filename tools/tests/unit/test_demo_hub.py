"""The demo's hub is a hub: huggingface-hub cannot tell the difference."""

import hashlib
import tracemalloc
import urllib.request
from types import SimpleNamespace

import pytest
from huggingface_hub import HfApi, get_hf_file_metadata, hf_hub_download, hf_hub_url
from huggingface_hub import errors as hub_errors

from corral.demo.hub import Hub, RepoContent, Request, Wire
from corral.demo.smollm2 import SMOLLM2
from corral.demo.tour import demo_repositories

REPO = "org/name"
WEIGHTS = b"weights" * 10_000
FILES = {"README.md": b"hello", "a.gguf": WEIGHTS, "sub/deep/b.gguf": b"b" * 1000}


@pytest.fixture
def hub(tmp_path):
    path = tmp_path / "a.gguf"
    path.write_bytes(WEIGHTS)
    with Hub({REPO: RepoContent({**FILES, "a.gguf": path}, licence="mit")}) as hub:
        yield hub


@pytest.fixture
def api(hub):
    return HfApi(endpoint=hub.endpoint)


def test_the_repository_has_its_commit_and_licence(api):
    info = api.model_info(REPO)
    assert len(info.sha) == 40
    assert info.card_data["license"] == "mit"
    assert "license:mit" in info.tags


def test_the_tree_has_all_files_with_sizes_and_hashes(api):
    tree = api.list_repo_tree(REPO, recursive=True)
    assert {entry.path: (entry.size, entry.lfs and entry.lfs.sha256) for entry in tree} == {
        "README.md": (5, None),
        "a.gguf": (len(WEIGHTS), hashlib.sha256(WEIGHTS).hexdigest()),
        "sub/deep/b.gguf": (1000, hashlib.sha256(b"b" * 1000).hexdigest()),
    }


def test_metadata_of_a_large_file_comes_from_the_redirect(hub, api):
    found = get_hf_file_metadata(hf_hub_url(REPO, "a.gguf", endpoint=hub.endpoint))
    assert found.commit_hash == api.model_info(REPO).sha
    assert (found.etag, found.size) == (hashlib.sha256(WEIGHTS).hexdigest(), len(WEIGHTS))
    assert found.location.startswith("http://localhost:")


@pytest.mark.parametrize("path", FILES)
def test_files_are_downloaded_through_the_redirect(hub, tmp_path, path):
    got = hf_hub_download(REPO, path, endpoint=hub.endpoint, cache_dir=tmp_path / "cache", token="hf_x")
    with open(got, "rb") as file:
        assert file.read() == FILES[path]
    data = [entry for entry in hub.log if entry.host == "localhost"]
    assert sum(entry.sent for entry in data) == (len(FILES[path]) if path.endswith(".gguf") else 0)
    assert all(entry.headers.get("authorization") is None for entry in data)


def test_an_update_is_a_new_commit_and_the_old_one_stays(hub, api):
    old = api.model_info(REPO).sha
    new = hub.update(REPO, RepoContent({"a.gguf": b"new"}))
    assert api.model_info(REPO).sha == new != old
    assert api.model_info(REPO, revision=old).sha == old
    assert len(list(api.list_repo_tree(REPO, revision=old, recursive=True))) == 3


def test_commits_depend_on_content_alone(hub, api):
    with Hub({REPO: RepoContent(FILES, licence="mit")}) as other:
        assert HfApi(endpoint=other.endpoint).model_info(REPO).sha == api.model_info(REPO).sha


def test_what_is_missing_has_an_error_of_its_kind(api, hub):
    with pytest.raises(hub_errors.RepositoryNotFoundError):
        api.model_info("org/none")
    with pytest.raises(hub_errors.RevisionNotFoundError):
        api.model_info(REPO, revision="none")
    with pytest.raises(hub_errors.EntryNotFoundError):
        get_hf_file_metadata(hf_hub_url(REPO, "none.gguf", endpoint=hub.endpoint))


def test_a_gated_repository_opens_with_its_token_only():
    with Hub({REPO: RepoContent(FILES, token="hf_right")}) as hub:
        for token, status in ((False, 401), ("hf_wrong", 403)):
            with pytest.raises(hub_errors.GatedRepoError) as caught:
                HfApi(endpoint=hub.endpoint, token=token).model_info(REPO)
            assert caught.value.response.status_code == status
        assert HfApi(endpoint=hub.endpoint, token="hf_right").model_info(REPO).id == REPO


@pytest.mark.parametrize(
    ("asked", "status", "expected"),
    [
        ("bytes=10-19", 206, WEIGHTS[10:20]),
        ("bytes=69990-", 206, WEIGHTS[69990:]),
        ("bytes=-5", 206, WEIGHTS[-5:]),
        ("bytes=69990-99999999", 206, WEIGHTS[69990:]),
        ("items=1-2", 200, WEIGHTS),
    ],
)
def test_ranges_of_large_files_are_served(hub, asked, status, expected):
    request = urllib.request.Request(f"{hub.endpoint}/{REPO}/resolve/main/a.gguf", headers={"Range": asked})
    with urllib.request.urlopen(request) as answer:
        assert (answer.status, answer.read()) == (status, expected)


def test_a_range_behind_the_end_is_416(hub):
    request = urllib.request.Request(f"{hub.endpoint}/{REPO}/resolve/main/a.gguf", headers={"Range": "bytes=70000-"})
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(request)
    with caught.value as answer:
        assert (answer.status, answer.headers["Content-Range"]) == (416, "bytes */70000")


def test_bytes_are_counted_before_their_client_can_have_them():
    entry, counted = Request("GET", "/cdn/x", {}, "localhost", {}), []
    connection = SimpleNamespace(write=lambda _: counted.append(entry.sent))

    Wire.send_piece(SimpleNamespace(wfile=connection, entry=entry), b"12345")

    assert counted == [5]


def test_bytes_that_the_connection_does_not_take_are_not_counted():
    def refuse(_piece):
        raise BrokenPipeError

    entry = Request("GET", "/cdn/x", {}, "localhost", {})

    with pytest.raises(BrokenPipeError):
        Wire.send_piece(SimpleNamespace(wfile=SimpleNamespace(write=refuse), entry=entry), b"12345")
    assert entry.sent == 0


def test_weights_with_a_known_hash_are_never_read_whole(tmp_path):
    weights = tmp_path / SMOLLM2.name
    with weights.open("wb") as file:
        file.truncate(SMOLLM2.size)
    parts = demo_repositories(tmp_path / "tiny", weights)

    with Hub(parts) as hub:
        repo = "corral/SmolLM2-135M-Instruct-GGUF"
        (entry,) = HfApi(endpoint=hub.endpoint).list_repo_tree(repo)
        assert (entry.size, entry.lfs.sha256) == (SMOLLM2.size, SMOLLM2.sha256)  # by its pin: here it is all zeros

        tracemalloc.start()
        with urllib.request.urlopen(hf_hub_url(repo, weights.name, endpoint=hub.endpoint)) as answer:
            received = sum(map(len, iter(lambda: answer.read(1 << 20), b"")))
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()

    assert received == SMOLLM2.size
    assert peak < 8 << 20
