"""A working tree of the clone on a branch of its own, with a wheel of its own: what a change is tried in."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from corral import paths
from corral.errors import Refused
from corral.upgrade.environment import Environment


@dataclass(frozen=True)
class Finished:
    """What a command printed, and its exit code."""

    code: int
    stdout: str
    stderr: str

    @property
    def text(self) -> str:
        """All of it."""
        return "\n".join(filter(None, (self.stdout.strip(), self.stderr.strip())))


def git(*words: str, folder: Path = paths.REPOSITORY) -> str:
    """What git prints for *words* in *folder*.

    Raises:
        Refused: git refuses, or is not installed.
    """
    command = ["git", "-C", str(folder), *words]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        raise Refused("git is not installed, and an upgrade is a commit.", next_step="Install git") from None
    if done.returncode:
        raise Refused(f"git {words[0]} failed: {done.stderr.strip()}.", next_step=f"git -C {folder} status")
    return done.stdout.strip()


def require_clean() -> None:
    """Return when the clone is one of git, on a branch, and without changes that are not committed.

    Raises:
        Refused: it is not.
    """
    if not (paths.REPOSITORY / ".git").exists():
        message = f"{paths.REPOSITORY} is no clone of git, and an upgrade is one commit to go back on."
        raise Refused(message, next_step="Clone the repository, then: corral upgrade engine")
    changed = git("status", "--porcelain", "--untracked-files=no")
    if changed:
        names = ", ".join(line[2:].strip() for line in changed.splitlines()[:5])
        message = f"There are changes that are not committed: {names}; an upgrade begins at the last commit."
        raise Refused(message, next_step=f"git -C {paths.REPOSITORY} diff HEAD; commit or stash them")


@dataclass(frozen=True)
class Trial:
    """The working tree.

    Attributes:
        folder: where it is.
        branch: its branch.
    """

    folder: Path
    branch: str

    @property
    def environment(self) -> Environment:
        """Its Python: this one's packages, with corral and the wheel of the trial in front of them."""
        return Environment(self.folder / ".venv")

    def run(self, *words: str | Path, variables: Mapping[str, str] | None = None) -> Finished:
        """Run its Python with *words* in its folder ``tools``."""
        return run([self.environment.python, *words], self.folder / "tools", variables)


def run(command: Sequence[str | Path], folder: Path, variables: Mapping[str, str] | None = None) -> Finished:
    """Run *command* in *folder*, with *variables* beside those of this process."""
    own = {"PYTHONDONTWRITEBYTECODE": "1", **(variables or {})}
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, env={**os.environ, **own}, check=False)
    return Finished(done.returncode, done.stdout, done.stderr)


@contextmanager
def trial(branch: str) -> Iterator[Trial]:
    """A working tree of the last commit on the new branch *branch*; both are removed, but for commits on the branch.

    Raises:
        Refused: there is such a branch already, or git refuses.
    """
    folder = paths.cache_dir() / "upgrade" / branch
    _remove(folder)  # of a run that was killed
    if git("branch", "--list", branch) and git("rev-list", f"HEAD..{branch}"):
        raise Refused(
            f"There is a branch {branch} already, of an earlier run.",
            next_step=f"Take it over: git merge --ff-only {branch}; or remove it: git branch -D {branch}",
        )
    folder.parent.mkdir(parents=True, exist_ok=True)
    start = git("rev-parse", "HEAD")
    git("worktree", "add", "--quiet", "-B", branch, str(folder), start)
    try:
        yield Trial(folder, branch)
    finally:
        committed = git("rev-parse", branch) != start
        _remove(folder)
        if not committed:
            git("branch", "-D", branch)


def _remove(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    git("worktree", "prune")
