"""What llama-server would take with a command line, in bytes, from the engine itself.

The embedded engine runs in a process of its own (``corral.vram.oracle_child``), over files that have the model's header
and a hole where its weights are: neither weights nor GPU are needed.  One process computes all command lines of a
model, in milliseconds each.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import TypeAdapter

from corral.engine import embedded, log_lines
from corral.engine.embedded import ENGINE
from corral.errors import CannotRun, EngineCannotPredict, ProgramMissing
from corral.vram import server_flags
from corral.vram.gguf_header import GgufHeader, canonical, expand
from corral.vram.prediction import Bytes

__all__ = ["ENGINE", "Breakdown", "ask"]

DECLARE = 'or state there what it takes: vram: {declared_mib: N, why: "…"}'
"""The way out when the engine cannot predict."""

_CHILD = ("-I", "-m", "corral.vram.oracle_child")
_LIMIT_S = 120.0
_SHARD = "-00001-of-"


@dataclass(frozen=True)
class Breakdown:
    """What one command line takes.

    Attributes:
        gpu: on the card; all 0 without one.
        host: in host memory.
        context_trained: tokens that the model was trained for.
        ubatch: tokens that are computed at once (``--ubatch-size``).
        image_tokens: most tokens that one image may take; None without a projector, or when all images are alike.
        projector_growth: further bytes on the card for an image of that many tokens, beyond ``gpu.projector``.
        image_batch: tokens of images that are encoded at once, where the projector does that.
        f16_copies: bytes of the f16 copies of K and V that CUDA makes for one layer; 0 when the cache is f16.
        cuda: ``gpu`` with the alignment and padding of CUDA's buffers and those copies; None where not computed.
    """

    gpu: Bytes
    host: Bytes
    context_trained: int
    ubatch: int
    image_tokens: int | None
    projector_growth: int
    image_batch: int
    f16_copies: int
    cuda: Bytes | None


_BREAKDOWN = TypeAdapter(Breakdown)


def ask(
    headers: Sequence[GgufHeader | bytes],
    argvs: Sequence[Sequence[str]],
    *,
    gpu: bool = True,
    at_least: int | None = None,
    cuda: Literal["first", "all"] = "first",
) -> list[Breakdown]:
    """The engine's count for every one of *argvs*.

    Args:
        headers: of the files that they name: shards in order, the projector last when there is one.
        argvs: llama-server command lines of one model as the lock has them; ``llama-server`` itself may be left out.
        gpu: with a card; without one, everything is on the host.
        at_least: how many of the first ones must have a count; the rest may be missing at the end.  All when None.
        cuda: which of them have ``Breakdown.cuda`` too; all where the KV cache is not f16.

    Raises:
        EngineCannotPredict: the engine does not take the model or a command line, a flag takes memory that is not
            counted, or the engine's answer has another layout.
        ProgramMissing: the embedded engine is not installed.
        CannotRun: there is no room for temporary files.
    """
    embedded.require_available()
    for argv in argvs:
        if reason := server_flags.uncounted(argv):
            raise _cannot(argv, reason)
    different = list(dict.fromkeys(tuple(argv) for argv in argvs))
    try:
        with tempfile.TemporaryDirectory(prefix="corral-vram-") as folder:
            job = {"gpu": gpu, "cuda": cuda, "argvs": [_fill(argv, headers, Path(folder)) for argv in different]}
            answers, reason = _ask(job, Path(folder))
    except OSError as error:
        message = f"The model's header could not be written for the engine: {error}."
        raise CannotRun(message, next_step="Name a folder that takes sparse files: TMPDIR=/path") from None
    answered = dict(zip(different, map(_BREAKDOWN.validate_python, answers), strict=False))
    found = [answered[tuple(argv)] for argv in itertools.takewhile(lambda one: tuple(one) in answered, argvs)]
    if len(found) < (len(argvs) if at_least is None else at_least):
        raise _cannot(argvs[len(found)], reason)
    return found


def _fill(argv: Sequence[str], headers: Sequence[GgufHeader | bytes], folder: Path) -> list[str]:
    """*argv* without its first word, its files in *folder*, and without flags that only concern other files."""
    words = server_flags.without_side_effects(argv)
    if words[:1] == ["llama-server"]:
        del words[0]
    fixtures = list(headers)
    for flags, is_projector in ((("--mmproj", "-mm"), True), (("-m", "--model"), False)):
        at = next((place + 1 for place, word in enumerate(words[:-1]) if word in flags), None)
        if at is None:
            continue
        if not fixtures:
            raise _cannot(argv, f"there is no header for {words[at]}")
        taken = [fixtures.pop()] if is_projector else fixtures
        words[at] = _place(taken, Path(words[at]).name, folder / ("projector" if is_projector else "model"))
    return [word.replace("${STORE}", str(folder)).replace("${PORT}", "8080") for word in words]


def _place(headers: Sequence[GgufHeader | bytes], name: str, folder: Path) -> str:
    """Write sparse files for *headers* into *folder*; the path of the first."""
    first = folder / name
    if folder.exists():
        return str(first)
    folder.mkdir()
    for number, header in enumerate(headers, start=1):
        path = first if number == 1 else folder / name.replace(_SHARD, f"-{number:05}-of-")
        expand(header if isinstance(header, bytes) else canonical(header), path)
    return str(first)


def _ask(job: Mapping[str, Any], folder: Path) -> tuple[list[dict[str, Any]], str]:
    """The child's answers, and why there are no more of them."""
    try:
        done = subprocess.run(
            [sys.executable, *_CHILD],
            input=json.dumps(job),
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_LIMIT_S,
            cwd=folder,
            env=_environment(folder),
            check=False,
        )
    except subprocess.TimeoutExpired:
        return [], f"the engine had not answered after {_LIMIT_S:.0f} s"
    answers: list[dict[str, Any]] = []
    for line in done.stdout.splitlines():
        answer = json.loads(line)
        if "missing" in answer:
            raise ProgramMissing(answer["missing"], next_step=answer["next_step"])
        if "layout" in answer:
            return answers, f"what the engine answered is not laid out as in {ENGINE} ({answer['layout']})"
        if "refusal" in answer:
            return answers, f"{answer['refusal']}{_stated_cause(done.stderr, folder)}"
        answers.append(answer)
    return answers, f"the engine {_ending(done.returncode)}{_stated_cause(done.stderr, folder)}"


