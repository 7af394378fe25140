"""Files that several processes look at."""

from __future__ import annotations

import pytest

from corral.errors import CannotRun
from corral.files import exclusive_lock, write_atomically


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
