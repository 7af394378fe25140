"""Builds Go programs that have no other way here, once per content of their pins, into the user's cache.

A folder with go.mod and go.sum pins everything; main packages may be its own or those of a module that it requires.
"""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from corral import paths
from corral.engine import llama_swap_build
from corral.errors import CannotRun
from corral.files import exclusive_lock

BUILD_LIMIT_S = 1800.0


@dataclass(frozen=True)
class Programs:
    """Go programs of one module: built together, so that what they share is compiled once.

    Attributes:
        name: what they are called in the cache and in what is said, with their version.
        pins: the folder with go.mod and go.sum.
        packages: the main packages; the last part of each is its program's name.
        stamps: values of string variables, by variable, that the linker sets.
        minutes: about how long the build takes on two cores.
    """

    name: str
    pins: Path
    packages: tuple[str, ...]
    stamps: Mapping[str, str]
    minutes: float

    @property
    def folder(self) -> Path:
        """Where the programs lie in the cache; it need not be there yet."""
        digest = hashlib.sha256(repr((self.packages, sorted(self.stamps.items()))).encode())
        for file in sorted(file for file in self.pins.iterdir() if file.is_file()):
            digest.update(file.name.encode() + file.read_bytes())
        system = f"{platform.system()}-{platform.machine()}".lower()
        return paths.cache_dir() / "go-programs" / f"{self.name}-{system}-{digest.hexdigest()[:12]}"

    def build(self) -> Path:
        """Return ``folder``, built now when it is missing; two builds at once are safe, the second waits.

        Raises:
            CannotRun: there is no Go and none could be fetched, or the build failed; the message holds its last lines.
        """
        target = self.folder
        if target.exists():
            return target
        with exclusive_lock(
            target.parent / f".{self.name}", timeout_s=BUILD_LIMIT_S, remedy="XDG_CACHE_HOME=DIR names another"
        ):
            if not target.exists():
                go = llama_swap_build.find_go(say, self._needed_go())
                say(f"building {self.name}: about {self.minutes:g} min on two cores, once ...")
                started = time.monotonic()
                with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{self.name}-") as scratch:
                    fresh = Path(scratch) / "bin"
                    self._compile(str(go), fresh)
                    fresh.rename(target)
                say(f"built {self.name} in {time.monotonic() - started:.0f} s")
        return target

    def _needed_go(self) -> tuple[int, ...]:
        lines = (self.pins / "go.mod").read_text(encoding="utf-8").splitlines()
        version = next(line.removeprefix("go ") for line in lines if line.startswith("go "))
        return tuple(int(part) for part in version.split("."))

    def _compile(self, go: str, into: Path) -> None:
        into.mkdir()
        stamps = "".join(f" -X {variable}={value}" for variable, value in self.stamps.items())
        # The same -trimpath for everything: another set of flags shares nothing in Go's build cache.
        command = [go, "build", "-trimpath", "-ldflags", f"-s -w{stamps}", "-o", f"{into}/", *self.packages]
        theirs = {name: value for name, value in os.environ.items() if name not in {"GOOS", "GOARCH", "GOROOT"}}
        ours = {"GOTOOLCHAIN": "local", "GOFLAGS": "-mod=readonly", "GOWORK": "off"}
        try:
            done = subprocess.run(
                command,
                cwd=self.pins,
                env=theirs | ours,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                check=False,
                timeout=BUILD_LIMIT_S,
            )
        except subprocess.TimeoutExpired:
            raise CannotRun(
                f"Building {self.name} took more than {BUILD_LIMIT_S:.0f} s.",
                next_step="Try again: Go keeps what it built",
            ) from None
        if done.returncode:
            last = "\n".join(done.stdout.strip().splitlines()[-12:])
            raise CannotRun(f"Building {self.name} failed:\n{last}", next_step="Is the Go module proxy reachable?")


def say(words: str) -> None:
    """Progress, for a person: on stderr."""
    sys.stderr.write(f"{words}\n")
    sys.stderr.flush()
