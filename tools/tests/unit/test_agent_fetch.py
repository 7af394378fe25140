"""Fetching: what is there is kept, what is missing is fetched once, and a server never gets a part of a set."""

import json
import os
import random
import signal
import tempfile
import threading
from pathlib import Path

import pytest

from corral.agent import store as store_module
from corral.agent.fetch import fetch
from corral.agent.hub_client import Hub
from corral.agent.lock_file import read_lock
from corral.agent.progress import Downloading, FoundDamaged, Linked, Planned, Waiting
from corral.agent.store import Store
from corral.demo.hub import RepoContent
from corral.errors import CannotRun, Failed, Refused
from tests.support import faulty_hub as faults
from tests.support.fetching import MIB, REPO, shop, weights
from tests.support.locks import hub_model, locked_file, write_lock


@pytest.fixture
def one(tmp_path):
    with shop(tmp_path) as made:
        yield made


# -- what is there ---------------------------------------------------------------------------------------------


def test_a_second_run_moves_nothing_and_sends_no_request(one):
    one.fetch()
    requests = len(one.hub.log)
    done = one.fetch()
    assert (done.bytes_moved, done.reused) == (0, 1.0)
    assert len(one.hub.log) == requests


def test_a_second_run_does_not_read_what_it_has_a_record_of(one, monkeypatch):
    one.fetch()
    monkeypatch.setattr("corral.agent.fetch.hash_file", lambda *_args, **_kw: pytest.fail("it was read"))
    one.fetch()


def test_a_blob_without_a_record_is_read_and_not_fetched(one):
    one.fetch()
    for record in (one.store.root / ".corral" / "verified").iterdir():
        record.unlink()
    assert one.fetch().bytes_moved == 0


def test_a_damaged_blob_is_replaced(one):
    one.fetch()
    blob = one.published.resolve()
    blob.write_bytes(b"!" + one.content[1:])
    assert one.fetch().bytes_moved == len(one.content)
    assert any(isinstance(event, FoundDamaged) for event in one.events)
    assert one.published.read_bytes() == one.content


def test_two_models_with_the_same_file_fetch_it_once(one, tmp_path):
    entry = hub_model(one.hub, REPO, "a.gguf")
    lock = write_lock(tmp_path, first=entry, second=entry)
    done = fetch(read_lock(lock), one.store, hub=Hub(one.hub.endpoint))
    assert one.hub.data_sent == done.bytes_total == len(one.content)
    assert (one.store.root / "first" / "model.gguf").samefile(one.store.root / "second" / "model.gguf")


def test_only_the_models_that_are_named_are_fetched(one, tmp_path):
    entry = hub_model(one.hub, REPO, "a.gguf")
    lock = read_lock(write_lock(tmp_path, first=entry, second=entry))
    fetch(lock, one.store, models=["second"], hub=Hub(one.hub.endpoint))
    assert one.store.linked_set("first") is None
    assert one.store.linked_set("second") is not None
    with pytest.raises(Refused, match="has no model third"):
        fetch(lock, one.store, models=["third"], hub=Hub(one.hub.endpoint))


def test_a_split_model_with_a_projector_gets_the_links_that_llama_cpp_expects(one, tmp_path):
    parts = {f"q/x-0000{n}-of-00002.gguf": weights(1000, n) for n in (1, 2)}
    one.hub.update("org/split", RepoContent({**parts, "mmproj-F16.gguf": weights(500, 3)}))
    lock = write_lock(tmp_path, big=hub_model(one.hub, "org/split", *parts, projector="mmproj-F16.gguf"))
    fetch(read_lock(lock), one.store, hub=Hub(one.hub.endpoint))
    links = {path.name: path.read_bytes() for path in (one.store.root / "big").iterdir()}
    assert links == {
        "model-00001-of-00002.gguf": weights(1000, 1),
        "model-00002-of-00002.gguf": weights(1000, 2),
        "mmproj.gguf": weights(500, 3),
    }


# -- models on disk --------------------------------------------------------------------------------------------


def on_disk(tmp_path, content=b"weights on disk"):
    path = tmp_path / "mine" / "x.gguf"
    path.parent.mkdir()
    path.write_bytes(content)
    entry = {"repo": None, "revision": None, "licence": None, "argv": [], "files": [locked_file(str(path), content)]}
    return path, read_lock(write_lock(tmp_path, local=entry))


def test_a_model_on_disk_is_linked_where_it_is(tmp_path):
    path, lock = on_disk(tmp_path)
    store = Store(tmp_path / "store")
    done = fetch(lock, store)
    assert done.bytes_moved == 0
    link = store.root / "local" / "model.gguf"
    assert link.readlink() == path
    assert list((store.root / "blobs").iterdir()) == []


