"""Prune: what nothing needs is removed, and nothing else."""

import argparse
import errno
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from corral.agent.fetch import fetch
from corral.agent.lease import Lease
from corral.agent.lock_file import Lock, read_lock
from corral.agent.progress import human, seconds_of
from corral.agent.prune import prune
from corral.agent.store import Store
from corral.agent.survey import survey
from corral.demo.hub import RepoContent
from corral.errors import Refused
from tests.support.fetching import REPO, shop, weights
from tests.support.locks import hub_model, locked_file, write_lock

DAY = 24 * 3600.0


@pytest.fixture
def one(tmp_path):
    with shop(tmp_path, size=100_000) as made:
        made.fetch()
        yield made


def update(one, seed=2, size=50_000):
    """The hub has another version from now on."""
    one.hub.update(REPO, RepoContent({"a.gguf": weights(size, seed)}))


def pruned(one, *, grace=0.0, delete=True, lock=None):
    return prune(lock or read_lock(one.lock), one.store, grace=grace, delete=delete)


def paths_of(removals):
    return [removal.path.partition("/")[0] for removal in removals]


def paths(found):
    return paths_of(found.removals)


def everything(root):
    """All names, times and links in the store; the file server's clock, and the folder that it is in, aside."""
    return sorted(
        (str(path), path.lstat().st_mtime_ns, path.is_symlink() and str(path.readlink()))
        for path in root.rglob("*")
        if path.name not in ("clock", "leases")
    )


def age(one, seconds=2 * DAY):
    """Everything in the store happened so long ago."""
    then = time.time() - seconds
    for path in (one.store.root, *one.store.root.rglob("*")):
        os.utime(path, (then, then), follow_symlinks=False)


def test_a_store_without_waste_loses_nothing(one):
    before = everything(one.store.root)
    found = pruned(one)
    assert (found.removals, found.waiting, found.summary()) == ((), (), "Nothing to remove.")
    assert everything(one.store.root) == before


def test_the_old_version_is_removed_after_an_update_and_the_new_one_stays(one):
    old = one.published.resolve()
    update(one)
    one.fetch()
    found = pruned(one)
    assert paths(found) == ["sets", "blobs"]
    assert found.size == 100_000
    assert not old.parent.exists()
    assert one.published.read_bytes() == weights(50_000, 2)
    assert one.fetch().bytes_moved == 0
    assert pruned(one).removals == ()
    assert len(list(one.store.records.iterdir())) == 1


def test_a_dry_run_lists_the_same_and_changes_nothing(one):
    update(one)
    one.fetch()
    before = everything(one.store.root)
    listed = pruned(one, delete=False)
    assert paths(listed) == ["sets", "blobs"]
    assert everything(one.store.root) == before
    assert listed.removals[0].path == pruned(one).removals[0].path


def test_what_was_flipped_away_from_within_the_grace_period_stays_however_old_it_is(one):
    age(one)
    update(one)
    one.fetch()
    found = pruned(one, grace=DAY)
    assert found.removals == ()
    assert sum(removal.size for removal in found.waiting) == 100_000
    age(one)
    assert paths(pruned(one, grace=DAY)) == ["sets", "blobs"]


def test_an_update_that_was_fetched_and_not_linked_is_safe(one):
    link = one.store.root / "m"
    old = link.readlink()
    update(one)
    one.fetch()
    link.unlink()
    link.symlink_to(old)
    age(one)
    assert pruned(one).removals == ()
    assert one.fetch().bytes_moved == 0


def another_model(one, name="n", seed=3):
    """The entries of ``m``, as it is locked, and of *name*, whose own file is in the store too."""
    one.hub.update("org/other", RepoContent({"b.gguf": weights(70_000, seed)}))
    entries = {"m": hub_model(one.hub, REPO, "a.gguf"), name: hub_model(one.hub, "org/other", "b.gguf")}
    fetch(read_lock(write_lock(one.folder / "both", **entries)), one.store, hub=one.client)
    return entries


def test_a_model_that_no_lock_names_is_listed_with_its_size_and_removed_with_its_files(one):
    another_model(one)
    before = everything(one.store.root)
    listed = pruned(one, delete=False)
    assert everything(one.store.root) == before
    assert [(removal.path.partition("/")[0], removal.why) for removal in listed.removals] == [
        ("n", "model of 70.0 kB that no lock names"),
        ("sets", "set of that model"),
        ("blobs", "b.gguf, to which no set in use leads"),
    ]
    found = pruned(one)
    assert (paths(found), found.size, found.failed) == (["n", "sets", "blobs"], 70_000, ())
    assert not os.path.lexists(one.store.root / "n")
    assert [len(list((one.store.root / kind).iterdir())) for kind in ("sets", "blobs")] == [1, 1]
    assert one.published.read_bytes() == one.content
    assert pruned(one).removals == ()


