"""What only the kernel can show: a disk that is really full, a root that is really read-only, a memory limit.

All of it is gone when its block or its process ends.  It needs root, or a kernel that lets users make name spaces.
Where that is not permitted a test is skipped with the reason; in CI (``CI`` is set) it fails: a goal that was not shown
is not met.
"""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NoReturn

import pytest

from corral import paths
from corral.drill import small_disk as small_disks
from corral.errors import CannotRun

OTHER_UID = 65534


def not_permitted(reason: str) -> NoReturn:
    """End the test: nothing can be shown here."""
    if os.environ.get("CI"):
        pytest.fail(f"Nothing is shown: {reason}")
    pytest.skip(reason)


def require_namespaces(*kinds: str) -> None:
    """End the test where unshare(1) may not make name spaces of *kinds*, which are its options."""
    permitted = subprocess.run(["unshare", *kinds, "true"], capture_output=True, text=True, check=False)
    if permitted.returncode:
        not_permitted(f"no name space can be made here: {permitted.stderr}")


@contextmanager
def small_disk(folder: Path, size: int) -> Iterator[Path]:
    """A disk of the drills; the test is skipped where none can be mounted."""
    with ExitStack() as opened:
        try:
            disk = opened.enter_context(small_disks.small_disk(folder, size))
        except CannotRun as error:
            not_permitted(error.message)
        yield disk


@contextmanager
def on_a_disk(folder: Path) -> Iterator[Path]:
    """*folder*; where it is in memory, as in /tmp of Debian 13, a new one in the user's cache."""
    kind = subprocess.run(["stat", "--file-system", "--format=%T", folder], capture_output=True, text=True, check=True)
    if kind.stdout.strip() != "tmpfs":
        yield folder
        return
    with TemporaryDirectory(dir=paths.cache_dir(), prefix="test-") as own:
        yield Path(own)


def read_only(folder: Path) -> list[str]:
    """The words before a command that cannot write in *folder*, not even as root."""
    _require_mounts()
    confine = 'mount --bind "$1" "$1" && mount -o remount,bind,ro "$1" && shift && exec "$@"'
    return [*small_disks.UNSHARE, "sh", "-c", confine, "sh", str(folder)]


def run_confined(folder: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run Python as a user without any rights, where nothing but *folder*'s subfolder ``store`` can be written.

    The subfolder ``python``, empty before, shows this interpreter without what was installed beside it.
    """
    confine = """
        mount --bind "$1" "$1" && mount --bind "$1/store" "$1/store" && mount --bind "$2" "$1/python"
        mount -o remount,bind,ro "$1" && mount -o remount,bind,ro / && shift 2 && exec "$@"
    """
    unprivileged = ["setpriv", f"--reuid={OTHER_UID}", f"--regid={OTHER_UID}", "--clear-groups", "--no-new-privs"]
    python = folder / "python" / Path(sys._base_executable).resolve().relative_to(sys.base_prefix)
    command = [*(unprivileged if os.geteuid() == 0 else []), str(python), "-B", "-S", "-s", "-W", "error", *words]
    _require_mounts()
    return subprocess.run(
        [*small_disks.UNSHARE, "sh", "-ec", confine, "sh", str(folder), sys.base_prefix, *command],
        env={"PATH": os.environ["PATH"], "LD_LIBRARY_PATH": str(folder / "python" / "lib"), **environment},
        cwd="/",
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def _require_mounts() -> None:
    allowed = subprocess.run([*small_disks.UNSHARE, "true"], capture_output=True, text=True, check=False)
    if allowed.returncode:
        not_permitted(f"no mount name space can be made here: {allowed.stderr}")


@contextmanager
def memory_cgroup(limit: int) -> Iterator[list[str]]:
    """A memory cgroup, v1 or v2, of *limit* bytes.

    Yields:
        What to put before a command so that it runs in there.
    """
    for parent, name in (("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")):
        group = Path(parent) / f"corral-test-{os.getpid()}"
        try:
            group.mkdir()
        except OSError:
            continue
        try:
            (group / name).write_text(str(limit))
            yield ["sh", "-c", f'echo $$ > {group}/cgroup.procs && exec "$@"', "sh"]
        except FileNotFoundError:
            continue
        finally:
            group.rmdir()
        return
    not_permitted("this kernel or user may make no memory cgroup; run the tests as root")


def forget_cached(path: Path) -> None:
    """Drop *path* from the page cache."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


@contextmanager
def umask(mask: int) -> Iterator[None]:
    """Files are made with *mask* in the block, as in a shell after ``umask``."""
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


def modes(folder: Path) -> dict[str, set[int]]:
    """The permissions of *folder* with all that is in it: those of its folders, and those of its files."""
    every = [folder, *folder.rglob("*")]
    return {
        "folders": {stat.S_IMODE(one.stat().st_mode) for one in every if one.is_dir()},
        "files": {stat.S_IMODE(one.stat().st_mode) for one in every if one.is_file()},
    }