def test_the_name_of_a_file_on_disk_is_reported_without_what_a_terminal_obeys(one, tmp_path):
    path = tmp_path / "a\x9b2J\u202efugg.gguf"
    path.write_bytes(b"weights")
    entry = {"repo": None, "revision": None, "licence": None, "files": [locked_file(str(path), b"weights")]}
    path.write_bytes(b"changed")
    names = set()
    with pytest.raises(Failed):
        fetch(
            read_lock(write_lock(tmp_path, m=entry)),
            one.store,
            report=lambda event: names.add(getattr(event, "name", "")),
        )
    assert r"m/a\x9b2J\u202efugg.gguf" in names


def test_a_model_on_disk_that_changed_fails_and_is_not_linked(tmp_path):
    path, lock = on_disk(tmp_path)
    path.write_bytes(b"weights or disk")
    with pytest.raises(Failed, match="is not the file that was locked"):
        fetch(lock, Store(tmp_path / "store"))
    assert Store(tmp_path / "store").linked_set("local") is None


def test_a_model_on_disk_that_is_gone_is_refused(tmp_path):
    path, lock = on_disk(tmp_path)
    path.unlink()
    with pytest.raises(Refused, match="is not there; the lock has it as a model on disk"):
        fetch(lock, Store(tmp_path / "store"))


# -- before the first byte -------------------------------------------------------------------------------------


def test_too_small_a_disk_is_refused_before_the_first_byte(one, monkeypatch):
    monkeypatch.setattr(store_module.Store, "free_bytes", lambda _store: len(one.content) - 1)
    with pytest.raises(CannotRun, match=r"has 4\.2 MB free; 4\.2 MB are to be fetched"):
        one.fetch()
    assert one.hub.log == []
    monkeypatch.setattr(store_module.Store, "free_bytes", lambda _store: int(len(one.content) * 1.02))
    one.fetch()
    assert one.hub.data_sent == len(one.content)


def test_what_is_here_already_needs_no_room(one, monkeypatch):
    one.fetch()
    monkeypatch.setattr(store_module.Store, "free_bytes", lambda _store: 0)
    one.fetch()


def test_a_folder_in_the_links_place_is_refused_before_the_first_byte(one):
    (one.store.root / "m").mkdir(parents=True)
    with pytest.raises(Refused, match="is not a link that corral made"):
        one.fetch()
    assert one.hub.log == []


def test_a_store_that_cannot_be_made_is_a_sentence(one, tmp_path):
    (tmp_path / "store").write_text("a file")
    with pytest.raises(CannotRun, match=r"The store .*/store cannot be written"):
        one.fetch()


# -- updates ---------------------------------------------------------------------------------------------------


def test_an_update_flips_the_link_and_touches_no_old_byte(one):
    one.fetch()
    old_blob, before = one.published.resolve(), one.published.stat()
    with one.published.open("rb") as running:
        one.hub.update(REPO, RepoContent({"a.gguf": weights(MIB, 2)}))
        one.fetch()
        assert one.published.read_bytes() == weights(MIB, 2)
        assert running.read() == one.content
    assert old_blob.stat().st_mtime_ns == before.st_mtime_ns


def test_an_update_that_fails_leaves_the_old_set(one):
    one.fetch()
    link = one.store.linked_set("m")
    one.hub.update(REPO, RepoContent({"a.gguf": weights(MIB, 2)}))
    one.hub.faults = [faults.Cut(after=100_000), faults.Status(status=404, times=None)]
    with pytest.raises(Refused):
        one.fetch()
    assert one.store.linked_set("m") == link
    assert one.published.read_bytes() == one.content


def test_the_link_does_not_flip_before_the_last_file_is_there(one, tmp_path):
    def content(seed):
        return RepoContent({"a.gguf": weights(1000, seed), "mmproj.gguf": weights(1000, seed + 1)})

    one.hub.update("org/seeing", content(1))
    store = one.store

    def get(**how):
        entry = hub_model(one.hub, "org/seeing", "a.gguf", projector="mmproj.gguf")
        fetch(read_lock(write_lock(tmp_path, see=entry)), store, hub=Hub(one.hub.endpoint), **how)

    get()
    before = store.linked_set("see")
    one.hub.update("org/seeing", content(5))
    one.hub.faults = [faults.Status(on="mmproj.gguf", status=404, times=None)]
    with pytest.raises(Refused):
        get()
    assert store.linked_set("see") == before
    assert (store.root / "see" / "mmproj.gguf").read_bytes() == weights(1000, 2)


