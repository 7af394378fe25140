"""Files that several processes look at."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from corral.errors import CannotRun, Refused
from corral.files import OwnFolder, kept_closed, refuse_unwritable, write_atomically
from tests.support.kernel import OTHER_UID, modes, not_permitted, small_disk, umask


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
            OwnFolder(disk / "x", "CHOICE").exclusive_lock(disk / "x", timeout_s=1),
        ):
            (disk / "x" / "big").write_text("x" * 100_000)
        steps = [caught.value.next_step for caught in (refused, failed)]
        assert steps == [f"Make room there: df -h {disk}", f"Make room there: df -h {disk}/x"]


@pytest.fixture
def own(tmp_path):
    return OwnFolder(tmp_path / "own", "CHOICE")


def test_a_folder_is_used_by_one_at_a_time_and_the_other_is_named(own):
    folder = own.path / "x"
    with (
        own.exclusive_lock(folder, timeout_s=1),
        pytest.raises(
            CannotRun, match=rf"Another corral \(process {os.getpid()}\) has been at work in {folder}"
        ) as caught,
        own.exclusive_lock(folder, timeout_s=0.1),
    ):
        pass
    assert caught.value.next_step == f"ps -fp {os.getpid()}; wait for it, or choose another folder: CHOICE=DIR"

    with own.exclusive_lock(folder, timeout_s=0.1):
        assert (folder / "lock").exists()


@pytest.mark.parametrize("mask", [0, 0o077])
def test_what_it_makes_is_closed_to_others_whatever_the_umask_is(own, mask):
    with umask(mask), own.exclusive_lock(own.path / "a" / "b", timeout_s=1):
        pass

    assert modes(own.path) == {"folders": {0o700}, "files": {0o600}}


@pytest.mark.parametrize("place", [".", "a", "a/b"])
@pytest.mark.parametrize("bits", [0o775, 0o757, 0o1777])
def test_a_folder_that_others_may_write_in_is_refused_with_the_command_that_mends_it(own, place, bits):
    folder = own.path / "a" / "b"
    own.prepare(folder)
    (own.path / place).chmod(bits)

    with pytest.raises(Refused, match=f"write in .* \\(mode {bits:04o}\\)") as caught:
        own.prepare(folder)

    command = caught.value.next_step.partition(", or choose another folder: CHOICE=DIR")[0]
    subprocess.run(["sh", "-c", command], check=True)
    own.prepare(folder)


def test_a_folder_of_another_user_is_refused_with_the_command_that_mends_it(own):
    if os.geteuid() != 0:
        not_permitted("only root gives a folder to another user")
    own.prepare(own.path / "a")
    os.chown(own.path, OTHER_UID, OTHER_UID)

    with pytest.raises(Refused, match=f"{own.path} belongs to another user \\(uid {OTHER_UID}\\)") as caught:
        own.prepare(own.path / "a")

    assert caught.value.next_step == f"sudo mv {own.path} {own.path}.old, or choose another folder: CHOICE=DIR"


def lock_as_another_user(file):
    """Whether user ``OTHER_UID`` can lock *file* now."""
    if os.geteuid() != 0:
        not_permitted("only root becomes another user")
    words = ["setpriv", f"--reuid={OTHER_UID}", f"--regid={OTHER_UID}", "--clear-groups"]
    return (
        subprocess.run([*words, "flock", "--nonblock", file, "true"], capture_output=True, check=False).returncode == 0
    )


def test_another_user_cannot_take_the_lock_that_was_open_to_all_before():
    with tempfile.TemporaryDirectory() as name:  # pytest's folder is closed to others, whatever is in it
        own = OwnFolder(Path(name), "CHOICE")
        own.path.chmod(0o755)
        (own.path / "x").mkdir(0o755)
        (own.path / "x" / "lock").touch(0o644)
        assert lock_as_another_user(own.path / "x" / "lock")

        with own.exclusive_lock(own.path / "x", timeout_s=0):
            pass

        assert not lock_as_another_user(own.path / "x" / "lock")


def test_a_lock_that_is_no_file_of_ours_is_neither_followed_nor_waited_for(own, tmp_path):
    victim, lock = tmp_path / "victim", own.path / "x" / "lock"
    victim.write_text("content")
    own.prepare(lock.parent)
    plants = {"a link": lambda: lock.symlink_to(victim), "a FIFO": lambda: os.mkfifo(lock), "a folder": lock.mkdir}
    for what, plant in plants.items():
        plant()
        with (
            pytest.raises(CannotRun, match="x cannot be used: "),
            own.exclusive_lock(lock.parent, timeout_s=0),
        ):
            pytest.fail(f"{what} was taken for a lock")
        lock.rmdir() if lock.is_dir() else lock.unlink()

    assert victim.read_text() == "content"


def test_a_file_that_is_kept_closed_opens_for_no_other_process_until_the_end(tmp_path):
    file = tmp_path / "weights"
    file.write_bytes(b"GGUF")
    code = "import os, sys; os.open(sys.argv[1], os.O_RDONLY | os.O_NONBLOCK)"

    def opened():
        done = subprocess.run([sys.executable, "-c", code, file], stderr=subprocess.PIPE, text=True, check=False)
        return done.returncode == 0 or done.stderr.splitlines()[-1]

    with kept_closed(file) as is_kept:
        assert is_kept
        assert opened().startswith("BlockingIOError")
    assert opened() is True


def test_a_file_that_another_has_open_is_not_kept_closed(tmp_path):
    file = tmp_path / "weights"
    file.write_bytes(b"GGUF")
    with file.open("rb"), kept_closed(file) as is_kept:
        assert not is_kept
