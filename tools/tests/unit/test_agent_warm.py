"""Warm: what is reported as in memory is measured; a limit that is too small is reported before."""

import json
import os
import subprocess
import sys
import threading

import pytest

from corral.agent.lock_file import read_lock
from corral.agent.page_cache import Limit, cached_bytes, memory_limit
from corral.agent.progress import Cramped, Warming
from corral.agent.stopping import Stopped
from corral.agent.warm import warm
from corral.errors import CannotRun, Refused
from tests.support.fetching import MIB, shop
from tests.support.kernel import OTHER_UID, forget_cached, memory_cgroup, on_a_disk

SIZE = 24 * MIB


@pytest.fixture
def disk(tmp_path):
    with on_a_disk(tmp_path) as folder:
        yield folder


@pytest.fixture
def one(disk):
    with shop(disk, size=SIZE) as made:
        made.fetch()
        yield made


def warmed(one, **how):
    (found,) = warm(read_lock(one.lock), one.store, models=["m"], **how)
    return found


def test_a_cold_file_is_in_memory_afterwards(one):
    forget_cached(one.published)
    assert cached_bytes(one.published) < SIZE / 2
    found = warmed(one)
    assert found.is_warm
    # The kernel may drop a page again at any moment.
    assert found.cached_before < SIZE / 2 < 0.99 * SIZE <= min(found.cached, cached_bytes(one.published))
    assert found.seconds > 0
    assert found.again_seconds is not None


def test_measuring_reads_nothing(one):
    forget_cached(one.published)
    before = cached_bytes(one.published)
    assert cached_bytes(one.published) == before < SIZE / 2


def test_a_part_is_measured_as_a_part_also_beyond_four_gigabytes(disk):
    path = disk / "large"
    with path.open("wb") as file:
        file.truncate(5 << 30)
        os.pwrite(file.fileno(), b"x" * MIB, (5 << 30) - MIB)
        os.fsync(file.fileno())
        assert cached_bytes(path) == MIB
    with path.open("rb") as file:
        file.read(8192)
    assert MIB < cached_bytes(path) < 16 * MIB


def test_a_size_that_is_no_multiple_of_a_page_is_warm_to_the_last_byte(tmp_path):
    path = tmp_path / "odd"
    path.write_bytes(b"x" * 5001)
    assert cached_bytes(path) == 5001
    (tmp_path / "empty").touch()
    assert cached_bytes(tmp_path / "empty") == 0


def test_what_no_server_could_open_is_refused(one):
    with pytest.raises(Refused, match="has no model other"):
        warm(read_lock(one.lock), one.store, models=["other"])
    one.published.resolve().unlink()
    with pytest.raises(Refused, match=r"m/model\.gguf is not there: nothing to warm"):
        warmed(one)
    (one.store.root / "m").unlink()
    with pytest.raises(Refused, match=r"store/m is not there"):
        warmed(one)


def test_progress_is_reported_while_it_reads(one):
    events = []
    warmed(one, report=events.append)
    progress = [event for event in events if isinstance(event, Warming)]
    assert len(progress) > 4
    assert (progress[-1].name, progress[-1].done) == ("m/model.gguf", SIZE)


def test_it_ends_when_it_is_stopped(one):
    stop = threading.Event()
    stop.set()
    with pytest.raises(Stopped):
        warmed(one, stop=stop)


def test_a_user_to_whom_the_kernel_reports_no_residency_is_refused(one, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: OTHER_UID)
    monkeypatch.setattr(os, "access", lambda *_args: False)
    monkeypatch.setattr("corral.agent.page_cache._effective_capabilities", lambda: 0)
    with pytest.raises(
        CannotRun, match="is in memory to its owner, and to users who may write it; user 65534 is neither"
    ):
        warmed(one)


def run_warm(one, *before):
    command = [sys.executable, "-m", "corral.agent", "warm", "--lock", str(one.lock), "--store", str(one.store.root)]
    return subprocess.run([*before, *command, "--json", "m"], capture_output=True, text=True, check=False, timeout=60)


def test_a_memory_cgroup_that_is_too_small_is_reported_before_and_measured_after(one):
    forget_cached(one.published)
    with memory_cgroup(20 * MIB) as inside:
        done = run_warm(one, *inside)
    assert done.returncode == 1, done.stderr
    assert "warning: 25.2 MB are to be cached and " in done.stderr
    assert "allows 21.0 MB" in done.stderr
    for found in map(json.loads, done.stdout.splitlines()):
        assert found["cached"] < 0.99 * SIZE
        assert found["again_seconds"] is None


