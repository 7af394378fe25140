"""The lines of llama.cpp's and llama-swap's logs that corral understands: no other module knows their texts.

The texts are those of the versions below (llama.cpp: common/arg.cpp, ggml/src/gguf.cpp, src/llama-model-loader.cpp,
ggml-cuda.cu, tools/server/server-http.cpp; llama-swap: internal/process/process_command.go, internal/router).  A test
compares the versions with the pinned ones, so that an upgrade begins with reading these lines again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from corral.engine import preflight_line
from corral.engine.preflight_line import Record

LLAMA_CPP = "b11549"
LLAMA_SWAP = "v0.1.6-0.20260708034905-fdda55e46644"

# -- an engine's log ------------------------------------------------------------------------------------------

_LEVEL = re.compile(r"^\d+\.\d+\.\d+\.\d+ ([A-Z]) ")  # minutes.seconds.milliseconds.microseconds
_START = re.compile(r"^.*\binit: initializing|^build: ", re.MULTILINE)
_SPANS_LINES = "chat template, example_format:"  # the only entry of a load whose text has line breaks
_ABORT = re.compile(r"GGML_ASSERT|GGML_ABORT|terminate called")
_ERROR_WORD = re.compile(r"error|failed", re.IGNORECASE)


class EngineCode(StrEnum):
    """Why an engine ended, by its own log."""

    OUT_OF_MEMORY = "out-of-memory"
    ENGINE_MISSING = "engine-missing"
    BAD_ARGUMENT = "bad-argument"
    PORT_IN_USE = "port-in-use"
    FILE_MISSING = "file-missing"
    FILE_DAMAGED = "file-damaged"
    OTHER = "other"
    NO_ERROR = "no-error"


@dataclass(frozen=True)
class EngineError:
    """Why an engine ended; a field that does not belong to the code is empty.

    Attributes:
        code: ``other``: an error without a code of its own; ``no-error``: the log has none, so it did not end by
            itself.
        subject: the argument, the path or the program.
        port: that it could not listen on.
        on_host: the memory that ran out is the machine's and not a card's.
        line: the line that was understood, without date and level; of a preflight, a sentence made of its records.
        refusal: the records of the preflight, when that refused to start the engine.
    """

    code: EngineCode
    subject: str = ""
    port: int = 0
    on_host: bool = False
    line: str = ""
    refusal: tuple[Record, ...] = ()

    @property
    def decides(self) -> bool:
        """Whether its code states a cause."""
        return self.code not in (EngineCode.OTHER, EngineCode.NO_ERROR)


_REFUSALS = {
    "no-room": EngineCode.OUT_OF_MEMORY,
    "no-engine": EngineCode.ENGINE_MISSING,
    "usage": EngineCode.BAD_ARGUMENT,
}
_ERRORS: tuple[tuple[EngineCode, re.Pattern[str]], ...] = tuple(
    (code, re.compile(text, re.IGNORECASE))
    for code, text in (
        (EngineCode.BAD_ARGUMENT, r"^error: invalid argument: (?P<subject>.+)"),
        (EngineCode.BAD_ARGUMENT, r'^error while handling (?:argument|environment variable) "(?P<subject>[^"]+)"'),
        (EngineCode.BAD_ARGUMENT, r"(?P<subject>quantized V cache) requires flash_attn"),
        (EngineCode.BAD_ARGUMENT, r"mismatch between text model .* and (?P<subject>mmproj)"),
        (EngineCode.PORT_IN_USE, r"couldn't bind HTTP server socket, hostname: \S+, port: (?P<port>\d+)"),
        (EngineCode.OUT_OF_MEMORY, r"(?P<buffer>cuda)(?:Malloc failed| error): out of memory"),
        (EngineCode.OUT_OF_MEMORY, r"failed to allocate (?P<buffer>\w+) buffer"),
        (EngineCode.OUT_OF_MEMORY, r"(?:unable|failed) to allocate .*buffer|insufficient memory|std::bad_alloc"),
        (EngineCode.FILE_MISSING, r"failed to open (?:GGUF file )?'(?P<subject>[^']+)'"),
        (EngineCode.FILE_DAMAGED, r"gguf_init_from_\w+: (?!failed to open)"),
        (EngineCode.FILE_DAMAGED, r"data is not within the file bounds|model is corrupted or incomplete"),
        (EngineCode.FILE_DAMAGED, r"unexpectedly reached end of file|tensor .* has invalid"),
    )
)
_FILE = re.compile(r"(?:failed to load (?:multimodal |CLIP )?model(?: from)?,? '?)(?P<path>/[^'\n]+?)'?(?:\. Does.*)?$")


def last_start(log: str) -> str:
    """The part of *log* that belongs to the engine's last start; its own first line follows the preflight's."""
    starts = preflight_line.decisions(log) or [found.start() for found in _START.finditer(log)]
    return log[(starts or [0])[-1] :]


def classify_engine_error(log: str) -> EngineError:
    """Why the engine ended whose *log* this is, from its last start on (``last_start``)."""
    if refused := preflight_line.refusal(log):
        subject = "the preflight's arguments" if refused[0].code == "usage" else refused[0].program
        sentence = preflight_line.sentence(refused)
        return EngineError(_REFUSALS[refused[0].code], subject, line=sentence, refusal=refused)
    lines = [line for line in log.splitlines() if line.strip() and not preflight_line.parse(line)]
    texts = [_text(line) for line in lines if _level(line) not in ("D", "I")]
    for code, pattern in _ERRORS:
        for text in texts:
            if found := pattern.search(text):
                fields = found.groupdict()
                subject = _named_file(texts) if code is EngineCode.FILE_DAMAGED else fields.get("subject") or ""
                memory = f"{fields.get('buffer') or ''} {text}".lower()
                on_host = code is EngineCode.OUT_OF_MEMORY and "cpu" in memory
                return EngineError(code, subject, int(fields.get("port") or 0), on_host, text)
    own = _own_error(lines)
    if not own and _is_engines(lines):
        return EngineError(EngineCode.NO_ERROR, line=_text(lines[-1]) if lines else "")
    return EngineError(EngineCode.OTHER, line=own or _text(lines[-1]))


def _level(line: str) -> str:
    return found[1] if (found := _LEVEL.match(line)) else ""


def _text(line: str) -> str:
    return _LEVEL.sub("", line, count=1).strip()


def _named_file(texts: list[str]) -> str:
    """The file that the engine could not load."""
    return next((found["path"] for text in texts if (found := _FILE.search(text))), "")


def _own_error(lines: list[str]) -> str:
    """The line in which the engine states that something is wrong: an abort, else the first error; else empty."""
    aborts = [line for line in lines if _ABORT.search(line)]
    errors = [line for line in lines if _level(line) in ("E", "F") or (not _level(line) and _ERROR_WORD.search(line))]
    return _text(next(iter(aborts + errors), ""))


def _is_engines(lines: list[str]) -> bool:
    """Whether *lines* end with an entry of an engine, and not with words of another program; so do none at all."""
    last = next((line for line in reversed(lines) if _level(line)), "")
    return not lines or (bool(last) and (last is lines[-1] or _SPANS_LINES in last))


def cause(log: str) -> str:
    """The line that says best why the engine of *log* ended, at its last start; empty when it states no error."""
    error = classify_engine_error(last_start(log))
    return "" if error.code is EngineCode.NO_ERROR else error.line


# -- an engine's memory ---------------------------------------------------------------------------------------

_MIB = 1 << 20
_LOADED = re.compile(r"\binit: model loaded|main: model loaded")
_CONTEXT = re.compile(r"llama_context: constructing")
_BUFFER = re.compile(r"(?P<by>\w+):\s+(?P<kind>\S+) +(?P<use>\S.*?) buffer size = *(?P<mib>\d+\.\d+) MiB")
_PROJECTOR_DEVICE = re.compile(r"CLIP using (?P<device>\S+) backend")
_PROJECTOR_WEIGHTS = re.compile(r"load_hparams: model size: +(?P<mib>\d+\.\d+) MiB")
_FILE_SIZE = re.compile(r"print_info: file size += (?P<size>\d+\.\d+) (?P<unit>[MG])iB")
_DEVICE = re.compile(r" - (?P<device>\w+) *: (?P<name>.+) \(\d+ MiB, \d+ MiB free\)")

# Names of ggml's buffer types.  Pinned host memory is the host's: CUDA_Host, Vulkan_Host, …
_ON_HOST = re.compile(r"CPU(_\w+)?|AMX|BLAS|\w+_Host")
_ON_CARD = re.compile(r"(?P<device>(CUDA|ROCm|MUSA|Vulkan|SYCL|CANN|MTL|Metal|GPUOpenCL|OpenCL)\d*)(_\w+)?")


@dataclass(frozen=True)
class Buffer:
    """Memory that an engine took.

    Attributes:
        kind: ggml's buffer type, e.g. ``CUDA0``, ``CPU_Mapped``.
        use: ``model``, ``KV``, ``compute``, ``output``, ``projector weights``, …
        size: in bytes, rounded by the engine to 0.01 MiB.
    """

    kind: str
    use: str
    size: int

    @property
    def is_on_host(self) -> bool:
        """Whether it is memory of the machine."""
        return _ON_HOST.fullmatch(self.kind) is not None

    @property
    def is_mapped(self) -> bool:
        """Whether it is a part of the model's file."""
        return self.kind.endswith("_Mapped")

    @property
    def device(self) -> str:
        """The card's name in the engine (``CUDA0``); empty when it is not known to be a card's."""
        return found["device"] if (found := _ON_CARD.fullmatch(self.kind)) else ""