def _environment(folder: Path) -> dict[str, str]:
    """Almost nothing of the caller's: llama.cpp reads ``LLAMA_ARG_*``, ``GGML_*`` and a config.ini from it."""
    kept = {name: os.environ[name] for name in ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH") if name in os.environ}
    own = dict.fromkeys(("HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "TMPDIR"), str(folder))
    return {**kept, **own, "PATH": os.defpath, "LC_ALL": "C.UTF-8", "GGML_NO_BACKTRACE": "1"}


def _ending(status: int) -> str:
    if status < 0:
        return f"was ended by {signal.Signals(-status).name}"
    return f"ended with exit code {status}" if status else "stopped answering"


def _stated_cause(stderr: str, folder: Path) -> str:
    """The cause that the engine states, without our own paths."""
    stated = " / ".join(log_lines.stated_errors(stderr.replace(f"{folder}/", ""))[:2])
    return f": {stated}" if stated else ""


def _cannot(argv: Sequence[str], reason: str) -> EngineCannotPredict:
    name = next((argv[place + 1] for place, word in enumerate(argv[:-1]) if word in ("-m", "--model")), "the model")
    message = f"The engine cannot predict {name.removeprefix('${STORE}/')}: {reason.rstrip('.')}."
    return EngineCannotPredict(message, next_step=f"Correct its YAML file, {DECLARE}")