def test_a_model_that_left_the_lock_waits_for_the_grace_period_since_its_last_fetch(one):
    both = another_model(one)
    age(one)
    assert paths(pruned(one, grace=DAY, delete=False)) == ["n", "sets", "blobs"]
    fetch(read_lock(write_lock(one.folder / "both", **both)), one.store, hub=one.client)
    found = pruned(one, grace=DAY)
    assert (found.removals, sorted(paths_of(found.waiting))) == ((), ["blobs", "n", "sets"])


def test_a_model_that_another_lock_names_stays(one):
    both = another_model(one)
    other = read_lock(write_lock(one.folder / "other", n=both["n"]))
    assert prune(read_lock(one.lock), one.store, others=[other], grace=0, delete=True).removals == ()
    assert (one.store.root / "n" / "model.gguf").stat().st_size == 70_000


def test_a_model_that_is_served_stays_though_no_lock_names_it(one):
    another_model(one)
    assert prune(read_lock(one.lock), one.store, served=["n"], grace=0, delete=True).removals == ()


def test_a_model_that_was_renamed_loses_its_old_name_and_no_file(one):
    entry = hub_model(one.hub, REPO, "a.gguf")
    renamed = read_lock(write_lock(one.folder / "renamed", new=entry))
    fetch(renamed, one.store, hub=one.client)
    assert paths(pruned(one, lock=renamed)) == ["m", "sets"]
    assert (one.store.root / "new" / "model.gguf").read_bytes() == one.content
    assert fetch(renamed, one.store, hub=one.client).bytes_moved == 0


def test_the_lock_of_another_store_removes_no_model(one):
    other = read_lock(write_lock(one.folder / "other", n=hub_model(one.hub, REPO, "a.gguf")))
    age(one)
    assert paths(pruned(one, lock=other, delete=False)) == ["m", "sets"]
    before = everything(one.store.root)
    with pytest.raises(Refused, match=r"\(m\) none is in .*other/lock.json: it may be another catalog's store"):
        pruned(one, lock=other)
    assert everything(one.store.root) == before


HOLD = """
import mmap, os, sys
file = open(sys.argv[1], "rb")
if sys.argv[2] == "mapped":
    held = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
    os.closerange(3, 100)  # also the descriptor that mmap has made for itself
print("held", flush=True)
sys.stdin.read()
"""


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="needs Linux")
@pytest.mark.parametrize("how", ["opened", "mapped"])
@pytest.mark.parametrize("version", ["left the lock", "old version"])
def test_what_a_process_has_open_stays_until_it_ends_however_idle_it_is(one, how, version):
    if version == "old version":
        path = one.published.resolve()
        update(one)
        one.fetch()
    else:
        another_model(one)
        path = one.store.root / "n" / "model.gguf"
    age(one)
    words = [sys.executable, "-c", HOLD, str(path), how]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "held\n"
        found = pruned(one)
        assert found.removals == ()
        size = path.stat().st_size
        assert sum(removal.size for removal in found.in_use) == size
        assert found.summary() == f"Nothing to remove.  Open in a process of this machine: 1 thing, {human(size)}."
        assert path.exists()
        process.stdin.close()
    assert "blobs" in paths(pruned(one))


def test_a_link_that_leads_to_no_set_is_removed_when_no_lock_names_it(one):
    (one.store.root / "gone").symlink_to(f"sets/gone@{'0' * 12}")
    assert [(removal.path, removal.why) for removal in pruned(one).removals] == [
        ("gone", "model without files that no lock names")
    ]
    assert not os.path.lexists(one.store.root / "gone")


def test_a_link_that_the_operator_made_keeps_what_it_leads_to(one):
    (one.store.root / "kept").symlink_to((one.store.root / "m").readlink())
    update(one)
    one.fetch()
    assert pruned(one).removals == ()
    assert (one.store.root / "kept" / "model.gguf").read_bytes() == one.content


def test_links_that_lead_in_a_circle_or_nowhere_disturb_nothing(one):
    (one.store.root / "round").symlink_to("round")
    (one.store.root / "nowhere").symlink_to("sets/none@000000000000")
    assert pruned(one).removals == ()


def test_a_blob_that_two_models_share_stays_with_the_other(one):
    both = json.loads(one.lock.read_text())["models"]["m"]
    one.fetch()
    lock = read_lock(write_lock(one.folder / "both", m=both, n=both))
    fetch(lock, one.store, hub=one.client)
    only_m = read_lock(write_lock(one.folder / "m", m=both))
    found = pruned(one, lock=only_m)
    assert [removal.path for removal in found.removals] == ["n", f"sets/{one.store.set_name(lock.models['n'])}"]
    assert one.published.read_bytes() == one.content


def test_a_file_of_a_path_model_is_never_touched(one, tmp_path):
    mine = tmp_path / "mine.gguf"
    mine.write_bytes(b"my own")
    entry = {"repo": None, "revision": None, "licence": None, "argv": [], "files": [locked_file(str(mine), b"my own")]}
    fetch(read_lock(write_lock(tmp_path / "with", mine=entry)), one.store)
    assert paths(pruned(one)) == ["mine", "sets"]
    assert mine.read_bytes() == b"my own"