def whole_load(log: str) -> str:
    """The last load in *log*, from the start to "model loaded"; empty when either is not there."""
    starts = [found.start() for found in _START.finditer(log)]
    if not starts:
        return ""
    load = log[starts[-1] :]
    loaded = _LOADED.search(load)
    return load[: loaded.start()] if loaded else ""


def buffers(load: str) -> list[Buffer]:
    """The buffers that the engine took during *load* (``whole_load``) and kept.

    Each has a line, printed at verbosity 4 ("trace"); the projector names its weights in another form and its device
    on a line before.
    """
    found = []
    projector = "CPU"
    compute: dict[tuple[int, str, str], int] = {}  # a context that reserves again gives back what it had
    contexts = 0
    for line in load.splitlines():
        if _CONTEXT.search(line):
            contexts += 1
        elif device := _PROJECTOR_DEVICE.search(line):
            projector = device["device"]
        elif weights := _PROJECTOR_WEIGHTS.search(line):
            found.append(Buffer(projector, "projector weights", _bytes(weights["mib"])))
        elif one := _BUFFER.search(line):
            if one["use"] == "compute":
                compute[contexts, one["by"], one["kind"]] = _bytes(one["mib"])
            else:
                found.append(Buffer(one["kind"], one["use"], _bytes(one["mib"])))
    return found + [Buffer(kind, "compute", size) for (_, _, kind), size in compute.items()]


