"""Files that several processes look at."""

from __future__ import annotations

import os

import pytest

from corral.errors import CannotRun, Refused
from corral.files import exclusive_lock, refuse_unwritable, write_atomically
from tests.support.kernel import small_disk


def test_a_file_is_replaced_whole_and_nothing_else_is_left(tmp_path):
    file = tmp_path / "a"
    file.write_text("old")

    write_atomically(file, "new é")

    assert file.read_text(encoding="utf-8") == "new é"
    assert list(tmp_path.iterdir()) == [file]


def test_a_write_that_fails_leaves_the_old_file_alone(tmp_path):
    file = tmp_path / "a"
    file.write_text("old")

    with pytest.raises(UnicodeEncodeError):
        write_atomically(file, "\ud800")

    assert file.read_text() == "old"
    assert list(tmp_path.iterdir()) == [file]


def test_the_mode_of_a_file_stays(tmp_path):
    (tmp_path / "private").touch(0o600)

    for name in ("private", "new"):
        write_atomically(tmp_path / name, "new")

    assert [(tmp_path / name).stat().st_mode & 0o777 for name in ("private", "new")] == [0o600, 0o644]


def test_a_link_stays_and_its_target_is_replaced(tmp_path):
    (tmp_path / "link").symlink_to("target")

    for content in ("first", "second"):
        write_atomically(tmp_path / "link", content)

        assert (tmp_path / "link").is_symlink()
        assert (tmp_path / "target").read_text() == content


def test_what_is_no_regular_file_is_never_replaced(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "link").symlink_to("fifo")

    for name in ("fifo", "link"):
        with (
            pytest.raises(Refused, match=rf"{name} cannot be written: It is no regular file\.$"),
            refuse_unwritable(tmp_path / name, next_step=""),
        ):
            write_atomically(tmp_path / name, "new")

    assert (tmp_path / "fifo").is_fifo()
    assert (tmp_path / "link").is_symlink()


def test_a_full_disk_is_named(tmp_path):
    with small_disk(tmp_path / "disk", 16384) as disk:
        with (
            pytest.raises(Refused, match=f"{disk}/a cannot be written: No space left on device") as refused,
            refuse_unwritable(disk / "a", next_step="Check who owns it"),
        ):
            write_atomically(disk / "a", "x" * 100_000)
        with (
            pytest.raises(CannotRun, match=f"{disk}/x is full: No space left on device") as failed,
            exclusive_lock(disk / "x", timeout_s=1, remedy="other"),
        ):
            (disk / "x" / "big").write_text("x" * 100_000)
        steps = [caught.value.next_step for caught in (refused, failed)]
        assert steps == [f"Make room there: df -h {disk}", f"Make room there: df -h {disk}/x"]


def test_a_folder_is_used_by_one_at_a_time(tmp_path):
    with (
        exclusive_lock(tmp_path / "x", timeout_s=1, remedy="first"),
        pytest.raises(CannotRun, match="Another corral has been at work") as caught,
        exclusive_lock(tmp_path / "x", timeout_s=0.1, remedy="second"),
    ):
        pass
    assert caught.value.next_step == "second"

    with exclusive_lock(tmp_path / "x", timeout_s=0.1, remedy="third"):
        assert (tmp_path / "x" / "lock").exists()
