"""Why an engine, or the preflight before it, ended, by its own lines: sorted into reasons.

The texts are llama.cpp's own (common/arg.cpp, ggml/src/gguf.cpp, src/llama-model-loader.cpp, ggml-cuda.cu,
tools/server/server-http.cpp); the tests produce each one that a machine without a GPU can be made to say.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from corral.engine import preflight_line
from corral.engine.preflight_line import Record
from corral.why.answer import Reason

_LEVEL = re.compile(r"^\d+\.\d+\.\d+\.\d+ ([A-Z]) ")
_START = re.compile(r"^.*\binit: initializing|^build: ", re.MULTILINE)
_REFUSALS = {"no-room": Reason.OUT_OF_MEMORY, "no-engine": Reason.ENGINE_MISSING, "usage": Reason.BAD_ARGUMENT}

_TEXTS: tuple[tuple[Reason, re.Pattern[str]], ...] = tuple(
    (reason, re.compile(text, re.IGNORECASE))
    for reason, text in (
        (Reason.BAD_ARGUMENT, r"^error: invalid argument: (?P<culprit>.+)"),
        (Reason.BAD_ARGUMENT, r'^error while handling (?:argument|environment variable) "(?P<culprit>[^"]+)"'),
        (Reason.BAD_ARGUMENT, r"(?P<culprit>quantized V cache) requires flash_attn"),
        (Reason.BAD_ARGUMENT, r"mismatch between text model .* and (?P<culprit>mmproj)"),
        (Reason.PORT_IN_USE, r"couldn't bind HTTP server socket, hostname: \S+, port: (?P<culprit>\d+)"),
        (Reason.OUT_OF_MEMORY, r"(?P<culprit>cuda)(?:Malloc failed| error): out of memory"),
        (Reason.OUT_OF_MEMORY, r"failed to allocate (?P<culprit>\w+) buffer"),
        (Reason.OUT_OF_MEMORY, r"(?:unable|failed) to allocate .*buffer|insufficient memory|std::bad_alloc"),
        (Reason.FILE_MISSING, r"failed to open (?:GGUF file )?'(?P<culprit>[^']+)'"),
        (Reason.FILE_DAMAGED, r"gguf_init_from_\w+: (?!failed to open)"),
        (Reason.FILE_DAMAGED, r"data is not within the file bounds|model is corrupted or incomplete"),
        (Reason.FILE_DAMAGED, r"unexpectedly reached end of file|tensor .* has invalid"),
    )
)
_FILE = re.compile(r"(?:failed to load (?:multimodal |CLIP )?model(?: from)?,? '?)(?P<path>/[^'\n]+?)'?(?:\. Does.*)?$")


@dataclass(frozen=True)
class Said:
    """The telling line of an engine.

    Attributes:
        reason: what it means; ``unknown`` when the line says nothing that is known.
        culprit: the flag, the port, the file or the program that it names; may be empty.
        line: without the engine's date; of a preflight that refused, in corral's words; empty when there is none.
        refusal: the records of the preflight, when it refused.
    """

    reason: Reason
    culprit: str = ""
    line: str = ""
    refusal: tuple[Record, ...] = ()


def last_start(log: str) -> str:
    """The part of *log* that belongs to the engine's last start."""
    # An engine's own first line follows the preflight's.
    starts = preflight_line.decisions(log) or [match.start() for match in _START.finditer(log)]
    return log[(starts or [0])[-1] :]


def understand(words: str) -> Said:
    """What *words*, an engine's from its last start on, say about why it ended."""
    if refused := preflight_line.refusal(words):
        culprit = "the preflight's arguments" if refused[0].code == "usage" else refused[0].program
        return Said(_REFUSALS[refused[0].code], culprit, preflight_line.sentence(refused), refused)
    lines = [_LEVEL.sub("", line).strip() for line in words.splitlines() if not _is_routine(line)]
    for reason, text in _TEXTS:
        for line in lines:
            if match := text.search(line):
                culprit = match.groupdict().get("culprit") or ""
                if reason is Reason.FILE_DAMAGED:
                    culprit = _named_file(lines)
                return Said(reason, culprit, line)
    return Said(Reason.UNKNOWN, line=_telling(words))


def _is_routine(line: str) -> bool:
    return (level := _LEVEL.match(line)) is not None and level[1] in "DI"


def _named_file(lines: list[str]) -> str:
    """The file that the engine says it could not load."""
    return next((match["path"] for line in lines if (match := _FILE.search(line))), "")


def _telling(words: str) -> str:
    """The first line that the engine itself calls an error; else its last line; the preflight's are none of its."""
    lines = [line for line in words.splitlines() if line.strip() and not preflight_line.parse(line)]
    errors = [line for line in lines if (level := _LEVEL.match(line)) and level[1] == "E"]
    asserts = [line for line in lines if "GGML_ASSERT" in line or "GGML_ABORT" in line or "terminate called" in line]
    return _LEVEL.sub("", next(iter(asserts + errors + lines[-1:]), "")).strip()
