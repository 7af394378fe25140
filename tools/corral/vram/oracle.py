"""What llama-server would take with a command line, in bytes, from the engine itself.

The embedded engine runs in a confined process of its own (``corral.vram.oracle_child``), over files that have the
model's header and a hole where its weights are: neither weights nor GPU are needed.  One process computes all command
lines of a model, in milliseconds each.
"""

from __future__ import annotations

import itertools
import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from corral.agent.hub_policy import printable
from corral.engine import embedded, log_lines
from corral.engine.embedded import ENGINE
from corral.errors import CannotRun, EngineCannotPredict, ProgramMissing
from corral.vram import parts, server_flags
from corral.vram.confined import Confined, Limits
from corral.vram.gguf_header import GgufHeader, canonical, expand
from corral.vram.prediction import Bytes

__all__ = ["ENGINE", "Breakdown", "ask"]

DECLARE = 'or state there what it takes: vram: {declared_mib: N, why: "…"}'
"""The way out when the engine cannot predict."""

LIMITS: Final = Limits(memory=8 << 30, processor_s=60, answer_s=120.0)
"""For all command lines of a model.  The golden ones take up to 0.4 GiB of address space and 2 s; recurrent state on
the host, which llama.cpp really allocates, takes 3.1 GiB and 9 s for 16 slots of Qwen3.6-27B."""

_PROGRAM = "from corral.vram.oracle_child import main; main()"
_MOST_ANSWERED = 1 << 20
_MOST_LOGGED = 64 << 10
_LONGEST_REASON = 600
_MOST_COUNTED = 1 << 60
_SHARD = "-00001-of-"


def _plausible(side: Bytes) -> Bytes:
    if side.total > _MOST_COUNTED:
        raise ValueError(side.total)
    return side


_Count = Annotated[int, Field(ge=0, le=_MOST_COUNTED)]
_Side = Annotated[Bytes, AfterValidator(_plausible)]


@dataclass(frozen=True)
class Breakdown:
    """What one command line takes.

    Attributes:
        gpu: on the card; all 0 without one.
        host: in host memory.
        context_trained: tokens that the model was trained for.
        ubatch: tokens that are computed at once (``--ubatch-size``).
        image_tokens: most tokens that one image may take; None without a projector, or when all images are alike.
        projector_growth: further bytes on the card for an image of that many tokens, beyond ``gpu.projector``;
            None where this build does not state them.
        image_batch: tokens of images that are encoded at once, where the projector does that.
        f16_copies: bytes of the f16 copies of K and V that CUDA makes for one layer; 0 when the cache is f16.
        cuda: ``gpu`` with the alignment and padding of CUDA's buffers and those copies; None where not computed.
    """

    gpu: _Side
    host: _Side
    context_trained: _Count
    ubatch: _Count
    image_tokens: _Count | None
    projector_growth: _Count | None
    image_batch: _Count
    f16_copies: _Count
    cuda: _Side | None

    __pydantic_config__ = ConfigDict(extra="forbid")


class _End(BaseModel):
    """The last line of the process, when it does not answer all."""

    model_config = ConfigDict(extra="forbid")

    cause: Literal["refusal", "layout", "missing"]
    text: str
    next_step: str = ""


_LINE: TypeAdapter[Breakdown | _End] = TypeAdapter(Breakdown | _End)


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
        headers: of the files that they name: shards in order, then draft model, adapters, projector, where there are.
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
    answered = dict(zip(different, answers, strict=False))
    found = [answered[tuple(argv)] for argv in itertools.takewhile(lambda one: tuple(one) in answered, argvs)]
    if len(found) < (len(argvs) if at_least is None else at_least):
        raise _cannot(argvs[len(found)], reason)
    return found


def _fill(argv: Sequence[str], headers: Sequence[GgufHeader | bytes], folder: Path) -> list[str]:
    """*argv* without its first word, its files in *folder*, and without flags that only concern other files."""
    words = server_flags.without_side_effects(argv)
    if words[:1] == ["llama-server"]:
        del words[0]
    own = parts.of(headers, words)
    adapters = iter(own.adapters)
    filled: list[str] = []

    def put(kind: str, taken: Sequence[GgufHeader | bytes | None], name: str) -> str:
        if not taken or None in taken:
            raise _cannot(argv, f"there is no header for {name}")
        return _place([one for one in taken if one is not None], Path(name).name, folder / kind)

    for flag, found in server_flags.by_flag(words):
        match flag:
            case "model":
                found[1] = put("model", own.model, found[1])
            case "mmproj":
                found[1] = put("projector", [own.projector], found[1])
            case parts.DRAFT:
                found[1] = put("draft", [own.draft], found[1])
            case "lora" | "lora-scaled":
                for path in parts.paths(found[1]):
                    found[1] = found[1].replace(path, put("adapters", [next(adapters, None)], path))
            case _:
                pass
        filled += found
    return [word.replace("${STORE}", str(folder)).replace("${PORT}", "8080") for word in filled]


def _place(headers: Sequence[GgufHeader | bytes], name: str, folder: Path) -> str:
    """Write sparse files for *headers* into *folder*; the path of the first."""
    first = folder / name
    if first.exists():
        return str(first)
    folder.mkdir(exist_ok=True)
    for number, header in enumerate(headers, start=1):
        path = first if number == 1 else folder / name.replace(_SHARD, f"-{number:05}-of-")
        expand(header if isinstance(header, bytes) else canonical(header), path)
    return str(first)


def _ask(job: Mapping[str, Any], folder: Path) -> tuple[list[Breakdown], str]:
    """The process's answers, and why there are no more of them."""
    answers: list[Breakdown] = []
    with (
        tempfile.TemporaryFile() as log,
        Confined(_PROGRAM, LIMITS, packages=True, folder=folder, log=log) as process,
    ):
        try:
            process.send(json.dumps(job).encode())
            process.no_more()
            lines = process.receive_all(_MOST_ANSWERED).splitlines()
        except TimeoutError:
            return [], f"the engine had not answered after {LIMITS.answer_s:g} s"
        log.seek(0)
        cause = _stated_cause(log.read(_MOST_LOGGED).decode(errors="replace"), folder)
        for line in lines:
            try:
                answer = _LINE.validate_json(line, strict=True)
            except ValidationError:
                return answers, f"the engine sent what is no answer{cause}"
            if isinstance(answer, Breakdown):
                answers.append(answer)
            elif answer.cause == "missing":
                raise ProgramMissing(printable(answer.text), next_step=printable(answer.next_step))
            elif answer.cause == "layout":
                return answers, f"what the engine answered is not laid out as in {ENGINE} ({answer.text})"
            else:
                return answers, f"{answer.text}{cause}"
        return answers, f"the engine {process.ending().text}{cause}"


def _stated_cause(stderr: str, folder: Path) -> str:
    """The cause that the engine states, without our own paths."""
    stated = " / ".join(log_lines.stated_errors(stderr.replace(f"{folder}/", ""))[:2])
    return f": {stated}" if stated else ""


def _cannot(argv: Sequence[str], reason: str) -> EngineCannotPredict:
    name = next((argv[place + 1] for place, word in enumerate(argv[:-1]) if word in ("-m", "--model")), "the model")
    shown = printable(reason.rstrip("."), _LONGEST_REASON)  # the engine quotes the header
    message = f"The engine cannot predict {name.removeprefix('${STORE}/')}: {shown}."
    return EngineCannotPredict(message, next_step=f"Correct its YAML file, {DECLARE}")
