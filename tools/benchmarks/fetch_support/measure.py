"""Measure one process: time, memory, dirty pages; in a memory cgroup on request."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_CGROUPS = Path("/sys/fs/cgroup")
_POLL_SECONDS = 0.02
MB = 1_000_000


@dataclass(frozen=True)
class Usage:
    """A run's seconds, MB of memory of its own (VmHWM), and MB of dirty pages in the page cache."""

    seconds: float
    rss: float
    dirty: float
    code: int


def run(command: Sequence[str], environment: Mapping[str, str], *, group: Path | None = None) -> Usage:
    """Run *command* to its end, inside the cgroup *group* if there is one."""
    if group:
        command = ["sh", "-c", f'echo $$ > {group}/cgroup.procs && exec "$@"', "sh", *command]
    waiting = _waiting_to_be_written()
    began = time.perf_counter()
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    rss = dirty = 0.0
    while process.poll() is None:
        rss = max(rss, _peak_memory(process.pid))
        dirty = max(dirty, _waiting_to_be_written() - waiting)
        time.sleep(_POLL_SECONDS)
    seconds = time.perf_counter() - began
    _, talk = process.communicate()
    if process.returncode > 0:
        raise SystemExit(f"{command[0]} failed with {process.returncode}:\n{talk.decode()}")
    return Usage(seconds, rss, dirty, process.returncode)


@contextlib.contextmanager
def memory_limit(limit: int) -> Iterator[Path | None]:
    """A cgroup whose processes and their page cache get *limit* bytes; None where none can be made."""
    for parent, setting in ((_CGROUPS / "memory", "memory.limit_in_bytes"), (_CGROUPS, "memory.max")):
        group = parent / f"corral-benchmark-{os.getpid()}"
        try:
            group.mkdir()
            (group / setting).write_text(str(limit), encoding="ascii")
        except OSError:
            with contextlib.suppress(OSError):
                group.rmdir()
            continue
        try:
            yield group
        finally:
            group.rmdir()
        return
    yield None


def _peak_memory(pid: int) -> float:
    with contextlib.suppress(OSError, IndexError):
        return _kilobytes(Path(f"/proc/{pid}/status"), "VmHWM:") / 1000
    return 0.0


def _waiting_to_be_written() -> float:
    return _kilobytes(Path("/proc/meminfo"), "Dirty:") / 1000


def _kilobytes(path: Path, name: str) -> float:
    lines = [line for line in path.read_text(encoding="ascii", errors="replace").splitlines() if line.startswith(name)]
    return float(lines[0].split()[1]) * 1.024
