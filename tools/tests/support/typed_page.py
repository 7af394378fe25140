"""A page of the documentation whose ``console`` blocks a test types: commands, and what stands below each."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ANY = "…"
"""Stands for any text of a line; alone in a line, for any lines."""
_BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_MARK = "=typed"


@dataclass(frozen=True)
class Typed:
    """A command of a page.

    Attributes:
        command: one line.
        expected: the lines below it.
        lines: those that it printed, once it was typed.
        code: its exit code, once it was typed.
    """

    command: str
    expected: tuple[str, ...]
    lines: tuple[str, ...] = ()
    code: int | None = None

    @property
    def is_as_printed(self) -> bool:
        """Whether it ended well and printed what the page has."""
        pattern = "".join(r"(?:.*\n)*" if line == ANY else _line(line) for line in self.expected)
        return self.code == 0 and re.fullmatch(pattern, "".join(f"{line}\n" for line in self.lines)) is not None


def _line(text: str) -> str:
    return ".*".join(map(re.escape, text.split(ANY))) + "\n"


def read(page: Path) -> list[Typed]:
    """The commands of *page*, in order."""
    found = []
    for block in _BLOCK.findall(page.read_text(encoding="utf-8")):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, *expected = part.rstrip("\n").split("\n")
            found.append(Typed(command, tuple(expected)))
    return found


def type_all(commands: Sequence[Typed], folder: Path, variables: Mapping[str, str], *, limit_s: float) -> list[Typed]:
    """*commands* as one shell in *folder* ran them, each with what it printed to stdout.

    A command that never ends is ended with the shell, after *limit_s* seconds.
    """
    script = "set -m\n" + "".join(f"cd {folder}\n{one.command}\necho; echo {_MARK} $?\n" for one in commands)
    done = subprocess.run(
        ["bash"], input=script, env=variables, cwd=folder, capture_output=True, text=True, check=False, timeout=limit_s
    )
    parts = re.split(rf"^{_MARK} (\d+)\n", done.stdout, flags=re.MULTILINE)
    assert len(parts) == 2 * len(commands) + 1, f"{done.stdout}\n{done.stderr}"
    return [
        Typed(one.command, one.expected, tuple(printed.removesuffix("\n").rstrip("\n").splitlines()), int(code))
        for one, printed, code in zip(commands, parts[::2], parts[1::2], strict=False)
    ]


def path_with(*folders: Path) -> str:
    """PATH with *folders* first."""
    return os.pathsep.join([*map(str, folders), os.environ["PATH"]])
