"""Verify: every byte is read, and the report is what a server would get."""

import os
import threading

import pytest

from corral.agent.hub_client import Hub
from corral.agent.lock_file import read_lock
from corral.agent.stopping import Stopped
from corral.agent.verify import repair, verify
from corral.demo.hub import RepoContent
from corral.errors import CannotRun, Failed
from tests.support import faulty_hub as faults
from tests.support.fetching import IMPATIENT, REPO, shop, weights
from tests.support.locks import locked_file, write_lock


@pytest.fixture
def one(tmp_path):
    with shop(tmp_path, size=100_000) as made:
        made.fetch()
        yield made


def damage(one):
    """One bit is another one; size and time are kept."""
    blob = one.published.resolve()
    before = blob.stat()
    with blob.open("r+b") as file:
        file.seek(70_000)
        file.write(bytes([one.content[70_000] ^ 1]))
    os.utime(blob, ns=(before.st_atime_ns, before.st_mtime_ns))
    return blob


def repaired(one, **how):
    lock = read_lock(one.lock)
    how.setdefault("hub", one.client)
    (found,), error = repair(lock, one.store, verify(lock, one.store), **how)
    return found, error


def check(one):
    (found,) = verify(read_lock(one.lock), one.store)
    return found


def test_what_was_fetched_is_ok(one):
    found = check(one)
    assert (found.model, found.file, found.state, found.detail) == ("m", "model.gguf", "ok", "")


def test_a_file_that_was_put_back_is_on_record_again_once_it_is_verified(one):
    blob = one.published.resolve()
    (file,) = read_lock(one.lock).models["m"].files
    os.truncate(blob, 50_000)
    assert check(one).state == "damaged"
    blob.write_bytes(one.content)
    assert not one.store.recorded(blob, file)

    assert check(one).state == "ok"

    assert one.store.recorded(blob, file)


def test_what_is_on_record_is_not_written_anew(one):
    (record,) = one.store.records.iterdir()
    before = record.stat()

    check(one)

    assert (record.stat().st_mtime_ns, record.stat().st_ino) == (before.st_mtime_ns, before.st_ino)


def test_a_store_that_cannot_be_written_can_be_verified(one):
    for record in one.store.records.iterdir():
        record.unlink()
    one.store.records.rmdir()

    assert check(one).state == "ok"


def test_damage_with_size_and_time_kept_is_found_and_then_repaired_by_fetch(one):
    damage(one)
    assert one.fetch().bytes_moved == 0, "the record alone cannot tell"
    found = check(one)
    assert found.state == "damaged"
    assert found.detail.startswith("sha256 ")
    assert one.fetch().bytes_moved == len(one.content)
    assert check(one).state == "ok"


def test_a_truncated_blob_is_damaged(one):
    os.truncate(one.published.resolve(), 50_000)
    assert (check(one).state, check(one).detail) == ("damaged", "50000 bytes, 100000 in the lock")


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


# -- repair ----------------------------------------------------------------------------------------------------


def test_damage_is_repaired_from_the_hub_and_a_server_that_has_the_old_file_open_keeps_it(one):
    blob = damage(one)
    with blob.open("rb") as mapped:
        found, error = repaired(one)
        assert (found.state, found.is_good, error) == ("repaired", True, None)
        assert found.detail.startswith("sha256 ")
        assert one.published.read_bytes() == one.content
        assert mapped.read() != one.content
        (aside,) = one.store.replaced.glob("*/*")
        assert aside.stat().st_ino == os.fstat(mapped.fileno()).st_ino
    assert check(one).state == "ok"
    assert one.leftovers() == []


def test_the_name_is_never_without_a_file_while_it_is_repaired(one):
    damage(one)
    gone = []
    repaired(one, report=lambda _event: None if one.published.exists() else gone.append(1))
    assert gone == []


@pytest.mark.parametrize("gone", ["blob", "link", "set"])
def test_what_is_missing_is_repaired(one, gone):
    if gone == "blob":
        one.published.resolve().unlink()
    elif gone == "link":
        (one.store.root / "m").unlink()
    else:
        one.published.unlink()
    sent = one.hub.data_sent
    found, error = repaired(one)
    assert (found.state, error) == ("repaired", None)
    assert one.published.read_bytes() == one.content
    assert one.hub.data_sent - sent == (len(one.content) if gone == "blob" else 0)


def test_repairing_what_is_good_sends_no_request_and_changes_nothing(one):
    requests = len(one.hub.log)
    found, error = repaired(one)
    assert (found.state, error) == ("ok", None)
    assert len(one.hub.log) == requests


def test_what_the_hub_will_not_give_stays_damaged_with_the_reason(one):
    damage(one)
    before = one.published.read_bytes()
    one.hub.faults = [faults.Status(on=faults.RESOLVE, status=404, times=None)]
    found, error = repaired(one)
    assert found.state == "damaged"
    assert "does not exist" in error.message
    assert one.published.read_bytes() == before, "the old file is all there is"


def test_no_network_is_an_error_too(one):
    damage(one)
    found, error = repaired(one, hub=Hub("http://127.0.0.1:9"), settings=IMPATIENT)
    assert found.state == "damaged"
    assert isinstance(error, CannotRun)


def test_a_model_on_disk_cannot_be_repaired_and_is_not_touched(tmp_path, one):
    mine = tmp_path / "mine.gguf"
    mine.write_bytes(b"my own")
    entry = {"repo": None, "revision": None, "licence": None, "argv": [], "files": [locked_file(str(mine), b"my owN")]}
    lock = read_lock(write_lock(tmp_path / "own", mine=entry))
    (found,), error = repair(lock, one.store, verify(lock, one.store), hub=one.client)
    assert found.state == "damaged"
    assert isinstance(error, Failed)
    assert mine.read_bytes() == b"my own"


def test_repair_ends_when_it_is_stopped(one):
    damage(one)
    lock = read_lock(one.lock)
    checks = verify(lock, one.store)
    stop = threading.Event()
    stop.set()
    with pytest.raises(Stopped):
        repair(lock, one.store, checks, hub=one.client, stop=stop)
