"""Runs a command on hostile input within limits, and what its answer must be: a refusal that a terminal can show."""

from __future__ import annotations

import os
import subprocess
import sys
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

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
