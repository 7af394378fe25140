"""The xllamacpp wheels of the package index, one for each build of llama.cpp, and the lock of the Python packages."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from corral import paths
from corral.engine import builds, embedded
from corral.errors import CannotRun, Refused

_UV: Final = "0.13.9"
# CONTRIBUTING.md has the same command.
_COMPILE: Final = (
    *("--universal", "--generate-hashes", "--python-version", "3.11", "--no-header"),
    *("--group", "dev", "--group", "build", "-o", "requirements.lock"),
)
_VERSION = re.compile(r"(?<![\w.])(\d{4}\.\d{1,2}\.\d{4,7})(?![\w.])")
_LIMIT_S = 1200.0
_SHOWN = 2


def listed() -> list[str]:
    """The versions of the wheel that the package index has for this machine, the newest build first.

    Raises:
        CannotRun: the index does not answer.
    """
    text = _run([sys.executable, "-m", "pip", "index", "versions", "xllamacpp"], "The package index does not answer")
    return sorted(
        set(_VERSION.findall(text)), key=lambda version: builds.number(embedded.build_of(version)), reverse=True
    )


def choose(versions: Iterable[str], build: str | None) -> str:
    """The version that has *build*; the newest one when it is None.

    Raises:
        Refused: there is none; the nearest builds are named.
    """
    found = {embedded.build_of(version): version for version in versions}
    if not found:
        raise Refused(
            "The package index has no xllamacpp wheel for this machine.", next_step="pip index versions xllamacpp"
        )
    if build is None:
        return found[max(found, key=builds.number)]
    if build in found:
        return found[build]
    near = sorted(found, key=lambda one: abs(builds.number(one) - builds.number(build)))[:_SHOWN]
    raise Refused(
        f"There is no xllamacpp wheel with {build}; the nearest builds are {' and '.join(near)}.",
        next_step=f"corral upgrade engine --to {near[0]}",
    )


def lock_packages(tools: Path) -> None:
    """Write ``requirements.lock`` in *tools* anew for its pyproject.toml; other packages stay where they are.

    Raises:
        CannotRun: the index does not answer, or no set of packages fits.
    """
    folder = paths.cache_dir() / "uv" / _UV
    if not (folder / "bin" / "uv").is_file():
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(folder), f"uv=={_UV}"]
        _run(pip, "The program uv, which locks the packages, cannot be installed")
    command = [str(folder / "bin" / "uv"), "pip", "compile", "--quiet", *_COMPILE, "pyproject.toml"]
    _run(command, "The packages cannot be locked", cwd=tools)


def install(version: str, packages: Path, lock: Path) -> None:
    """Install the wheel of *version* into the folder *packages*, with the hashes that *lock* has.

    Raises:
        CannotRun: it cannot be had, or has another hash.
    """
    own = re.search(rf"(?ms)^xllamacpp=={re.escape(version)}.*?(?=^\S|\Z)", lock.read_text())
    if own is None:
        raise CannotRun(f"{lock} does not name xllamacpp {version}.", next_step="git status")
    only = packages / "xllamacpp.txt"
    only.write_text(re.sub(r"(?m)^ +#.*\n?", "", own[0]))
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--require-hashes", "--no-compile"]
    _run([*pip, "--target", str(packages), "-r", str(only)], f"xllamacpp {version} cannot be installed")
    only.unlink()


def _run(command: list[str], otherwise: str, cwd: Path | None = None) -> str:
    try:
        done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=_LIMIT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CannotRun(f"{otherwise}: {error}.", next_step="Check the network") from None
    if done.returncode:
        last = (done.stderr.strip() or done.stdout.strip()).splitlines()[-1:] or ["no reason is given"]
        message = f"{otherwise}: {last[0]}."
        raise CannotRun(message, next_step="Check the network and pip's index: pip config list")
    return done.stdout