def file_size(load: str) -> int | None:
    """The size of the tensors in the model's file, in bytes; None when *load* does not have it."""
    found = _FILE_SIZE.search(load)
    return _bytes(found["size"]) * (1024 if found["unit"] == "G" else 1) if found else None


def device_names(load: str) -> dict[str, str]:
    """The driver's name of each device: ``CUDA0`` → ``Tesla T4``."""
    return {found["device"]: found["name"].strip() for found in _DEVICE.finditer(load)}


def _bytes(mib: str) -> int:
    return round(float(mib) * _MIB)


# -- the embedded engine's stderr, where it is asked for sizes ------------------------------------------------

_PREFIX = re.compile(r"^[0-9.]+ [A-Z] |^error loading model: ")
_WRONG = re.compile(r"error|fail|assert|unknown|invalid|wrong|missing", re.IGNORECASE)
_NOISE = re.compile(r"terminate called|what\(\)|llama_model_load_from_file_impl|std::\w+_error'?$|^\[New LWP")


def stated_errors(stderr: str) -> list[str]:
    """The lines of *stderr* that state what is wrong, each once; where none does, what else there is."""
    lines = [_PREFIX.sub("", line.strip()) for line in stderr.splitlines()]
    telling = [line for line in lines if line and not _NOISE.search(line)]
    wrong = [line for line in telling if _WRONG.search(line)]
    return list(dict.fromkeys(wrong or telling or lines))


