"""Reading lock.json: valid locks are read, all others are refused by name."""

import copy
import json
import os

import pytest

from corral.agent.errors import Code
from corral.agent.lock_file import read_lock, text_of
from corral.catalog import yaml_reader
from corral.errors import Refused
from tests.support.locks import write_sealed

FILE = {"path": "sub/x-Q4_K_M.gguf", "role": "model", "size": 3, "sha256": "a" * 64}
MODEL = {
    "intent": {"context": 1},
    "repo": "org/name",
    "revision": "c" * 40,
    "licence": "apache-2.0",
    "files": [FILE],
    "argv": ["llama-server"],
    "predicted": {"rules": []},
    "measured": None,
}


def write(tmp_path, document):
    path = tmp_path / "lock.json"
    if isinstance(document, dict):
        return write_sealed(path, document)
    path.write_text(document)
    return path


def lock_of(**models):
    not_read = {"seal": "", "sources": {}, "images": {}, "cards": {}}
    return {"version": 2, **not_read, "models": models}


def changed(**changes):
    return lock_of(m={**copy.deepcopy(MODEL), **changes})


def changed_file(**changes):
    return changed(files=[{**FILE, **changes}])


def test_a_good_lock_is_read(tmp_path):
    model = read_lock(write(tmp_path, lock_of(m=MODEL))).models["m"]
    assert (model.repo, model.revision) == ("org/name", "c" * 40)
    assert {link: file.name for link, file in model.links.items()} == {"model.gguf": "x-Q4_K_M.gguf"}


def test_an_empty_lock_is_read(tmp_path):
    assert read_lock(write(tmp_path, lock_of())).models == {}


EDITS = {
    "a pinned commit": lambda text: text.replace("c" * 40, "d" + "c" * 39),
    "a sha256": lambda text: text.replace("a" * 64, "b" + "a" * 63),
    "what only Terraform reads": lambda text: text.replace('"context": 1', '"context": 2'),
    "the seal": lambda text: text.replace('"seal": "', '"seal": "0'),
    "no seal": lambda text: "".join(line for line in text.splitlines(keepends=True) if '"seal"' not in line),
    "another layout": lambda text: json.dumps(json.loads(text)),
    "line ends of another system": lambda text: text.replace("\n", "\r\n"),
    "a line more": lambda text: f"{text}\n",
}


@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS)
def test_a_lock_whose_seal_does_not_match_is_refused_with_the_command_that_writes_it(tmp_path, edit):
    path = write(tmp_path, lock_of(m=MODEL))
    path.write_bytes(edit(path.read_text()).encode())
    with pytest.raises(Refused) as caught:
        read_lock(path)
    assert caught.value.message == (
        f"{path} was edited or merged after `corral lock` had written it: its seal does not match."
    )
    assert caught.value.next_step == "corral lock"
    assert (caught.value.code, caught.value.fields) == (Code.LOCK_UNUSABLE, {"path": str(path)})


EXTRACT = {"version": 2, "models": {"m": {key: MODEL[key] for key in ("repo", "revision", "files")}}}


def test_the_extract_that_the_download_job_mounts_is_read_without_a_seal(tmp_path):
    path = tmp_path / "lock.json"
    path.write_text(json.dumps(EXTRACT))
    assert read_lock(path).models["m"].revision == "c" * 40


@pytest.mark.parametrize(
    "document",
    [
        pytest.param(EXTRACT | {"sources": {}}, id="a-key-of-the-whole-lock"),
        pytest.param({"version": 2, "models": {"m": MODEL}}, id="a-key-of-a-whole-model"),
        pytest.param({"version": 2, "models": {**EXTRACT["models"], "n": []}}, id="a-model-that-is-no-object"),
        pytest.param({"version": 2, "models": {}, "other": 1}, id="an-unknown-key"),
        pytest.param({"version": 2}, id="no-models"),
    ],
)
def test_anything_but_such_an_extract_needs_a_seal(tmp_path, document):
    (tmp_path / "lock.json").write_text(json.dumps(document))
    with pytest.raises(Refused, match="its seal does not match"):
        read_lock(tmp_path / "lock.json")


@pytest.mark.parametrize("read", [read_lock, text_of, yaml_reader.read])
def test_what_is_no_regular_file_is_not_read(read, tmp_path):
    (tmp_path / "lock.json").symlink_to(os.devnull)  # which ends; a FIFO without a writer would not

    with pytest.raises(Refused, match="It is no regular file"):
        read(tmp_path / "lock.json")


def test_shards_keep_their_order_and_get_numbered_links(tmp_path):
    shards = [{**FILE, "path": f"x-0000{i}-of-00003.gguf", "sha256": f"{i}" * 64} for i in (1, 2, 3)]
    projector = {**FILE, "path": "mmproj-F16.gguf", "role": "projector"}
    model = read_lock(write(tmp_path, changed(files=[*shards, projector]))).models["m"]
    assert list(model.links) == [
        "model-00001-of-00003.gguf",
        "model-00002-of-00003.gguf",
        "model-00003-of-00003.gguf",
        "mmproj.gguf",
    ]


