"""Verify: every byte is read, and what is reported is what a server would get."""

import os

import pytest

from corral.agent.lock_file import read_lock
from corral.agent.verify import verify
from corral.demo.hub import RepoContent
from tests.support.fetching import REPO, shop, weights


@pytest.fixture
def one(tmp_path):
    with shop(tmp_path, size=100_000) as made:
        made.fetch()
        yield made


def check(one):
    (found,) = verify(read_lock(one.lock), one.store)
    return found


def test_what_was_fetched_is_ok(one):
    found = check(one)
    assert (found.model, found.file, found.state, found.detail) == ("m", "model.gguf", "ok", "")


def test_damage_with_size_and_time_kept_is_found_and_then_mended_by_fetch(one):
    blob = one.published.resolve()
    before = blob.stat()
    with blob.open("r+b") as file:
        file.seek(70_000)
        file.write(bytes([one.content[70_000] ^ 1]))
    os.utime(blob, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert one.fetch().bytes_moved == 0, "the record alone cannot tell"
    found = check(one)
    assert found.state == "damaged"
    assert found.detail.startswith("sha256 ")
    assert one.fetch().bytes_moved == len(one.content)
    assert check(one).state == "ok"


def test_a_truncated_blob_is_damaged(one):
    os.truncate(one.published.resolve(), 50_000)
    assert (check(one).state, check(one).detail) == ("damaged", "50000 bytes, the lock says 100000")


def test_a_blob_that_is_gone_is_missing(one):
    one.published.resolve().unlink()
    assert check(one).state == "missing"
    assert "does not exist" in check(one).detail


def test_a_link_that_leads_to_an_older_set_is_reported(one):
    link = one.store.root / "m"
    old = link.readlink()
    one.hub.update(REPO, RepoContent({"a.gguf": weights(1000, 2)}))
    one.fetch()
    link.unlink()
    link.symlink_to(old)
    assert (check(one).state, check(one).detail) == ("missing", f"{link} does not lead to the set of this lock")


def test_a_link_inside_the_set_that_went_astray_is_reported(one):
    inside = one.published
    inside.unlink()
    inside.symlink_to("nowhere")
    assert check(one).state == "missing"
    assert "does not lead to" in check(one).detail


def test_it_changes_nothing_where_all_is_well(one):
    def everything():
        return sorted((str(path), path.lstat().st_mtime_ns) for path in one.store.root.rglob("*"))

    before = everything()
    check(one)
    assert everything() == before
