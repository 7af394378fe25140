"""Runs a command on hostile input within limits, and what its answer must be: a refusal that a terminal can show."""

from __future__ import annotations

import multiprocessing
import os
import resource
import subprocess
import sys
import tempfile
import time
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

UNPRINTABLE = {"Cc", "Cf", "Cs", "Zl", "Zp"}
"""Unicode's categories of control, format (bidirectional too) and surrogate characters, and of separators of lines."""
REFUSALS = (1, 2, 3)

_LIMITED = """\
import os, resource, sys
memory, seconds = int(sys.argv[1]), int(sys.argv[2])
resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
os.execvp(sys.argv[3], sys.argv[3:])
"""


@dataclass(frozen=True)
class Result:
    """How a command ended.

    Attributes:
        code: its exit code; negative for a signal (-SIGXCPU: it used up its processor seconds).
    """

    code: int
    stdout: str
    stderr: str


def limited(command: Sequence[str], *, memory_mib: int, cpu_seconds: int) -> list[str]:
    """*command* as a command line that sets the limits of ``run_limited`` first."""
    return [sys.executable, "-I", "-S", "-c", _LIMITED, str(memory_mib << 20), str(cpu_seconds), *command]


def run_limited(
    command: Sequence[str],
    *,
    memory_mib: int = 1024,
    cpu_seconds: int = 20,
    environment: Mapping[str, str] | None = None,
    stdin: str = "",
) -> Result:
    """Run *command* with a limit of its address space (RLIMIT_AS) and of its processor seconds (RLIMIT_CPU).

    Not by ``preexec_fn``, which may deadlock in a process that has threads: every test with a server has some.

    Args:
        command: the program and its arguments.
        memory_mib: in MiB, of address space: what is mapped and never touched counts too.
        cpu_seconds: of all its threads together; its children have as much each.
        environment: in addition to the present one.
        stdin: all that it may read.
    """
    ended = subprocess.run(
        limited(command, memory_mib=memory_mib, cpu_seconds=cpu_seconds),
        env={**os.environ, **(environment or {})},
        input=stdin.encode(),
        capture_output=True,
        check=False,
    )
    return Result(ended.returncode, ended.stdout.decode(), ended.stderr.decode())


_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(["corral.cli.fetch", "corral.cli.main", "corral.cli.up", "corral.cli.validate"])


def run_corral(
    words: Sequence[str], *, memory_mib: int = 1024, cpu_seconds: int = 20, environment: Mapping[str, str] | None = None
) -> Result:
    """`corral` with *words*, as by ``run_limited``, in a fork of a process that has imported its commands.

    Nine tenths of a refusal are the imports: a hundred hostile locks would take a minute.
    """
    with tempfile.TemporaryDirectory() as folder:
        streams = Path(folder)
        limits = {resource.RLIMIT_AS: memory_mib << 20, resource.RLIMIT_CPU: cpu_seconds, resource.RLIMIT_CORE: 0}
        process = _FORKS.Process(
            target=_corral, args=(list(words), streams, limits, {**os.environ, **(environment or {})})
        )
        process.start()
        process.join()
        assert process.exitcode is not None
        return Result(process.exitcode, (streams / "1").read_text(), (streams / "2").read_text())


def _corral(words: list[str], streams: Path, limits: dict[int, int], environment: dict[str, str]) -> None:
    from corral.cli.main import main  # imported by the process that was forked

    os.environ.clear()
    os.environ.update(environment)
    for number, name in ((0, os.devnull), (1, streams / "1"), (2, streams / "2")):
        opened = os.open(name, os.O_RDWR | os.O_CREAT)
        os.dup2(opened, number)
        os.close(opened)
    for limit, value in limits.items():
        resource.setrlimit(limit, (value, value + (limit == resource.RLIMIT_CPU)))  # SIGXCPU before SIGKILL
    sys.exit(main(words))


@contextmanager
def within(*, memory_mib: int, cpu_seconds: float) -> Iterator[None]:
    """The block takes no more processor seconds in this process, and adds no more MiB to the most that it ever took."""
    seconds, peak = time.process_time(), _peak_mib()
    yield
    taken, added = time.process_time() - seconds, _peak_mib() - peak
    assert taken <= cpu_seconds, f"{taken:.1f} processor seconds"
    assert added <= memory_mib, f"{added:.0f} MiB of memory"


def _peak_mib() -> float:
    """The most memory that this process had; ru_maxrss would count that of the process that started it, too."""
    [line] = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM:")]
    return int(line.split()[1]) / 1024


def assert_refused(result: Result) -> None:
    """*result* is one of corral's own refusals: no bug, no limit that was hit, nothing that a terminal would obey."""
    shown = f"exit {result.code}\n{result.stdout}\n{result.stderr}"
    assert result.code in REFUSALS, shown
    assert "Traceback" not in shown, shown
    assert_printable(result.stdout)
    assert_printable(result.stderr)
    assert result.stderr.strip(), "it does not say why"


def assert_printable(text: str) -> None:
    """*text* has no control character but line feed and tab, and none that reorders or hides others."""
    found = sorted({character for character in text if unicodedata.category(character) in UNPRINTABLE} - set("\n\t"))
    assert not found, f"{found!a} in {text!a}"
