"""The store: blobs, sets, and the one link that flips."""

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from corral.agent.lock_file import LockedFile, LockedModel
from corral.agent.store import Store
from corral.errors import Refused
from tests.support.locks import locked_file


@pytest.fixture
def store(tmp_path):
    store = Store(tmp_path / "store")
    store.prepare()
    return store


def model_of(store, letter, *, name="a.gguf"):
    """A model with a projector whose bytes are all *letter*, its blobs in place."""
    files = []
    for role in ("model", "projector"):
        content = f"{role} {letter * 50}".encode()
        file = LockedFile(**{**locked_file(name, content), "role": role})
        partial = store.partials / letter
        partial.write_bytes(content)
        store.publish(partial, file)
        files.append(file)
    return LockedModel("m", "org/name", "c" * 40, tuple(files))


def test_a_set_is_relative_links_to_verified_blobs(store):
    model = model_of(store, "a")
    assert store.link(model)
    link = store.root / "m"
    assert str(link.readlink()) == f"sets/{store.set_name(model)}"
    assert str((link / "model.gguf").readlink()) == f"../../blobs/{model.files[0].sha256}/a.gguf"
    assert (link / "mmproj.gguf").read_text().startswith("projector a")


def test_linking_again_changes_nothing(store):
    model = model_of(store, "a")
    store.link(model)
    before = os.lstat(store.root / "m")
    assert not store.link(model)
    assert os.lstat(store.root / "m").st_ino == before.st_ino


def test_a_set_with_a_missing_file_is_never_linked(store):
    model = model_of(store, "a")
    store.location(model, model.files[1]).unlink()
    with pytest.raises(FileNotFoundError):
        store.link(model)
    assert store.linked_set("m") is None


def test_a_link_inside_a_set_that_went_astray_is_put_right(store):
    model = model_of(store, "a")
    store.link(model)
    astray = store.root / "m" / "model.gguf"
    astray.unlink()
    astray.symlink_to("nowhere")
    assert not store.link(model)
    assert astray.read_text().startswith("model a")


def test_a_folder_in_the_links_place_is_left_alone(store):
    model = model_of(store, "a")
    (store.root / "m").mkdir()
    with pytest.raises(Refused, match="is not a link that corral made"):
        store.link(model)


READER = """
import json, os, sys
link, pairs, problems, rounds = sys.argv[1], set(), [], 0
print("reading", flush=True)
os.set_blocking(0, False)
while sys.stdin.buffer.raw.read(1) is None and not problems:
    rounds += 1
    try:
        folder = os.open(link, os.O_RDONLY | os.O_DIRECTORY)
        letters = ""
        for name in ("model.gguf", "mmproj.gguf"):
            with open(os.open(name, os.O_RDONLY, dir_fd=folder)) as file:
                letters += file.read()[-1]
            with open(f"{link}/{name}") as file:
                file.read()
        os.close(folder)
        pairs.add(letters)
    except OSError as error:
        problems.append(str(error))
print(json.dumps([sorted(pairs), problems, rounds]))
"""


@pytest.fixture
def quick_store(tmp_path):
    """In memory where there is such a place: ten thousand flips are thirty thousand flushes."""
    memory = Path("/dev/shm")
    with TemporaryDirectory(dir=memory if memory.is_dir() else tmp_path) as folder:
        store = Store(Path(folder) / "store")
        store.prepare()
        yield store


