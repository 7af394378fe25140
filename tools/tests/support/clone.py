"""The files of this clone, with git or without: a tree that `git archive` wrote is a clone too."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

from corral.paths import REPOSITORY

_LINES = (REPOSITORY / ".gitignore").read_text(encoding="utf-8").splitlines()
_IGNORED = [".git", *(line.rstrip("/") for line in _LINES if line and not line.startswith("#"))]


def files() -> list[str]:
    """Every file of the repository, relative to its top: git's list, or without git all that is not ignored."""
    if (REPOSITORY / ".git").exists() and shutil.which("git"):
        shown = subprocess.run(["git", "ls-files"], cwd=REPOSITORY, capture_output=True, text=True, check=True)
        return shown.stdout.splitlines()
    return [str(file.relative_to(REPOSITORY)) for file in _below(REPOSITORY)]


def state() -> dict[str, tuple[int, int]]:
    """Path to size and time of change (ns) of every file that is not ignored."""
    return {str(file): (file.stat().st_size, file.stat().st_mtime_ns) for file in _below(REPOSITORY)}


def _below(folder: Path) -> Iterator[Path]:
    for entry in sorted(folder.iterdir()):
        if any(fnmatch(entry.name, pattern) for pattern in _IGNORED):
            continue
        if entry.is_dir() and not entry.is_symlink():
            yield from _below(entry)
        else:
            yield entry
