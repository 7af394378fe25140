"""Finds the programs of the stack: which llama-server answers, which llama-swap stands in front of it.

What the operator has wins, in a fixed order: the variable, then PATH.  A variable that is set and wrong is an error,
never skipped.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sysconfig
from dataclasses import dataclass
from pathlib import Path

from corral.engine import embedded, llama_swap_build
from corral.engine.go_build import Say
from corral.errors import ProgramMissing, Refused

EMBEDDED = "corral-llama-server"
_VERSION_LIMIT_S = 30.0
_UNKNOWN = "unknown"
_NO_BUILD = re.compile(r"\b0 \(unknown\)|build 0\b")


@dataclass(frozen=True)
class Engine:
    """The llama-server to run.

    Attributes:
        path: an absolute path to an executable.
        origin: ``LLAMA_SERVER``, ``PATH`` or ``embedded``.
        build: what it says of itself; "unknown" when its packager left that out.
    """

    path: Path
    origin: str
    build: str


@dataclass(frozen=True)
class Supervisor:
    """The llama-swap to run.

    Attributes:
        path: an absolute path to an executable; it does not exist yet when *origin* is ``to be built``.
        origin: ``LLAMA_SWAP``, ``PATH``, ``cache`` or ``to be built``.
        version: what it says of itself, or what would be built.
    """

    path: Path
    origin: str
    version: str


def llama_server() -> Engine:
    """The llama-server of this machine: ``LLAMA_SERVER=``, then PATH, then the embedded engine.

    Raises:
        Refused: ``LLAMA_SERVER`` does not name a program that starts.
        ProgramMissing: the one on PATH does not start, or there is none and the embedded engine cannot run here.
    """
    path, origin = find_llama_server()
    if origin == "embedded":
        return Engine(path, origin, f"{embedded.LLAMA_CPP_BUILD} (xllamacpp {embedded.WHEEL_VERSION})")
    return Engine(path, origin, _llama_cpp_build(_version_text(path, "--version", origin)))


def find_llama_server() -> tuple[Path, str]:
    """Where the llama-server of this machine is, and its origin; as ``llama_server``, but starts nothing.

    Raises:
        Refused: ``LLAMA_SERVER`` does not name a program.
        ProgramMissing: there is none, and the embedded engine cannot run here.
    """
    if own := _own("LLAMA_SERVER", "llama-server"):
        return own
    embedded.require_available()
    path = Path(sysconfig.get_path("scripts")) / EMBEDDED
    if not _is_program(path):
        raise ProgramMissing(f"The embedded engine's command is missing: {path}.", next_step="make setup")
    return path, "embedded"


def llama_swap(say: Say = lambda _: None) -> Path:
    """The llama-swap of this machine: ``LLAMA_SWAP=``, then PATH, then the user's cache; built there when missing.

    Args:
        say: told before anything that takes long (a build: about a minute).

    Raises:
        Refused: ``LLAMA_SWAP`` does not name a program that starts.
        ProgramMissing: the one on PATH does not start, or none could be built; the message says why.
    """
    found = find_llama_swap()
    return llama_swap_build.build(say) if found.origin == "to be built" else found.path


def find_llama_swap() -> Supervisor:
    """As ``llama_swap``, but builds nothing.

    Raises:
        Refused, ProgramMissing: as ``llama_swap``.
    """
    if own := _own("LLAMA_SWAP", "llama-swap"):
        path, origin = own
        return Supervisor(path, origin, _first_line(_version_text(path, "-version", origin)))
    path = llama_swap_build.cached_path()
    origin = "cache" if _is_program(path) else "to be built"
    return Supervisor(path, origin, llama_swap_build.pinned_version())


def _own(variable: str, name: str) -> tuple[Path, str] | None:
    """The operator's program and whether *variable* or PATH named it; None when they have none."""
    named = os.environ.get(variable)
    if named:  # `LLAMA_SERVER= corral up` asks for the default
        path = Path(named).expanduser().absolute()
        if not _is_program(path):
            what = "is not executable" if path.is_file() else "is a folder" if path.is_dir() else "does not exist"
            raise Refused(
                f"{variable} names {named}, which {what}.", next_step=f"Correct it, or take it away: unset {variable}"
            )
        return path, variable
    found = shutil.which(name)
    return (Path(found).absolute(), "PATH") if found else None


def _version_text(path: Path, flag: str, origin: str) -> str:
    """What *path* prints about its version; proves that it starts (a missing shared library shows here)."""
    problem = ""
    try:
        done = subprocess.run(
            [path, flag], capture_output=True, text=True, errors="replace", check=False, timeout=_VERSION_LIMIT_S
        )
        said = f"{done.stdout}\n{done.stderr}".strip()
        if done.returncode == 0:
            return said
        problem = f"exit code {done.returncode}: {said or 'it says nothing'}"
    except subprocess.TimeoutExpired:
        problem = f"no answer in {_VERSION_LIMIT_S:.0f} s"
    except OSError as error:
        problem = str(error.strerror)
    message = f"{path} (from {origin}) does not start. {flag}: {problem}"
    if origin == "PATH":
        raise ProgramMissing(message, next_step=f"Repair it, or take it off PATH: {path}")
    raise Refused(message, next_step=f"Correct it, or take it away: unset {origin}")


def _llama_cpp_build(said: str) -> str:
    """``version: 6789 (abcdef)`` → ``6789 (abcdef)``; packagers who leave the numbers out get "unknown"."""
    match = re.search(r"^version:\s*(.+)$", said, re.MULTILINE)
    if match is None or _NO_BUILD.search(match[1]):
        return _UNKNOWN
    return match[1].strip()


def _first_line(said: str) -> str:
    return said.splitlines()[0].removeprefix("version:").strip() if said else _UNKNOWN


def _is_program(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)