def test_ten_thousand_flips_show_no_reader_a_gap_or_a_model_with_the_projector_of_another(quick_store):
    store = quick_store
    first, second = model_of(store, "a"), model_of(store, "b")
    store.link(first)
    command = [sys.executable, "-S", "-c", READER, str(store.root / "m")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as reader:
        assert reader.stdout.readline() == "reading\n"
        for _ in range(5000):
            assert store.link(second)
            assert store.link(first)
        pairs, problems, rounds = json.loads(reader.communicate()[0])
    assert problems == []
    assert pairs == ["aa", "bb"]
    assert rounds > 1000


def test_two_concurrent_flippers_both_succeed(store):
    first, second = model_of(store, "a"), model_of(store, "b")
    errors = []

    def flip(model):
        try:
            for _ in range(100):
                store.link(model)
        except Exception as error:  # noqa: BLE001
            errors.append(error)

    threads = [threading.Thread(target=flip, args=(model,)) for model in (first, second)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert store.linked_set("m") in (store.set_name(first), store.set_name(second))
    assert [path.name for path in (store.root / ".corral").iterdir() if path.name.startswith("flip")] == []


def test_the_same_bytes_under_another_name_are_kept_once(store):
    first = model_of(store, "a")
    second = model_of(store, "b")
    file = first.files[0]
    renamed = LockedFile("other/name.gguf", "model", file.size, file.sha256)
    model = LockedModel("n", "else/where", "d" * 40, (renamed,))
    store.reuse_under_other_name(renamed)
    store.link(model)
    assert (store.root / "n" / "model.gguf").samefile(store.location(first, file))
    assert not (store.root / "n" / "model.gguf").samefile(store.location(second, second.files[0]))


def test_a_record_holds_until_the_file_is_touched(store):
    model = model_of(store, "a")
    file = model.files[0]
    path = store.location(model, file)
    assert store.recorded(path, file)
    path.write_bytes(path.read_bytes())
    assert not store.recorded(path, file)
    store.record(path, file)
    assert store.recorded(path, file)
    store.forget(path, file)
    assert not store.recorded(path, file)


def test_the_fullest_partial_is_adopted_and_the_others_go(store):
    sha256 = "a" * 64
    for owner, lines in (("one", 3), ("two", 9), ("three", 1)):
        folder = store.partials / f"{sha256}.{owner}"
        folder.mkdir()
        (folder / f"{sha256}.journal").write_text("x" * lines)
    mine = store.adopt_partial(sha256, "me")
    assert [folder.name for folder in store.partials.iterdir()] == [f"{sha256}.me"]
    assert (mine / f"{sha256}.journal").read_text() == "x" * 9


def test_a_partial_that_another_process_removes_meanwhile_counts_as_empty(store, monkeypatch):
    sha256 = "1" * 64
    gone, kept = (store.partials / f"{sha256}.{name}" for name in ("gone", "kept"))
    gone.mkdir()
    kept.mkdir()
    (kept / "a.journal").write_bytes(b"x")
    scandir = os.scandir

    def remove_and_list(path):
        if Path(path) == gone:
            gone.rmdir()
        return scandir(path)

    monkeypatch.setattr(os, "scandir", remove_and_list)
    assert store.partials_of(sha256) == [kept, gone]
    assert not gone.exists()


def test_a_good_blob_that_another_process_published_first_stays(store):
    file = model_of(store, "a").files[0]
    place = store.root / "blobs" / file.sha256 / file.name
    before = place.stat().st_ino
    late = store.partials / "late"
    late.write_bytes(place.read_bytes())
    store.publish(late, file)
    assert place.stat().st_ino == before
    assert not late.exists()


def test_a_damaged_blob_is_replaced_in_one_step_and_kept_for_servers_that_have_it_open(store):
    file = model_of(store, "a").files[0]
    place = store.root / "blobs" / file.sha256 / file.name
    good = place.read_bytes()
    place.write_bytes(b"!" + good[1:])
    store.forget(place, file)
    partial = store.partials / "good"
    partial.write_bytes(good)
    with place.open("rb") as mapped:
        store.publish(partial, file)
        assert place.read_bytes() == good
        assert mapped.read() == b"!" + good[1:]
        (aside,) = store.replaced.glob("*/*")
        assert os.fstat(mapped.fileno()).st_ino == aside.stat().st_ino


def test_a_damaged_blob_with_two_names_is_repaired_under_both(store):
    file = model_of(store, "a").files[0]
    place = store.root / "blobs" / file.sha256 / file.name
    good = place.read_bytes()
    other = LockedFile("else/b.gguf", "model", file.size, file.sha256)
    store.reuse_under_other_name(other)
    place.write_bytes(b"!" + good[1:])
    partial = store.partials / "good"
    partial.write_bytes(good)
    store.publish(partial, other)
    assert place.read_bytes() == (place.parent / "b.gguf").read_bytes() == good