def test_one_models_error_does_not_stop_the_next(one, tmp_path):
    bad = hub_model(one.hub, REPO, "a.gguf")
    bad["files"][0]["path"] = "gone.gguf"
    bad["files"][0]["sha256"] = "a" * 64
    lock = read_lock(write_lock(tmp_path, a_bad=bad, b_good=hub_model(one.hub, REPO, "a.gguf"), c_bad=bad))
    with pytest.raises(Refused, match=r"a-bad: .*gone\.gguf does not exist(.|\n)*c-bad: "):
        fetch(lock, one.store, hub=Hub(one.hub.endpoint))
    assert (one.store.root / "b-good" / "model.gguf").read_bytes() == one.content


# -- kills, and others -----------------------------------------------------------------------------------------


def disk_use(folder):
    return sum(path.lstat().st_blocks for path in folder.rglob("*")) * 512


@pytest.fixture
def steady_folder(tmp_path):
    """In memory where that can be: how long a busy disk takes to flush does not change what a kill loses."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else tmp_path) as folder:
        yield Path(folder)


def test_three_kills_and_a_sigterm_lose_little_and_leave_nothing(steady_folder):
    with shop(steady_folder, size=32 * MIB) as one:
        for kill in (signal.SIGKILL, signal.SIGKILL, signal.SIGKILL, signal.SIGTERM):
            code = one.kill_after(int(random.uniform(2, 7) * MIB), by=kill)
            assert code == (3 if kill == signal.SIGTERM else -kill)  # it would be 0 had it gone on to the end
            assert not one.published.exists()
            assert disk_use(one.store.root) <= 1.01 * len(one.content)
        planned = []
        done = one.fetch(on_event=lambda event: planned.append(event) if isinstance(event, Planned) else None)
        assert one.published.read_bytes() == one.content
        assert planned[0].bytes_missing == done.bytes_moved
        assert one.hub.data_sent <= 1.1 * len(one.content)
        assert disk_use(one.store.root) <= 1.01 * len(one.content)
        assert one.leftovers() == []


def test_a_process_that_died_between_publishing_and_cleaning_up_is_cleaned_up_after(one):
    one.fetch()
    sha256 = one.published.resolve().parent.name
    (one.store.partials / f"{sha256}.dead").mkdir()
    one.fetch()
    assert one.leftovers() == []


def test_two_concurrent_processes_fetch_every_byte_once(one):
    one.hub.faults = [faults.Slow(rate=3e6)]
    processes = [one.start() for _ in range(2)]
    output = [process.communicate(timeout=60) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], output
    assert one.published.read_bytes() == one.content
    assert one.hub.data_sent <= 1.05 * len(one.content)
    assert one.leftovers() == []


def test_a_process_that_waits_names_the_holder(one):
    held = faults.Quota(size=0)
    one.hub.faults = [held]
    first = threading.Thread(target=one.fetch)
    first.start()
    assert held.used_up.wait(60)
    events = []

    def report(event):
        events.append(event)
        if isinstance(event, Waiting):
            held.until.set()

    fetch(read_lock(one.lock), one.store, hub=Hub(one.hub.endpoint), report=report)
    first.join()
    waiting = [event for event in events if isinstance(event, Waiting)]
    assert len(waiting) == 1
    assert "process " in waiting[0].holder
    assert not any(isinstance(event, Downloading) for event in events)


def test_an_owner_that_lost_its_lease_starts_nothing_over_and_succeeds(one):
    """The work is handed to another owner while it works; it waits for that one, then finds the file published."""
    taken = []

    def take_over(event):
        if isinstance(event, Downloading) and event.moved and not taken:
            lease = next(path for path in one.store.leases.iterdir() if path.name != "clock")
            lease.write_text(json.dumps(["thief", "elsewhere", "elsewhere", 1, "1"]))
            taken.append(lease)
            held.until.set()
        if isinstance(event, Waiting):
            taken[0].unlink()

    held = faults.Quota(size=MIB)
    one.hub.faults = [held]
    one.fetch(on_event=take_over)
    assert taken
    assert any(isinstance(event, Waiting) for event in one.events)
    assert one.published.read_bytes() == one.content
    assert one.leftovers() == []
    assert one.hub.data_sent < 1.5 * len(one.content)


def test_every_event_is_reported_from_the_calling_thread(one):
    threads = set()
    one.fetch(on_event=lambda _event: threads.add(threading.current_thread()))
    assert threads == {threading.current_thread()}
    assert [event.changed for event in one.events if isinstance(event, Linked)] == [True]
