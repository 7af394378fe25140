"""The journal: what it names is on disk, whatever happened to the process."""

import random
from contextlib import closing

import pytest

from corral.agent.lock_file import LockedFile
from corral.agent.partial import Partial, add_span, gaps, length, read_journal

FILE = LockedFile("x.gguf", "model", 100, "a" * 64)


def journal(folder):
    return folder / f"{FILE.sha256}.journal"


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
        partial.finish(10, 30)
        partial.write(50, memoryview(b"never finished"))
    with closing(Partial(tmp_path, FILE)) as partial:
        assert partial.missing() == [(0, 10), (30, 100)]
        assert (partial.done, partial.frontier) == (20, 0)
        partial.finish(0, 10)
        assert partial.frontier == 30


@pytest.mark.parametrize("kept", range(1, len("\n10 30\n40 55")))
def test_a_journal_cut_anywhere_names_no_byte_that_is_not_there(tmp_path, kept):
    with closing(Partial(tmp_path, FILE)) as partial:
        partial.finish(10, 30)
        partial.finish(40, 55)
    whole = journal(tmp_path).read_bytes()
    header = whole.index(b"\n")
    journal(tmp_path).write_bytes(whole[: header + kept])
    spans = read_journal(tmp_path, FILE)
    assert {at for span in spans for at in range(*span)} <= set(range(10, 30)) | set(range(40, 55))
    with closing(Partial(tmp_path, FILE)) as partial:
        partial.finish(60, 70)
    assert (60, 70) in read_journal(tmp_path, FILE)


@pytest.mark.parametrize(
    "other",
    [LockedFile("x.gguf", "model", 99, "a" * 64), LockedFile("x.gguf", "model", 100, "b" * 64)],
    ids=["another-size", "another-hash"],
)
def test_a_journal_of_another_file_counts_for_nothing(tmp_path, other):
    with closing(Partial(tmp_path, other)) as partial:
        partial.finish(0, 50)
    for kind in ("partial", "journal"):
        (tmp_path / f"{other.sha256}.{kind}").rename(tmp_path / f"{FILE.sha256}.{kind}")
    assert read_journal(tmp_path, FILE) is None
    with closing(Partial(tmp_path, FILE)) as partial:
        assert partial.missing() == [(0, 100)]


def test_a_partial_of_another_length_counts_for_nothing(tmp_path):
    with closing(Partial(tmp_path, FILE)) as partial:
        partial.finish(0, 50)
        partial.path.write_bytes(b"short")
    assert read_journal(tmp_path, FILE) is None


def test_clearing_forgets_everything(tmp_path):
    with closing(Partial(tmp_path, FILE)) as partial:
        partial.finish(0, 50)
        partial.clear()
        assert partial.missing() == [(0, 100)]
    assert read_journal(tmp_path, FILE) == []
