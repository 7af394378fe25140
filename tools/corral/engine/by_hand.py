"""One model's engine by hand: the command line of the lock for a terminal, a debugger or a browser, without llama-swap.

The words are the lock's; only the store and the port are filled in.  llama-cli gets those of them that it knows, by its
own ``--help``: what a server alone has (its port, its metrics) is left out.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from corral.engine import environment, flag_help
from corral.engine.binaries import find_llama_server
from corral.errors import CannotRun, ProgramMissing
from corral.paths import REPOSITORY

PORT = 8081
"""The default port, beside that of the front door."""
PREFLIGHT = REPOSITORY / "terraform" / "modules" / "llama-swap-config" / "preflight.sh"

_CLI = "llama-cli"
_HELP_LIMIT_S = 30.0
_ERRORS = "1"  # the verbosity of llama.cpp that logs nothing else
_NO_CARD = {"LLAMA_ARG_DEVICE": "none", "LLAMA_ARG_MMPROJ_OFFLOAD": "0"}  # as modules/llama-swap-config sets them


@dataclass(frozen=True)
class ByHand:
    """A program to become: its words, and its whole environment."""

    words: tuple[str, ...]
    variables: Mapping[str, str]


def server(argv: Sequence[str], store: Path, port: int, *, verbose: bool = False, on_cpu: bool = False) -> ByHand:
    """llama-server with the locked *argv* on *port*.

    Without a key every page of a browser could send it requests: its answers name no other origin than this machine.

    Args:
        argv: of the lock, with ``${STORE}`` and ``${PORT}``.
        store: for ``${STORE}``.
        port: of 127.0.0.1.
        verbose: it logs everything that it can, parts of requests too.
        on_cpu: it gets no card, as ``apple.on_cpu`` has it.

    Raises:
        Refused, ProgramMissing: as ``binaries.find_llama_server`` and ``environment.of_engine``.
    """
    program, _ = find_llama_server()
    words = _filled(argv[1:], store, str(port))
    return ByHand((str(program), *words, *_more(verbose=verbose)), _environment(on_cpu=on_cpu))


def cli(argv: Sequence[str], store: Path, *, verbose: bool = False, on_cpu: bool = False) -> ByHand:
    """llama-cli of the same build as ``server``, for questions in a terminal; the arguments are those.

    Raises:
        ProgramMissing: there is none beside the operator's llama-server and on PATH, or it does not print its flags.
        Refused: as ``server``.
    """
    variables = _environment(on_cpu=on_cpu)
    if not verbose:
        variables["LLAMA_ARG_LOG_VERBOSITY"] = _ERRORS
    server_program, origin = find_llama_server()
    words = _filled(argv[1:], store, "0")
    if origin == "embedded":
        program = [sys.executable, "-m", "corral.engine.llama_cli"]
        return ByHand((*program, *words, *_more(verbose=verbose)), variables)
    found = _beside(server_program) or shutil.which(_CLI)
    if found is None:
        step = f"Put the {_CLI} of the same build there; without --cli the server runs: corral engine run MODEL"
        raise ProgramMissing(f"There is no {_CLI} beside {server_program}, and none on PATH.", next_step=step)
    known = _known_flags(found, variables)
    return ByHand((found, *of_flags(words, known), *_more(verbose=verbose)), variables)


def of_flags(words: Sequence[str], known: Collection[str]) -> list[str]:
    """Those of *words* that belong to a flag of *known* (``-c``, ``--ctx-size``), with the values of these."""
    kept, keeps = [], True
    for word in words:
        if word.startswith("-") and word[1:2] not in "0123456789":
            keeps = word in known
        if keeps:
            kept.append(word)
    return kept


def guarded(program: ByHand, model: str, need_mib: int) -> ByHand:
    """*program* behind the preflight of *model*, which ends it where the card has no room for *need_mib*."""
    words = (str(PREFLIGHT), "--model", model, "--need-mib", str(need_mib), "--", *program.words)
    variables = dict(program.variables)
    if find_llama_server()[1] == "embedded":
        variables.setdefault("CORRAL_VRAM_SOURCE", "echo the embedded engine uses no NVIDIA card")
    return ByHand(words, variables)


def become(program: ByHand) -> None:
    """Replace this process with *program*, so that signals and the exit code are its own; never returns.

    Raises:
        CannotRun: it cannot be started.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        os.execvpe(program.words[0], program.words, program.variables)  # noqa: S606 - no shell
    except OSError as error:
        raise CannotRun(f"{program.words[0]} cannot be started: {error.strerror}.", next_step="corral engine") from None


def _filled(words: Sequence[str], store: Path, port: str) -> list[str]:
    return [word.replace("${STORE}", str(store)).replace("${PORT}", port) for word in words]


def _more(*, verbose: bool) -> list[str]:
    return ["--verbose"] if verbose else []


def _environment(*, on_cpu: bool) -> dict[str, str]:
    fixed = {"GGML_NO_BACKTRACE": "1", "LLAMA_ARG_CORS_ORIGINS": "localhost"}
    return environment.of_engine(**fixed, **(_NO_CARD if on_cpu else {}))


def _beside(server_program: Path) -> str | None:
    found = server_program.resolve().with_name(_CLI)
    return str(found) if os.access(found, os.X_OK) else None


def _known_flags(program: str, variables: Mapping[str, str]) -> frozenset[str]:
    """Every spelling of the flags of *program*, by its own ``--help``."""
    try:
        command = [program, "--help"]
        done = subprocess.run(
            command, env=variables, capture_output=True, text=True, errors="replace", check=True, timeout=_HELP_LIMIT_S
        )
        flags = flag_help.parse(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        raise ProgramMissing(f"{program} does not print its flags: {error}", next_step=f"{program} --help") from None
    long = {f"--{name}" for flag in flags for name in (*flag["names"], *flag["negated"])}
    return frozenset(long | {f"-{name}" for flag in flags for name in flag["short"]})