def test_a_model_on_disk_may_be_relative_to_the_lock(tmp_path):
    lock = changed(repo=None, revision=None, licence=None, files=[{**FILE, "path": "weights/x.gguf"}])
    file = read_lock(write(tmp_path, lock)).models["m"].files[0]
    assert file.path == str(tmp_path / "weights" / "x.gguf")


def test_selecting_keeps_the_locks_order_and_refuses_unknown_ids(tmp_path):
    lock = read_lock(write(tmp_path, lock_of(b=MODEL, a=MODEL)))
    assert [model.id for model in lock.select([])] == ["a", "b"]
    assert [model.id for model in lock.select(["b"])] == ["b"]
    with pytest.raises(Refused, match=r"has no model c; it has a, b\."):
        lock.select(["c", "a"])


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        pytest.param("{", "is not JSON", id="broken"),
        pytest.param("[" * 100_000, "nested too deeply", id="nested"),
        pytest.param("[]", "has no version, and this corral reads version 2", id="list"),
        pytest.param({"version": 1, "models": {}}, "has version 1, and this corral reads version 2", id="older"),
        pytest.param({"version": 2, "models": {}, "extra": 1}, "the lock has extra", id="unknown-top-key"),
        pytest.param({"version": 2}, "models must be an object", id="no-models"),
        pytest.param(changed(extra=1), "models.m has extra", id="unknown-key"),
        pytest.param(changed_file(extra=1), r"files\[0\] has extra", id="unknown-file-key"),
        pytest.param(lock_of(**{"../m": MODEL}), "models.../m: a model's id", id="id-traversal"),
        pytest.param(lock_of(M=MODEL), "a model's id", id="id-upper-case"),
        pytest.param(lock_of(blobs=MODEL), "the store itself has a folder of that name", id="id-of-a-store-folder"),
        pytest.param(changed(repo="../../etc"), "repo is '../../etc'", id="repo-traversal"),
        pytest.param(changed(repo="name"), "repo is 'name'", id="repo-without-org"),
        pytest.param(changed(revision="main"), "revision is 'main'", id="revision-is-a-branch"),
        pytest.param(changed(revision=None), "revision is None", id="revision-missing"),
        pytest.param(changed(files=[]), "names no file with the role model", id="no-files"),
        pytest.param(
            changed(files=[{**FILE, "role": "projector"}]), "no file with the role model", id="projector-only"
        ),
        pytest.param(
            changed(files=[FILE, *[{**FILE, "role": "projector"}] * 2]), "more than one projector", id="two-projectors"
        ),
        pytest.param(changed_file(path="../x.gguf"), "must stay inside the repo", id="path-traversal"),
        pytest.param(changed_file(path="a/../../x.gguf"), "must stay inside the repo", id="path-traversal-inside"),
        pytest.param(changed_file(path="/etc/passwd"), "must stay inside the repo", id="path-absolute"),
        pytest.param(changed_file(path="a//x.gguf"), "must stay inside the repo", id="path-empty-part"),
        pytest.param(changed_file(path="a\u202efugg.gguf"), r"path is 'a\\u202e", id="path-written-backwards"),
        pytest.param(changed_file(path="a\x9b2J.gguf"), r"path is 'a\\x9b", id="path-with-a-terminal-control"),
        pytest.param(changed_file(path="a\ud800.gguf"), r"path is 'a\\ud800", id="path-that-is-no-text"),
        pytest.param(changed_file(path="a\\x.gguf"), "must stay inside the repo", id="path-backslash"),
        pytest.param(changed_file(path="a\nb"), "must be the path of a file", id="path-line-end"),
        pytest.param(changed_file(path=7), "must be the path of a file", id="path-number"),
        pytest.param(changed_file(role="other"), "role is 'other'", id="role"),
        pytest.param(changed_file(size=0), "size is 0", id="size-zero"),
        pytest.param(changed_file(size=True), "size is True", id="size-bool"),
        pytest.param(changed_file(size="3"), "size is '3'", id="size-text"),
        pytest.param(changed_file(sha256="a" * 63), "must be 64 hexadecimal digits", id="sha256-short"),
        pytest.param(changed_file(sha256="A" * 64), "must be 64 hexadecimal digits", id="sha256-upper-case"),
    ],
)
def test_an_invalid_value_is_refused(tmp_path, document, expected):
    with pytest.raises(Refused, match=expected) as caught:
        read_lock(write(tmp_path, document))
    assert str(tmp_path / "lock.json") in caught.value.message
    assert "corral lock" in caught.value.next_step
