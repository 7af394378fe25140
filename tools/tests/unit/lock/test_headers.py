"""The headers beside the lock: found by their content, never half there, never one too many."""

from __future__ import annotations

import gzip
import hashlib
import os

import pytest

from corral.lock import headers
from corral.lock.lock import Lock, LockEntry
from tests.support.locked_catalog import prediction

HEADER = b"GGUF" + bytes(range(256)) * 20
SHA256 = hashlib.sha256(HEADER).hexdigest()


def lock_naming(*names):
    entry = LockEntry.model_construct(predicted=prediction(1, headers=names))
    return Lock.model_construct(models={"m": entry})


@pytest.fixture
def kept(tmp_path):
    headers.write(tmp_path, {SHA256: HEADER})
    return tmp_path / "headers" / f"{SHA256}.gguf.gz"


def test_what_was_written_is_read_by_its_content(kept, tmp_path):
    assert headers.sha256_of(HEADER) == SHA256
    assert headers.read(tmp_path, SHA256) == HEADER
    assert headers.missing(tmp_path, lock_naming(SHA256)) == {}


def test_the_same_header_is_the_same_file_everywhere(kept):
    assert kept.read_bytes() == gzip.compress(HEADER, mtime=0)
    assert kept.read_bytes()[4:8] == b"\0\0\0\0"


@pytest.mark.parametrize(
    "harm",
    [
        lambda file: file.unlink(),
        lambda file: file.write_bytes(b""),
        lambda file: file.write_bytes(file.read_bytes()[:-20]),
        lambda file: file.write_bytes(b"no gzip"),
        lambda file: file.write_bytes(gzip.compress(HEADER[:-1])),
        lambda file: file.write_bytes(gzip.compress(bytes(100 << 20))),
        lambda file: (file.unlink(), file.mkdir()),
        lambda file: (file.unlink(), os.mkfifo(file)),
    ],
    ids=["gone", "empty", "cut", "not gzip", "another header", "a bomb", "a folder", "a pipe"],
)
def test_a_header_that_is_not_what_its_name_says_is_as_good_as_missing(kept, tmp_path, harm):
    harm(kept)

    assert headers.read(tmp_path, SHA256) is None
    assert headers.missing(tmp_path, lock_naming(SHA256)) == {"m": SHA256}


def test_only_headers_that_no_lock_names_are_removed(kept, tmp_path):
    other = b"other"
    headers.write(tmp_path, {headers.sha256_of(other): other})
    note = kept.parent / "note.gguf.gz"
    note.write_text("an operator's own")

    headers.prune(tmp_path, lock_naming(headers.sha256_of(other)))

    assert {file.name for file in kept.parent.iterdir()} == {"note.gguf.gz", f"{headers.sha256_of(other)}.gguf.gz"}


def test_nothing_to_write_makes_no_folder(tmp_path):
    headers.write(tmp_path, {})
    headers.prune(tmp_path, lock_naming())

    assert list(tmp_path.iterdir()) == []


def test_headers_are_beside_the_lock_itself_where_it_is_a_link(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "catalog").mkdir()
    (tmp_path / "catalog" / "lock.json").symlink_to(tmp_path / "real" / "lock.json")

    headers.write(tmp_path / "catalog", {SHA256: HEADER})

    assert (tmp_path / "real" / "headers" / f"{SHA256}.gguf.gz").exists()
    assert headers.read(tmp_path / "catalog", SHA256) == HEADER