def test_a_memory_cgroup_that_is_large_enough_is_no_error(one):
    forget_cached(one.published)
    with memory_cgroup(200 * MIB) as inside:
        done = run_warm(one, *inside)
    assert (done.returncode, done.stderr) == (0, "")
    file, everything = map(json.loads, done.stdout.splitlines())
    assert 0.99 * SIZE <= file["cached"] == everything["cached"] <= SIZE


def test_it_needs_little_memory_of_its_own(one):
    probe = (
        "import sys; from corral.agent.__main__ import main; main(sys.argv[1:]); "
        "print(next(line for line in open('/proc/self/status') if line.startswith('VmHWM:')))"
    )
    words = ["warm", "--lock", str(one.lock), "--store", str(one.store.root), "m"]
    done = subprocess.run([sys.executable, "-c", probe, *words], capture_output=True, text=True, check=True)
    peak_kib = int(done.stdout.split()[-2])
    assert peak_kib * 1024 < 64e6


# -- limits ----------------------------------------------------------------------------------------------------


def machine(root, cgroup, mounts, limits):
    """A made-up /proc and /sys below *root*."""
    for path, text in {"proc/self/cgroup": cgroup, "proc/self/mountinfo": mounts, **limits}.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    return root


V1 = "35 31 0:32 {part} /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory\n"
V2 = "30 24 0:26 {part} /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"
NONE_V1 = "9223372036854771712\n"


@pytest.mark.parametrize(
    ("cgroup", "mounts", "limits", "where"),
    [
        pytest.param(
            "4:memory:/pods/one\n0::/\n",
            V1.format(part="/"),
            {
                "sys/fs/cgroup/memory/pods/one/memory.limit_in_bytes": NONE_V1,
                "sys/fs/cgroup/memory/pods/memory.limit_in_bytes": "1000\n",
                "sys/fs/cgroup/memory/memory.limit_in_bytes": NONE_V1,
            },
            "the memory cgroup {root}/sys/fs/cgroup/memory/pods",
            id="v1-an-outer-one-is-the-smallest",
        ),
        pytest.param(
            "4:cpu,memory:/docker/abc\n",
            V1.format(part="/docker/abc"),
            {"sys/fs/cgroup/memory/memory.limit_in_bytes": "1000\n"},
            "the memory cgroup {root}/sys/fs/cgroup/memory",
            id="v1-in-a-container",
        ),
        pytest.param(
            "4:memory:/\n",
            V1.format(part="/"),
            {
                "sys/fs/cgroup/memory/memory.limit_in_bytes": NONE_V1,
                "sys/fs/cgroup/memory/memory.stat": "cache 1\nhierarchical_memory_limit 1000\n",
            },
            "a memory cgroup around {root}/sys/fs/cgroup/memory",
            id="v1-one-that-is-not-visible",
        ),
        pytest.param(
            "0::/kubepods/pod1/c1\n",
            V2.format(part="/"),
            {
                "sys/fs/cgroup/kubepods/pod1/c1/memory.max": "max\n",
                "sys/fs/cgroup/kubepods/pod1/memory.max": "1000\n",
                "sys/fs/cgroup/kubepods/memory.max": "2000\n",
            },
            "the memory cgroup {root}/sys/fs/cgroup/kubepods/pod1",
            id="v2-nested",
        ),
        pytest.param(
            "0::/one\n",
            V2.format(part="/"),
            {"sys/fs/cgroup/one/memory.max": "5000\n", "sys/fs/cgroup/one/memory.high": "1000\n"},
            "the memory cgroup {root}/sys/fs/cgroup/one",
            id="v2-throttled-before-the-limit",
        ),
        pytest.param(
            "0::/\n",
            V2.format(part="/"),
            {"sys/fs/cgroup/memory.max": "1000\n"},
            "the memory cgroup {root}/sys/fs/cgroup",
            id="v2-in-a-container",
        ),
    ],
)
def test_the_smallest_limit_around_counts(tmp_path, cgroup, mounts, limits, where):
    limit = memory_limit(root=machine(tmp_path, cgroup, mounts, limits))
    assert limit == (1000, where.format(root=tmp_path))


def test_without_a_cgroup_the_machine_is_the_limit(tmp_path):
    limit = memory_limit(root=tmp_path)
    assert limit.size > 1 << 28
    assert limit.where == "this machine's memory"


def test_a_limit_that_is_too_small_is_reported_once_before_reading(one, monkeypatch):
    monkeypatch.setattr("corral.agent.warm.memory_limit", lambda: Limit(1000, "a test"))
    events = []
    warmed(one, report=events.append)
    assert isinstance(events[0], Cramped)
    assert [event.limit for event in events if isinstance(event, Cramped)] == [1000]
