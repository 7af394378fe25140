"""The journal: what it names is on disk, whatever happened to the process."""

import errno
import os
import random
from contextlib import closing

import pytest

from corral.agent import page_cache
from corral.agent.lock_file import LockedFile
from corral.agent.partial import Partial, add_span, gaps, length, read_journal

FILE = LockedFile("x.gguf", "model", 100, "a" * 64)


def journal(folder):
    return folder / f"{FILE.sha256}.journal"


def finish(partial, start, end):
    partial.arrived(start, end)
    partial.flush()


def test_spans_join_in_any_order():
    random.seed(1)
    for _ in range(200):
        covered, spans = set(), []
        for _ in range(random.randint(0, 12)):
            start = random.randint(0, 98)
            end = random.randint(start + 1, 100)
            covered |= set(range(start, end))
            spans = add_span(spans, (start, end))
        assert {at for start, end in spans for at in range(start, end)} == covered
        assert {at for start, end in gaps(spans, 100) for at in range(start, end)} == set(range(100)) - covered
        assert length(spans) == len(covered)
        assert spans == sorted(spans)


def test_what_was_finished_is_there_for_the_next_process(tmp_path):
    with closing(Partial(tmp_path, FILE)) as partial:
        partial.write(10, memoryview(b"b" * 20))
        finish(partial, 10, 30)
        partial.write(50, memoryview(b"never finished"))
    with closing(Partial(tmp_path, FILE)) as partial:
        assert partial.missing() == [(0, 10), (30, 100)]
        assert (partial.done, partial.frontier) == (20, 0)
        finish(partial, 0, 10)
        assert partial.frontier == 30


@pytest.mark.parametrize("kind", ["partial", "journal"])
def test_a_link_in_the_place_of_a_file_is_never_written_through(tmp_path, kind):
    victim = tmp_path / "victim"
    victim.write_text("content")
    (tmp_path / f"{FILE.sha256}.{kind}").symlink_to(victim)
    with pytest.raises(OSError, match="symbolic links"):
        Partial(tmp_path, FILE)
    assert victim.read_text() == "content"


def test_what_has_arrived_counts_as_kept_only_once_it_is_flushed(tmp_path):
    with closing(Partial(tmp_path, FILE)) as partial:
        finish(partial, 0, 10)
        partial.arrived(10, 30)
        assert (partial.frontier, partial.done, partial.unflushed) == (30, 10, 20)
        assert read_journal(tmp_path, FILE) == [(0, 10)]
        partial.flush()
        assert (partial.frontier, partial.done, partial.unflushed) == (30, 30, 0)
        assert read_journal(tmp_path, FILE) == [(0, 30)]


def test_a_flush_that_fails_leaves_no_line_in_the_journal(tmp_path, monkeypatch):
    def fail(_descriptor):
        raise OSError(errno.EIO, "Input/output error")

    with closing(Partial(tmp_path, FILE)) as partial:
        monkeypatch.setattr(os, "fdatasync", fail)
        with pytest.raises(OSError, match="Input/output error"):
            finish(partial, 0, 50)
        assert partial.done == 0
    assert read_journal(tmp_path, FILE) == []


def test_what_arrives_during_a_flush_waits_for_the_next_one(tmp_path, monkeypatch):
    sync = os.fdatasync

    def sync_while_more_arrives(descriptor):
        partial.arrived(20, 40)
        sync(descriptor)

    with closing(Partial(tmp_path, FILE)) as partial:
        monkeypatch.setattr(os, "fdatasync", sync_while_more_arrives)
        finish(partial, 0, 30)
        assert read_journal(tmp_path, FILE) == [(0, 30)]
        assert (partial.done, partial.unflushed) == (30, 10)


def test_a_file_that_lost_its_end_is_an_error_and_no_endless_wait(tmp_path):
    with closing(Partial(tmp_path, FILE)) as partial:
        finish(partial, 0, 100)
        os.truncate(partial.path, 40)
        assert partial.read(0, memoryview(bytearray(100))) == 40
        with pytest.raises(OSError, match="ends before byte 40"):
            partial.read(40, memoryview(bytearray(60)))


def test_where_the_kernel_knows_no_early_write_back_nothing_is_missing(tmp_path, monkeypatch):
    monkeypatch.setattr(page_cache, "_sync_file_range", None)
    large = LockedFile("x.gguf", "model", 9 << 20, "a" * 64)
    with closing(Partial(tmp_path, large)) as partial:
        finish(partial, 0, large.size)
        assert partial.done == large.size


@pytest.mark.parametrize("kept", range(1, len("\n10 30\n40 55")))
def test_a_journal_cut_anywhere_names_no_byte_that_is_not_there(tmp_path, kept):
    with closing(Partial(tmp_path, FILE)) as partial:
        finish(partial, 10, 30)
        finish(partial, 40, 55)
    whole = journal(tmp_path).read_bytes()
    header = whole.index(b"\n")
    journal(tmp_path).write_bytes(whole[: header + kept])
    spans = read_journal(tmp_path, FILE)
    assert {at for span in spans for at in range(*span)} <= set(range(10, 30)) | set(range(40, 55))
    with closing(Partial(tmp_path, FILE)) as partial:
        finish(partial, 60, 70)
    assert (60, 70) in read_journal(tmp_path, FILE)


def test_lines_that_corral_did_not_write_name_no_bytes(tmp_path):
    with closing(Partial(tmp_path, FILE)) as partial:
        finish(partial, 10, 30)
    with journal(tmp_path).open("ab") as file:
        file.write(f"\n0 {'9' * 5000}\n0 ²\n-5 5\n50 40\n0 101\n\xff".encode("latin-1"))
    assert read_journal(tmp_path, FILE) == [(10, 30)]


@pytest.mark.parametrize(
    "other",
    [LockedFile("x.gguf", "model", 99, "a" * 64), LockedFile("x.gguf", "model", 100, "b" * 64)],
    ids=["another-size", "another-hash"],
)
def test_a_journal_of_another_file_counts_for_nothing(tmp_path, other):
    with closing(Partial(tmp_path, other)) as partial:
        finish(partial, 0, 50)
    for kind in ("partial", "journal"):
        (tmp_path / f"{other.sha256}.{kind}").rename(tmp_path / f"{FILE.sha256}.{kind}")
    assert read_journal(tmp_path, FILE) is None
    with closing(Partial(tmp_path, FILE)) as partial:
        assert partial.missing() == [(0, 100)]


def test_a_partial_of_another_length_counts_for_nothing(tmp_path):
    with closing(Partial(tmp_path, FILE)) as partial:
        finish(partial, 0, 50)
        partial.path.write_bytes(b"short")
    assert read_journal(tmp_path, FILE) is None


def test_clearing_forgets_everything(tmp_path):
    with closing(Partial(tmp_path, FILE)) as partial:
        finish(partial, 0, 50)
        partial.clear()
        assert partial.missing() == [(0, 100)]
    assert read_journal(tmp_path, FILE) == []