def half_a_download(one, sha256, *, owner="dead"):
    folder = one.store.partials / f"{sha256}.{owner}"
    folder.mkdir(parents=True)
    (folder / f"{sha256}.partial").write_bytes(b"x" * 5000)
    header = json.dumps({"version": 1, "sha256": sha256, "size": 5000})
    (folder / f"{sha256}.journal").write_text(f"{header}\n0 2500")
    return folder


def test_a_download_that_the_lock_does_not_name_is_removed(one):
    stale = half_a_download(one, "a" * 64)
    assert paths(pruned(one, grace=DAY)) == []
    assert paths(pruned(one)) == [".corral"]
    assert not stale.exists()


def test_a_download_that_the_lock_names_stays(one):
    update(one)
    sha256 = read_lock(one.lock).models["m"].files[0].sha256
    begun = half_a_download(one, sha256)
    age(one)
    assert pruned(one).removals == ()
    assert begun.exists()


def test_a_name_that_another_user_gave_is_printed_without_what_a_terminal_obeys(one):
    blob = one.store.root / "blobs" / ("d" * 64)
    blob.mkdir()
    (blob / "\x1b[2J\u202e\nx.gguf").write_bytes(b"1")
    detail = next(row[4] for row in survey(one.store).rows() if row[0] == "blob")
    assert detail == r"no set leads to it: \x1b[2J\u202e\nx.gguf"
    age(one)
    assert [removal.why for removal in pruned(one).removals] == [r"\x1b[2J\u202e\nx.gguf, to which no set in use leads"]


def test_what_a_live_process_works_on_stays(one):
    begun = half_a_download(one, "a" * 64)
    blob = one.store.root / "blobs" / ("a" * 64)
    blob.mkdir()
    lease = Lease(one.store.leases / ("a" * 64), 60)
    assert lease.take()
    with lease:
        assert pruned(one).removals == ()
    assert begun.exists()
    assert sorted(removal.path[:12] for removal in pruned(one).removals) == [".corral/part", "blobs/aaaaaa"]


def test_what_processes_that_died_left_behind_is_removed(one):
    corral = one.store.root / ".corral"
    blob = one.published.resolve().parent
    left = [
        corral / "flip.m",
        (one.store.root / "m").resolve() / ".model.gguf.new",
        blob / ".b.gguf.new",
    ]
    for path in left:
        path.symlink_to("nowhere")
    dead = json.dumps(["0000", "elsewhere", "elsewhere", 1, "1"])
    for path in (one.store.leases / ("b" * 64), one.store.leases / f"{'b' * 64}.0000"):
        path.write_text(dead)
        os.utime(path, (1, 1))
        left.append(path)
    for name in (f"{'c' * 64}.json", f"{blob.name}.json.123"):
        (one.store.records / name).write_text("{}")
        left.append(one.store.records / name)
    assert {one.store.root / removal.path for removal in pruned(one).removals} == set(left)
    assert [path for path in left if os.path.lexists(path)] == []
    assert pruned(one).removals == ()
    assert one.published.read_bytes() == one.content


def test_what_corral_did_not_make_stays_and_keeps_what_it_uses(one):
    blob = one.published.resolve()
    mine = one.store.root / "sets" / "mine"
    mine.mkdir()
    (mine / "notes.txt").write_text("mine")
    (mine / "weights").symlink_to(blob)
    (one.store.root / "blobs" / "readme").mkdir()
    (one.store.root / "blobs" / ("d" * 64)).mkdir()
    (one.store.root / "blobs" / ("d" * 64) / "sub").mkdir()
    (one.store.root / "m").unlink()
    empty = Lock(path=one.folder / "lock.json", models={})
    assert paths(pruned(one, lock=empty)) == ["sets"]
    assert (mine / "weights").read_bytes() == one.content
    assert (one.store.root / "blobs" / ("d" * 64) / "sub").is_dir()
    assert (one.store.root / "blobs" / "readme").is_dir()


def test_what_cannot_be_removed_is_reported_and_the_rest_is_removed(one, monkeypatch):
    update(one)
    one.fetch()

    def refuse(_path):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr("corral.agent.prune._unlink_link", refuse)
    found = pruned(one)
    assert [(removal.path.partition("/")[0], removal.error) for removal in found.failed] == [
        ("sets", "Permission denied")
    ]
    assert found.size == 100_000
    assert found.summary() == "Removed 1 thing, 100.0 kB."


def test_without_a_store_it_is_refused(one, tmp_path):
    with pytest.raises(Refused, match="There is no store at"):
        prune(read_lock(one.lock), Store(tmp_path / "none"))
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("0", 0), ("90", 90), ("90s", 90), ("1.5h", 5400), ("15m", 900), ("7d", 604800), ("2 h", 7200)],
)
def test_durations_are_read(text, seconds):
    assert seconds_of(text) == seconds


@pytest.mark.parametrize("text", ["", "soon", "-1h", "1w", "1h30m", "h"])
def test_what_is_no_duration_is_refused(text):
    with pytest.raises(argparse.ArgumentTypeError, match="is no duration such as 90s"):
        seconds_of(text)