# -- llama-swap's log -----------------------------------------------------------------------------------------

_DATE = re.compile(r"\d{4}[-/]\d\d[-/]\d\d[T ]")
_EVENT = re.compile(
    r"^(?:(?P<at>\d{4}-\d\d-\d\dT[\d:.]+\S+) \[[A-Z]+\] "
    r"(?:<(?P<ready>[^>]+)> Health check passed.*|\w+: running (?P<ended>\S+) exited: (?P<reason>.*)|.*)"
    r"|(?P<preflight>preflight: .*))$",
    re.MULTILINE,
)
_NO_PROGRAM = ("no such file", "permission denied", "not found")  # Go's texts of exec


class End(StrEnum):
    """How a model's process ended, by llama-swap's log."""

    EXITED = "exited"
    DIED = "died"
    TIMED_OUT = "timed out"
    NOT_STARTED = "not started"
    REQUESTED = "requested"


_ENDS = (
    (End.REQUESTED, re.compile(r"aborted$|shutdown$|shutting down$|model unloaded$")),
    (End.EXITED, re.compile("exited prematurely")),
    (End.DIED, re.compile("exited unexpectedly")),
    (End.TIMED_OUT, re.compile("health check timed out")),
    (End.NOT_STARTED, re.compile("failed to start command")),
)


@dataclass(frozen=True)
class Event:
    """Something that happened to a model.

    Attributes:
        kind: ``begun``: its preflight decided; ``ready``; ``ended``.
        model: its id.
        at: when, in seconds since 1970; of ``begun`` the date of the line before; 0 when there is none.
        start: where in the log it stands; an offset into the text.
        end: how it ended; ``exited`` also for a reason without a code of its own.
        reason: llama-swap's words for that.
        lacks_program: the program could not be executed.
    """

    kind: str
    model: str
    at: float
    start: int
    end: End = End.EXITED
    reason: str = ""
    lacks_program: bool = False


def events(log: str) -> Iterator[Event]:
    """What happened to the models, by the common *log* of the stack, oldest line first."""
    at = 0.0
    for found in _EVENT.finditer(log):
        if found["at"]:
            at = datetime.fromisoformat(found["at"]).timestamp()
        if found["preflight"]:
            record = preflight_line.parse(found["preflight"])
            if record and record.is_decision and record.model:
                yield Event("begun", record.model, at, found.start())
        elif found["ready"]:
            yield Event("ready", found["ready"], at, found.start())
        elif found["ended"]:
            reason = found["reason"].removeprefix(f"[{found['ended']}] ")
            end = next((end for end, pattern in _ENDS if pattern.search(reason)), End.EXITED)
            lacks = end is End.NOT_STARTED and any(text in reason.lower() for text in _NO_PROGRAM)
            yield Event("ended", found["ended"], at, found.start(), end, reason, lacks)


def failures(log: str) -> dict[str, str]:
    """Of each model whose last start or run ended badly, llama-swap's words for it; of the common *log*."""
    found: dict[str, str] = {}
    for event in events(log):
        if event.kind == "ready":
            found.pop(event.model, None)
        elif event.kind == "ended" and event.end is not End.REQUESTED:
            found[event.model] = event.reason
    return found


def without_llama_swap(text: str) -> list[str]:
    """The lines of *text* that are not llama-swap's own: the engines' and the preflights'."""
    return [line for line in text.splitlines() if not _DATE.match(line)]
